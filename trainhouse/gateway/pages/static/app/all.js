// Every page of a listing, asked again on a clock: {data, error, reload}.
import { eachPage } from "./api.js";
import { useAsked } from "./use.js";

const MOST = 20000;

async function every(path, signal) {
  const items = [];
  await eachPage(path, {}, { most: MOST, signal }, (page) => items.push(...page));
  return items;
}

export const useAll = (path, every_ms = 0) => useAsked(path, every, { every_ms });

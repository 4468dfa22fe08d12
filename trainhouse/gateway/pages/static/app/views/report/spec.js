// The text of a panel as what it asks for: YAML in a fence "panel" to a checked description, or a sentence that says what is wrong. Pure.
import { load } from "../../../vendor/js-yaml/js-yaml.js";
import { X_KINDS } from "../../parts/panels.js";

export const FILTERS = ["project", "name", "user", "team", "pool", "state", "source", "name_contains"];
export const COLUMNS = ["run", "state", "user", "team", "pool", "project", "step", "loss", "attempt", "submitted", "took", "reason"];
const FIELDS = {
  curves: ["type", "title", "metric", "metrics", "jobs", "filter", "limit", "x", "smooth", "log", "height"],
  runs: ["type", "title", "jobs", "filter", "limit", "columns", "metrics"],
  sql: ["type", "title", "query", "chart", "by", "of"],
};
const MOST_RUNS = 50;
const MOST_METRICS = 20;
const MOST_CHARS = 16384;
export const EXAMPLE = "type: curves\nmetric: loss\nfilter: {name: gpt}";

// {type, title, …} of a panel's text. Throws an Error with the sentence for its reader.
export function panelOf(text) {
  if (text.length > MOST_CHARS) throw new Error(`a panel has at most ${MOST_CHARS} characters`);
  let given;
  try { given = load(text); } catch (error) { throw new Error(`it is no YAML: ${error.reason || error.message}`); }
  if (!given || typeof given !== "object" || Array.isArray(given)) throw new Error(`it has fields such as “type: curves”, one a line`);
  const known = FIELDS[given.type];
  if (!known) throw new Error(`type is one of ${Object.keys(FIELDS).join(", ")}, not ${words(given.type)}`);
  const other = Object.keys(given).find((name) => !known.includes(name));
  if (other) throw new Error(`a panel of ${given.type} has no field ${other}; it has ${known.join(", ")}`);
  const common = { type: given.type, title: given.title === undefined ? "" : String(given.title) };
  if (given.type === "sql") return { ...common, ...sqlOf(given) };
  return { ...common, ...runsOf(given), ...(given.type === "curves" ? curvesOf(given) : tableOf(given)) };
}

function runsOf({ jobs, filter, limit }) {
  if (jobs !== undefined && filter !== undefined) throw new Error("name jobs, or a filter, not both");
  const most = limit === undefined ? 10 : limit;
  if (!Number.isInteger(most) || most < 1 || most > MOST_RUNS) throw new Error(`limit is 1 to ${MOST_RUNS}`);
  const ids = jobs === undefined ? null : list(jobs, "jobs");
  if (ids && ids.length > MOST_RUNS) throw new Error(`a panel has at most ${MOST_RUNS} jobs`);
  const chosen = filter === undefined || filter === null ? {} : filter;
  if (typeof chosen !== "object" || Array.isArray(chosen)) throw new Error("filter has fields, as in {name: gpt, state: SUCCEEDED}");
  const unknown = Object.keys(chosen).find((name) => !FILTERS.includes(name));
  if (unknown) throw new Error(`filter knows no ${unknown}; it knows ${FILTERS.join(", ")}`);
  return { jobs: ids, filter: Object.fromEntries(Object.entries(chosen).map(([name, value]) => [name, Array.isArray(value) ? value.map(String) : String(value)])), limit: most };
}

function curvesOf({ metric, metrics, x, smooth, log, height }) {
  const names = list(metrics === undefined ? metric : metrics, "metric");
  if (names.length > MOST_METRICS) throw new Error(`a panel has at most ${MOST_METRICS} metrics`);
  const axes = X_KINDS.map(([name]) => name).filter((name) => name !== "samples");
  if (x !== undefined && !axes.includes(x)) throw new Error(`x is one of ${axes.join(", ")}`);
  return { metrics: names, x: x || "step", smooth: within("smooth", smooth, 0, 0.99, 0), log: log === true, height: within("height", height, 120, 800, 260) };
}

function tableOf({ columns, metrics }) {
  const chosen = columns === undefined ? ["run", "state", "step", "loss", "submitted", "took"] : list(columns, "columns");
  const unknown = chosen.find((name) => !COLUMNS.includes(name));
  if (unknown) throw new Error(`there is no column ${unknown}; there are ${COLUMNS.join(", ")}`);
  return { columns: chosen, metrics: metrics === undefined ? [] : list(metrics, "metrics") };
}

function sqlOf({ query, chart, by, of }) {
  if (typeof query !== "string" || !query.trim()) throw new Error("query is a statement in SQL");
  const charts = ["table", "lines", "bars"];
  if (chart !== undefined && !charts.includes(chart)) throw new Error(`chart is one of ${charts.join(", ")}`);
  return { query, chart: chart || "table", by: by === undefined ? null : String(by), of: of === undefined ? null : list(of, "of") };
}

function list(value, name) {
  const all = Array.isArray(value) ? value : [value];
  if (!all.length || all.some((one) => (typeof one !== "string" && typeof one !== "number") || one === "")) throw new Error(`${name} is a name, or a list of names`);
  return all.map(String);
}

function within(name, value, least, most, usual) {
  if (value === undefined) return usual;
  if (typeof value !== "number" || !(value >= least && value <= most)) throw new Error(`${name} is a number from ${least} to ${most}`);
  return value;
}

const words = (value) => (value === undefined ? "left out" : JSON.stringify(value));

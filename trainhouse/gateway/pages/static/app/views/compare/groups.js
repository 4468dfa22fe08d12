// Runs in groups by the value of a parameter, and a mean with a band of the curves of each group. Pure.
import { number } from "../../format.js";
import { SERIES } from "../../states.js";
import { shown } from "../job/config.js";

export const BANDS = [["range", "least to greatest"], ["std", "± standard deviation"]];
const MOST_GROUPS = 12;
const PARTS = 4;

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

// Parameters by which runs can be grouped: they differ, and have few values or are numbers, which fall into ranges of as many runs each.
export const groupable = (parameters, runs) => parameters.filter(({ values }) => {
  const known = Object.values(values);
  const count = new Set(known.map(shown)).size;
  return (count > 1 || (count === 1 && known.length < runs.length)) && (count <= MOST_GROUPS || known.every(isNumber));
});

// [{id, label, token, runs: [job_id]}] in the order of the values; runs without the parameter come last.
export function groupsOf(runs, parameter) {
  const ids = runs.map((run) => run.job_id);
  const known = ids.filter((id) => id in parameter.values);
  const values = [...new Map(known.map((id) => [shown(parameter.values[id]), parameter.values[id]])).values()];
  values.sort((a, b) => (isNumber(a) && isNumber(b) ? a - b : shown(a) < shown(b) ? -1 : 1));
  const named = values.length > MOST_GROUPS ? ranges(values) : values.map((value) => [shown(value), (one) => shown(one) === shown(value)]);
  const groups = named.map(([word, holds]) => ({ word: `${parameter.path} ${word}`, runs: known.filter((id) => holds(parameter.values[id])) }));
  const without = ids.filter((id) => !(id in parameter.values));
  if (without.length) groups.push({ word: `${parameter.path} not set`, runs: without });
  return groups.filter((group) => group.runs.length).map((group, i) => ({
    id: `group ${group.word}`, label: `${group.word} (${group.runs.length})`, token: SERIES[i % SERIES.length], runs: group.runs,
  }));
}

function ranges(values) {
  const size = Math.ceil(values.length / PARTS);
  const parts = [];
  for (let i = 0; i < values.length; i += size) parts.push([values[i], values[Math.min(values.length, i + size) - 1]]);
  return parts.map(([low, high]) => [`${number(low)} to ${number(high)}`, (one) => one >= low && one <= high]);
}

// A column with values between its points, in straight lines; null before its first and after its last one.
export function filled(x, column) {
  const made = new Array(x.length).fill(null);
  let before = -1;
  column.forEach((value, i) => {
    if (value === null || value === undefined) return;
    made[i] = value;
    for (let j = before + 1; before >= 0 && j < i; j += 1) made[j] = column[before] + (value - column[before]) * (x[j] - x[before]) / (x[i] - x[before]);
    before = i;
  });
  return made;
}

// {mean, least, greatest} of columns over one x: the mean of those that have a value there, and their band.
export function banded(x, columns, band) {
  const own = columns.map((column) => filled(x, column));
  const [mean, least, greatest] = [[], [], []];
  for (let i = 0; i < x.length; i += 1) {
    const values = own.map((column) => column[i]).filter((value) => value !== null);
    if (!values.length) { mean.push(null); least.push(null); greatest.push(null); continue; }
    const middle = values.reduce((sum, value) => sum + value, 0) / values.length;
    const spread = values.length > 1 ? Math.sqrt(values.reduce((sum, value) => sum + (value - middle) ** 2, 0) / (values.length - 1)) : 0;
    mean.push(middle);
    least.push(band === "std" ? middle - spread : Math.min(...values));
    greatest.push(band === "std" ? middle + spread : Math.max(...values));
  }
  return { mean, least, greatest };
}

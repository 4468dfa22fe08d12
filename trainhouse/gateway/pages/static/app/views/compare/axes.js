// What runs can be laid out by: parameters and other fields in which they differ, values of metrics, what they took. Pure.
import { shown } from "../job/config.js";

const MOST_WORDS = 24;
const CLOSE = 1e-6;
export const VALUES = [["last", "last"], ["least", "lowest"], ["greatest", "highest"]];

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const present = (value) => value !== undefined && value !== null;

// A scale of values: numbers from the least to the greatest, words in alphabetical order; null where all are the same, or too many words.
export function scaleOf(values, log = false) {
  const known = values.filter(present);
  if (!known.length) return null;
  const numbers = known.every(isNumber);
  if (numbers) {
    const [low, high] = [Math.min(...known), Math.max(...known)];
    const by = log && low > 0 ? Math.log10 : (value) => value;
    return { numbers, low, high, log: log && low > 0, texts: [], part: (value) => (by(high) === by(low) ? 0.5 : (by(value) - by(low)) / (by(high) - by(low))) };
  }
  const texts = [...new Set(known.map(shown))].sort();
  if (texts.length > MOST_WORDS) return null;
  return { numbers, low: 0, high: texts.length - 1, log: false, texts, part: (value) => (texts.length < 2 ? 0.5 : texts.indexOf(shown(value)) / (texts.length - 1)) };
}

const same = (a, b) => shown(a) === shown(b) || (isNumber(a) && isNumber(b) && Math.abs(a - b) <= CLOSE * Math.max(Math.abs(a), Math.abs(b)));

// All of them as {id, title, full, of(run)}; what is a parameter and, with the same values, a metric too is one.
export function dimensionsOf(runs, config, parameters, metrics) {
  const differing = new Set(config.map((one) => one.path));
  const own = parameters.map((one) => ({ id: `parameter ${one.path}`, title: one.path, full: `hyperparameters.${one.path}`, parameter: true, of: (run) => one.values[run.job_id] }))
    .map((one) => (differing.has(one.full) ? one : { ...one, full: `parameters.${one.title}` }));
  const fields = config.filter((one) => !/^(name|labels|user|hyperparameters|parameters)\b/.test(one.path))
    .map((one) => ({ id: `field ${one.path}`, title: one.path.split(".").slice(-1)[0], full: one.path, of: (run) => one.values[run.job_id] }));
  const figures = metrics.flatMap((one) => VALUES.map(([key, word]) => (
    { id: `${key} ${one.metric}`, title: one.metric, full: `${one.metric}, ${word}`, metric: one.metric, value: key, of: (run) => run.metrics[one.metric]?.[key] })));
  const more = [{ id: "device hours", title: "device hours", full: "device hours", of: (run) => (present(run.gpu_seconds) ? run.gpu_seconds / 3600 : undefined) },
    { id: "steps", title: "steps", full: "steps", of: (run) => run.step }];
  const all = [...own, ...fields];
  for (const figure of [...figures, ...more]) {
    const twin = all.find((one) => one.title === figure.title && runs.every((run) => same(one.of(run), figure.of(run))));
    if (!twin && runs.some((run) => present(figure.of(run)))) all.push(figure);
  }
  return all;
}

// The axes of parallel coordinates among them: parameters and fields that differ, then last values of metrics, then device hours.
export function axesOf(runs, dimensions, most) {
  const chosen = dimensions.filter((one) => one.parameter || one.id.startsWith("field ")).slice(0, 60);
  const figures = dimensions.filter((one) => one.value === "last");
  const made = [];
  const take = (list, up_to) => {
    for (const one of list) {
      if (made.length >= up_to) return;
      const scale = scaleOf(runs.map(one.of));
      if (!scale || (runs.length > 1 && scale.part(one.of(runs.find((run) => present(one.of(run))))) === 0.5 && (scale.numbers ? scale.low === scale.high : scale.texts.length < 2))) continue;
      // Two of one title are told apart by all of their name.
      made.push({ ...one, ...scale, title: made.some((other) => other.title === one.title) ? one.full : one.title });
    }
  };
  take(chosen, most - 3);
  take(figures, Math.min(most - 1, made.length + 3));
  take(dimensions.filter((one) => one.id === "device hours"), most);
  return made;
}

// Brushes of an address, `axis~low~high` in parts of the axis; broken ones are none.
export function brushesOf(query) {
  const found = new Map();
  for (const text of query.getAll("brush")) {
    const [high, low, ...name] = text.split("~").reverse();
    const [from, to] = [Number(low), Number(high)];
    if (name.length && low !== "" && high !== "" && from >= 0 && to <= 1 && from <= to) found.set(name.reverse().join("~"), [from, to]);
  }
  return found;
}

export const brushText = (brushes) => [...brushes].map(([id, [low, high]]) => `${id}~${Number(low.toFixed(3))}~${Number(high.toFixed(3))}`);

const SLACK = 0.0006;
// The ids of runs that all brushes let through; a run without a value on a brushed axis is not one of them.
export function kept(runs, axes, brushes) {
  const set = axes.filter((axis) => brushes.has(axis.id));
  return new Set(runs.filter((run) => set.every((axis) => {
    const value = axis.of(run);
    const [low, high] = brushes.get(axis.id);
    return present(value) && axis.part(value) >= low - SLACK && axis.part(value) <= high + SLACK;
  })).map((run) => run.job_id));
}

// About `count` round numbers between two, powers of ten of a scale that is logarithmic.
export function ticksOf(low, high, log, count = 5) {
  if (log) {
    const made = [];
    for (let p = Math.ceil(Math.log10(low) - 1e-9); p <= Math.log10(high) + 1e-9; p += 1) made.push(10 ** p);
    return made.length > 1 ? made : [low, high];
  }
  const raw = (high - low) / count;
  if (!(raw > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((one) => raw <= one * power * 1.0001);
  const made = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n += 1) made.push(Number((n * step).toPrecision(12)));
  return made;
}

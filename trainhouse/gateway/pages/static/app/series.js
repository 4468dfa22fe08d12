// What is done to curves before they are drawn: smoothing, another x, runs beside each other. Pure.

// A moving average that weighs the value before by `weight` (0: none, below 1), without the bias of its beginning, as TensorBoard has it.
export function smoothed(values, weight) {
  if (!weight) return values;
  let sum = 0;
  let share = 1;
  return values.map((value) => {
    if (value === null || value === undefined || !Number.isFinite(value)) return value;
    sum = sum * weight + (1 - weight) * value;
    share *= weight;
    return sum / (1 - share);
  });
}

// Where relative time begins: when a job started, or at its first point where that came before. `before`: what it was when more was loaded.
export function beganOf(curve, began_ms, before = null) {
  const known = [began_ms, before].filter((at_ms) => at_ms !== null && at_ms !== undefined);
  return curve.time_ms.reduce((least, at_ms) => Math.min(least, at_ms), Math.min(...known));
}

// x of each point of a curve {step, time_ms}: by "step", "time" (s since 1970), "relative" (s since began_ms) or "samples".
export function xOf(curve, by, { began_ms, samplesAt } = {}) {
  if (by === "time") return curve.time_ms.map((at_ms) => at_ms / 1000);
  if (by === "relative") {
    const zero_ms = beganOf(curve, began_ms);
    return curve.time_ms.map((at_ms) => (at_ms - zero_ms) / 1000);
  }
  if (by === "samples" && samplesAt) return curve.step.map(samplesAt);
  return curve.step;
}

// Samples seen until a step, from the curve of a metric that counts them, between its points in a straight line.
export function samplesFrom(counter) {
  const { step, mean } = counter;
  return (at) => {
    if (!step.length) return at;
    let i = step.findIndex((s) => s >= at);
    if (i < 0) i = step.length - 1;
    if (i === 0 || step[i] === at || step.length < 2) return i === 0 && step[0] !== at && step[0] ? mean[0] * at / step[0] : mean[i];
    const [a, b] = [i - 1, i];
    return mean[a] + (mean[b] - mean[a]) * (at - step[a]) / (step[b] - step[a]);
  };
}

// Steps of a range of x, for the server knows steps alone. xs rise as steps do; the range is widened to whole points.
export function stepsOf(xs, steps, from, to) {
  if (!steps.length) return [null, null];
  let low = steps[0];
  let high = steps[steps.length - 1];
  for (let i = 0; i < xs.length && xs[i] <= from; i += 1) low = steps[i];
  for (let i = xs.length - 1; i >= 0 && xs[i] >= to; i -= 1) high = steps[i];
  return [Math.max(0, Math.floor(low)), Math.ceil(high)];
}

// The range of steps after a choice of x from `xs`; [null, null] is all. What is wider than all that is loaded widens the range asked for before.
export function rangeOf(xs, from, to, [low, high], chosen) {
  if (from === null) return [null, null];
  if (!xs.length || from >= xs[0] || to <= xs[xs.length - 1]) return chosen();
  if (low === null) return [null, null];
  const more = Math.max(1, Math.ceil((high - low) / 4));
  return [Math.max(0, low - more), high + more];
}

// Runs [{x, mean, least, greatest}] over one x; a run has null where it has no point. More x than `most` fall into as many equal parts.
export function aligned(runs, most = 2000) {
  let x = [...new Set(runs.flatMap((run) => run.x))].sort((a, b) => a - b);
  let place = (value) => value;
  if (x.length > most) {
    const [low, width] = [x[0], (x[x.length - 1] - x[0]) / most || 1];
    place = (value) => low + Math.round((value - low) / width) * width;
    x = [...new Set(x.map(place))];
  }
  const at = new Map(x.map((value, i) => [value, i]));
  return { x, columns: runs.map((run) => {
    const mean = new Array(x.length).fill(null);
    run.x.forEach((value, i) => { mean[at.get(place(value))] = run.mean[i]; });
    return mean;
  }) };
}

// Metrics by what stands before their first slash; those without one first, what the platform measures itself last.
const FOLDED = ["system", "step", "pipeline", "data"];
export const folded = (group) => FOLDED.includes(group);
export function grouped(names) {
  const groups = new Map();
  for (const name of names) {
    const group = name.includes("/") ? name.slice(0, name.indexOf("/")) : "";
    if (!groups.has(group)) groups.set(group, []);
    groups.get(group).push(name);
  }
  const rank = (group) => (group === "" ? 0 : folded(group) ? 2 : 1);
  return [...groups].map(([group, own]) => ({ group, names: own.sort((a, b) => isLoss(b) - isLoss(a) || (a < b ? -1 : 1)) }))
    .sort((a, b) => rank(a.group) - rank(b.group) || (a.group < b.group ? -1 : 1));
}

export const isLoss = (name) => /(^|[/_])loss$/.test(name) || name === "loss";

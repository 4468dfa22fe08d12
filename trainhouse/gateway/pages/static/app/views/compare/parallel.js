// All runs as lines over parallel axes: the fields in which they differ, then the metrics they ended with.
import { html, useMemo } from "../../kit.js";
import { Empty } from "../../parts/notice.js";
import { number } from "../../format.js";
import { useWidth } from "../../use.js";
import { tokenOf } from "../compare.js";
import { shown } from "../job/config.js";

const HEIGHT = 300;
const TOP = 44;
const BOTTOM = 24;
const MOST_AXES = 9;
const MOST_WORDS = 24;

// Axes of numbers run from the least to the greatest, those of words are in alphabetical order. Pure.
export function axesOf(runs, config, metrics) {
  const fields = config.map((one) => ({ title: one.path.split(".").slice(-1)[0], full: one.path, of: (run) => one.values[run.job_id] }));
  const figures = metrics.map((one) => ({ title: one.metric, full: `${one.metric}, last`, of: (run) => run.metrics[one.metric]?.last }));
  const more = [{ title: "device hours", full: "device hours", of: (run) => (run.gpu_seconds === null ? undefined : run.gpu_seconds / 3600) }];
  const made = [];
  for (const axis of [...fields.filter((f) => !/^(name|labels|user)\b/.test(f.full)).slice(0, MOST_AXES - 3), ...figures.slice(0, 3), ...more]) {
    const values = runs.map(axis.of).filter((value) => value !== undefined && value !== null);
    const texts = [...new Set(values.map(shown))].sort();
    const numbers = values.every((value) => typeof value === "number" && Number.isFinite(value));
    if (!values.length || (texts.length < 2 && runs.length > 1) || (!numbers && texts.length > MOST_WORDS)) continue;
    const [low, high] = numbers ? [Math.min(...values), Math.max(...values)] : [0, texts.length - 1];
    const part = (value) => (numbers ? (value - low) / (high - low || 1) : texts.indexOf(shown(value)) / (texts.length - 1 || 1));
    // A field is often a parameter and a metric too: the same values are one axis, others are told apart by their title.
    const twin = made.find((one) => one.title === axis.title);
    if (twin && runs.every((run) => shown(twin.of(run)) === shown(axis.of(run)))) continue;
    if (twin) axis.title = axis.full;
    made.push({ ...axis, numbers, low, high, texts, part });
  }
  return made.slice(0, MOST_AXES);
}

export function Parallel({ runs, config, metrics, names, at, setAt }) {
  const [box, width] = useWidth();
  const axes = useMemo(() => axesOf(runs, config, metrics), [runs, config, metrics]);
  if (runs.length < 2 || axes.length < 2) return html`<div ref=${box}><${Empty}>Choose two runs or more that differ in two values or more: each is a line here.<//></div>`;
  const wide = Math.max(width, axes.length * 96);
  const x = (i) => 54 + i * ((wide - 108) / (axes.length - 1));
  const y = (part) => HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM);
  return html`<div class="parallel scroll-x" ref=${box} tabindex="0" role="region" aria-label="Parallel coordinates">${width > 0 && html`<svg width=${wide} height=${HEIGHT} style="max-width:none" role="img"
    aria-label=${`${runs.length} runs over ${axes.map((axis) => axis.full).join(", ")}; the table of results below has the numbers`}>
    ${runs.map((run, n) => html`<path d=${lineOf(run, axes, x, y)} fill="none" style=${{ stroke: `var(${tokenOf(n)})` }} stroke-width=${at === run.job_id ? 3 : 1.4}
      opacity=${at && at !== run.job_id ? 0.15 : 0.8} onMouseEnter=${() => setAt(run.job_id)} onMouseLeave=${() => setAt(null)}><title>${names[run.job_id]}</title></path>`)}
    ${axes.map((axis, i) => html`<g><line x1=${x(i)} x2=${x(i)} y1=${y(0)} y2=${y(1)} style="stroke:var(--line-strong)" />
      <text x=${x(i)} y="16" text-anchor="middle">${axis.title}<title>${axis.full}</title></text>
      <text class="dim" x=${x(i)} y="34" text-anchor="middle">${axis.numbers ? number(axis.high, 3) : axis.texts[axis.texts.length - 1].slice(0, 14)}</text>
      <text class="dim" x=${x(i)} y=${HEIGHT - 6} text-anchor="middle">${axis.numbers ? number(axis.low, 3) : axis.texts[0].slice(0, 14)}</text></g>`)}
  </svg>`}</div>`;
}

// A run's line; it breaks where the run has no value.
function lineOf(run, axes, x, y) {
  let path = "";
  let pen = "M";
  axes.forEach((axis, i) => {
    const value = axis.of(run);
    if (value === undefined || value === null) { pen = "M"; return; }
    path += `${pen}${x(i).toFixed(1)},${y(axis.part(value)).toFixed(1)}`;
    pen = "L";
  });
  return path;
}

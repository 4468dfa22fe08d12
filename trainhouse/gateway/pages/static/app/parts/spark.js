// A small curve beside a figure: how it came to be what it is. What it says in words is its label.
import { html } from "../kit.js";
import { number } from "../format.js";

const PAD = 2;

// Points of a line in a box; null leaves a gap. zero: the box begins at 0. Pure.
export function pathOf(values, width, height, zero) {
  const known = values.filter((value) => value !== null && Number.isFinite(value));
  if (known.length < 2) return "";
  const low = zero ? Math.min(0, ...known) : Math.min(...known);
  const high = Math.max(...known);
  const y = (value) => PAD + (height - 2 * PAD) * (high === low ? (high ? 0.5 : 1) : 1 - (value - low) / (high - low));
  let pen = "M";
  return values.map((value, i) => {
    if (value === null || !Number.isFinite(value)) { pen = "M"; return ""; }
    const point = `${pen}${(PAD + (width - 2 * PAD) * i / (values.length - 1)).toFixed(1)},${y(value).toFixed(1)}`;
    pen = "L";
    return point;
  }).join("");
}

export function Spark({ values, label, token = "--accent", width = 96, height = 22, zero = false }) {
  const path = pathOf(values || [], width, height, zero);
  if (!path) return null;
  const known = values.filter((value) => value !== null);
  return html`<svg class="spark" width=${width} height=${height} role="img" aria-label=${`${label}: from ${number(known[0])} to ${number(known[known.length - 1])}, least ${number(Math.min(...known))}, greatest ${number(Math.max(...known))}`}>
    <path d=${path} style=${{ stroke: `var(${token})` }} /></svg>`;
}

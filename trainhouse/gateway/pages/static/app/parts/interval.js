// A figure with its interval as a small line, on the scale of the figures beside it; `zero` and `margin` as marks.
import { html } from "../kit.js";
import { number } from "../format.js";

const WIDTH = 150;
const HEIGHT = 18;
const SIDE_PX = 5;

// The scale of many: the least and greatest of their ends. Pure.
export function scaleOf(figures, more = []) {
  const ends = [...figures.flatMap((f) => [f.value, f.low, f.high]), ...more].filter((n) => Number.isFinite(n));
  if (!ends.length) return null;
  const [least, greatest] = [Math.min(...ends), Math.max(...ends)];
  return least === greatest ? [least - (Math.abs(least) || 1) * 0.1, greatest + (Math.abs(greatest) || 1) * 0.1] : [least, greatest];
}

export function Interval({ figure, scale, zero = false, margin = null, token = "--c1", label }) {
  if (!scale || !Number.isFinite(figure.value)) return "";
  const x = (n) => SIDE_PX + (Math.min(scale[1], Math.max(scale[0], n)) - scale[0]) / (scale[1] - scale[0]) * (WIDTH - 2 * SIDE_PX);
  const known = Number.isFinite(figure.low) && Number.isFinite(figure.high);
  return html`<svg class="interval" width=${WIDTH} height=${HEIGHT} role="img" aria-label=${`${label}: ${number(figure.value)}${known ? `, from ${number(figure.low)} to ${number(figure.high)}` : ""}`}>
    ${zero && html`<line class="zero" x1=${x(0)} x2=${x(0)} y1="0" y2=${HEIGHT} />`}
    ${margin !== null && html`<line class="margin" x1=${x(margin)} x2=${x(margin)} y1="2" y2=${HEIGHT - 2} />`}
    ${known && html`<line style=${{ stroke: `var(${token})` }} stroke-width="2" x1=${x(figure.low)} x2=${x(figure.high)} y1=${HEIGHT / 2} y2=${HEIGHT / 2} />`}
    <circle style=${{ fill: `var(${token})` }} cx=${x(figure.value)} cy=${HEIGHT / 2} r="4" /></svg>`;
}

// Histograms over steps as a heat map: a column a step, darker where more values lie. Axes and cursor are uPlot's.
import { html, useEffect, useMemo, useRef, useState } from "../kit.js";
import uPlot from "../../vendor/uplot/uplot.js";
import { colour } from "../theme.js";
import { number, tick } from "../format.js";
import { useTheme, useWidth } from "../use.js";
import { shade } from "./heatmap.js";

const SHADES = 48;
const HEIGHT = 240;
// Distances between ticks of steps, which are whole.
const WHOLE = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11].flatMap((power) => [1, 2, 5].map((n) => n * 10 ** power));

// Where columns of steps begin and end (half way to the next one), the least and greatest value, and the greatest density. Pure.
export function gridOf(items) {
  const steps = items.map((one) => one.step);
  const half = (i) => (steps[i] + steps[i + 1]) / 2;
  const room = steps.length > 1 ? (steps[steps.length - 1] - steps[0]) / (steps.length - 1) / 2 : 0.5;
  const sides = steps.map((step, i) => [i ? half(i - 1) : step - room, i < steps.length - 1 ? half(i) : step + room]);
  let [low, high, most] = [Infinity, -Infinity, 0];
  const densities = items.map(({ edges, counts }) => {
    const sum = counts.reduce((a, b) => a + b, 0) || 1;
    low = Math.min(low, edges[0]);
    high = Math.max(high, edges[edges.length - 1]);
    return counts.map((count, i) => count / sum / (edges[i + 1] - edges[i]));
  });
  for (const column of densities) for (const value of column) most = Math.max(most, value);
  return { steps, sides, low, high, densities, most };
}

function draw(plot, items, grid, marked) {
  const { ctx } = plot;
  const palette = [...Array(SHADES).keys()].map((i) => shade(0.6 * i / (SHADES - 1)));
  const x = (value) => plot.valToPos(value, "x", true);
  const y = (value) => plot.valToPos(value, "y", true);
  ctx.save();
  ctx.beginPath();
  ctx.rect(plot.bbox.left, plot.bbox.top, plot.bbox.width, plot.bbox.height);
  ctx.clip();
  items.forEach(({ edges, counts }, column) => {
    const [left, right] = grid.sides[column].map(x);
    counts.forEach((count, i) => {
      if (!count) return;
      // Its root, so that tails stay in sight beside a peak.
      ctx.fillStyle = palette[Math.round((SHADES - 1) * (0.08 + 0.92 * Math.sqrt(grid.densities[column][i] / grid.most)))];
      const [bottom, top] = [y(edges[i]), y(edges[i + 1])];
      ctx.fillRect(left, top, Math.max(1, right - left + 0.5), Math.max(1, bottom - top + 0.5));
    });
  });
  if (marked !== null) {
    ctx.fillStyle = colour("--text");
    ctx.fillRect(x(marked) - 0.5, plot.bbox.top, 1.5, plot.bbox.height);
  }
  ctx.restore();
}

export function Distributions({ label, items, step = null }) {
  const place = useRef(null);
  const [box, width] = useWidth();
  const [at, setAt] = useState(null);
  const theme = useTheme();
  const grid = useMemo(() => gridOf(items), [items]);
  const marked = step === null || items.length < 2 ? null : grid.steps.filter((one) => one <= step).pop() ?? null;
  useEffect(() => {
    if (!width) return undefined;
    const axis = { stroke: colour("--muted"), grid: { show: false }, ticks: { stroke: colour("--line"), width: 1 }, font: "12px system-ui, sans-serif" };
    const ends = [grid.sides[0][0], grid.sides[grid.sides.length - 1][1]];
    const plot = new uPlot({
      width, height: HEIGHT, pxAlign: false, legend: { show: false }, cursor: { drag: { x: false, y: false }, points: { show: false } },
      scales: { x: { time: false, range: ends }, y: { range: [grid.low, grid.high] } },
      axes: [{ ...axis, size: 34, incrs: WHOLE, label: "step", labelSize: 18, labelFont: axis.font, values: (_, ticks) => ticks.map((v) => tick(v)) },
        { ...axis, size: (__, values) => 18 + Math.ceil(7 * Math.max(3, ...(values || []).map((text) => String(text ?? "").length))), values: (_, ticks) => ticks.map((v) => number(v, 3)) }],
      series: [{}, { paths: () => null, points: { show: false } }],
      hooks: { drawClear: [(made) => draw(made, items, grid, marked)], setCursor: [(made) => setAt(made.cursor.idx ?? null)] },
    }, [grid.steps, grid.steps.map(() => null)], place.current);
    return () => plot.destroy();
  }, [width, grid, theme, marked]);
  const shown = at !== null && items[at] ? items[at] : items[marked === null ? items.length - 1 : grid.steps.indexOf(marked)];
  return html`<div ref=${box}><div class="chart" ref=${place} role="img" aria-label=${`${label}: ${items.length === 1 ? "a histogram" : `${items.length} histograms`} of ${steps(grid.steps)}, values ${number(grid.low)} to ${number(grid.high)}`}></div>
    <p class="tip">${wordsOf(shown)}</p></div>`;
}

const steps = (all) => (all.length === 1 ? `step ${number(all[0])}` : `steps ${number(all[0])} to ${number(all[all.length - 1])}`);

// The value that half of all values are below, as the bins have it. Pure.
export function medianOf({ edges, counts }) {
  const half = counts.reduce((a, b) => a + b, 0) / 2;
  let below = 0;
  for (let i = 0; i < counts.length; i += 1) {
    if (counts[i] && below + counts[i] >= half) return edges[i] + (edges[i + 1] - edges[i]) * (half - below) / counts[i];
    below += counts[i];
  }
  return edges[0];
}

function wordsOf(one) {
  const count = one.counts.reduce((a, b) => a + b, 0);
  return `step ${number(one.step)}: ${number(count)} values from ${number(one.edges[0])} to ${number(one.edges[one.edges.length - 1])}, median ${number(medianOf(one), 3)}${one.not_finite ? `, ${number(one.not_finite)} not finite` : ""}`;
}

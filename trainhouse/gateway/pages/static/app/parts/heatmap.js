// How long steps took, rank by rank, on a canvas: a slow rank is a line, a slow moment a column.
import { html, useEffect, useMemo, useRef, useState } from "../kit.js";
import { colour } from "../theme.js";
import { number } from "../format.js";
import { useTheme, useWidth } from "../use.js";

const TOP_PX = 4;
const LEFT_PX = 64;

// Cells to a grid and the scale of its colours, from the 5th to the 99th percentile, so that one outlier does not pale the rest; but half as
// slow again at least is what the hottest colour means, so that small differences look small. Pure.
export function gridOf(cells) {
  const rows = 1 + Math.max(...cells.map((cell) => cell.row));
  const columns = 1 + Math.max(...cells.map((cell) => cell.column));
  const values = cells.map((cell) => cell.slowest_ms).sort((a, b) => a - b);
  const low = values[Math.floor(values.length * 0.05)];
  const high = Math.max(values[Math.floor(values.length * 0.99)], 1.5 * low, 1e-9);
  return { rows, columns, low, high, at: new Map(cells.map((cell) => [cell.row * columns + cell.column, cell])) };
}

const channels = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));

export function shade(part) {
  const [a, b] = part < 0.6 ? ["--heat-0", "--heat-1"] : ["--heat-1", "--heat-2"];
  const share = part < 0.6 ? part / 0.6 : (part - 0.6) / 0.4;
  const [from, to] = [channels(colour(a)), channels(colour(b))];
  return `rgb(${from.map((v, i) => Math.round(v + (to[i] - v) * share)).join(",")})`;
}

function draw(canvas, grid, width, cell) {
  const ratio = devicePixelRatio || 1;
  const height = TOP_PX + grid.rows * cell;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.font = "11px system-ui, sans-serif";
  const wide = (width - LEFT_PX) / grid.columns;
  for (const found of grid.at.values()) {
    pen.fillStyle = shade(Math.min(1, Math.max(0, (found.slowest_ms - grid.low) / (grid.high - grid.low))));
    pen.fillRect(LEFT_PX + found.column * wide, TOP_PX + found.row * cell, Math.ceil(wide), cell - (cell > 5 ? 1 : 0));
  }
  pen.fillStyle = colour("--muted");
  const every = Math.max(1, Math.ceil(14 / cell));
  for (let row = 0; row < grid.rows; row += every) {
    const first = [...Array(grid.columns).keys()].map((c) => grid.at.get(row * grid.columns + c)).find(Boolean);
    if (first) pen.fillText(`rank ${first.first_rank}`, 0, TOP_PX + row * cell + Math.min(cell, 14) - 3);
  }
}

export function Heatmap({ cells }) {
  const canvas = useRef(null);
  const [box, width] = useWidth();
  const [at, setAt] = useState(null);
  const theme = useTheme();
  const grid = useMemo(() => gridOf(cells), [cells]);
  const cell = Math.max(3, Math.min(24, Math.floor(420 / grid.rows)));
  useEffect(() => { if (width) draw(canvas.current, grid, width, cell); }, [grid, width, theme]);
  const pointed = (event) => {
    const { left, top } = canvas.current.getBoundingClientRect();
    const column = Math.floor((event.clientX - left - LEFT_PX) / ((width - LEFT_PX) / grid.columns));
    setAt(column < 0 ? null : grid.at.get(Math.floor((event.clientY - top - TOP_PX) / cell) * grid.columns + column) || null);
  };
  const slowest = useMemo(() => cells.reduce((a, b) => (b.slowest_ms > a.slowest_ms ? b : a)), [cells]);
  return html`<div ref=${box}>
    <canvas class="map" ref=${canvas} role="img" aria-label=${`Step times of ${grid.rows} rows of ranks. ${wordsOf(slowest, "Slowest: ")}`}
      onMouseMove=${pointed} onMouseLeave=${() => setAt(null)}></canvas>
    <p class="tip">${at ? wordsOf(at) : wordsOf(slowest, "Slowest: ")}</p>
    <ul class="legend"><li><${Swatch} part=${0} /> ${number(grid.low, 3)} ms a step</li><li><${Swatch} part=${0.6} /></li>
      <li><${Swatch} part=${1} /> ${number(grid.high, 3)} ms and more</li></ul></div>`;
}

const Swatch = ({ part }) => html`<span class="pill square" style=${{ "--dot": shade(part) }}></span>`;

const range = (word, low, high) => (low === high ? `${word} ${number(low)}` : `${word}s ${number(low)} to ${number(high)}`);

const wordsOf = (cell, before = "") => `${before}${range("rank", cell.first_rank, cell.last_rank)}, ${range("step", cell.first_step, cell.last_step)}: `
  + `${number(cell.slowest_ms, 3)} ms the slowest step, ${number(cell.mean_ms, 3)} ms on average`;

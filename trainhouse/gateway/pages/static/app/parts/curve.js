// A chart of curves over steps. A series has the least and the greatest of each bucket of steps beside its mean, so spikes stay in sight.
// Drag chooses a range (the server is asked anew for it, in full detail); a double click shows all again. Keys: + and - zoom, 0 shows all.
import { html, useEffect, useMemo, useRef, useState } from "../kit.js";
import uPlot from "../../vendor/uplot/uplot.js";
import { colour } from "../theme.js";
import { moment, number, span, tick } from "../format.js";
import { PLAIN } from "../units.js";
import { useTheme, useWidth } from "../use.js";
import { Pill } from "./bits.js";

const MOST_MARKED = 60;

// series: [{label, token, mean, least?, greatest?, raw?, dash?, path?}] over the same `x`; raw: what `mean` was before it was smoothed; dash: a limit, not
// what was measured. Pure: what uPlot wants of it.
export function plotted(x, series) {
  const data = [x];
  const spec = [{}];
  const bands = [];
  for (const one of series) {
    if (one.least) {
      data.push(one.greatest, one.least);
      spec.push({ edge: true, of: one }, { edge: true, of: one });
      bands.push({ series: [data.length - 2, data.length - 1], of: one });
    }
    if (one.raw) {
      data.push(one.raw);
      spec.push({ raw: true, of: one });
    }
    data.push(one.mean);
    spec.push({ of: one });
  }
  return { data, spec, bands };
}

// Ticks of time in UTC: the day where a day begins, or where the axis does; as fine as the distance between them.
export function hoursOf(ticks) {
  const apart_s = ticks.length > 1 ? ticks[1] - ticks[0] : 60;
  const end = apart_s < 1 ? 23 : apart_s < 60 ? 19 : 16;
  return ticks.map((at_s, i) => {
    const text = new Date(Math.round(at_s * 1000)).toISOString();
    return i === 0 || /^00:00(:00(\.000)?)?$/.test(text.slice(11, end)) ? `${text.slice(11, end)}\n${text.slice(5, 10)}` : text.slice(11, end);
  });
}

// Ends of an axis of time with one point on it, in seconds: a minute around it. Null: the points are the ends.
const AROUND_S = 30;
export function endsOf(x, time, lasting) {
  if (x.length !== 1 || !(time || lasting)) return null;
  return { min: lasting ? Math.max(0, x[0] - AROUND_S) : x[0] - AROUND_S, max: x[0] + AROUND_S };
}

const faint = (token) => {
  const hex = colour(token).replace("#", "");
  return `#${hex}38`;
};

// Distances between ticks of a time that lasts, in seconds: those that have short names.
const TIME = { space: 84 };
const LASTING = { space: 84, incrs: [0.001, 0.01, 0.1, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800, 2592000] };
// Of what is counted: no halves.
const COUNTED = { incrs: [1, 2, 5].flatMap((n) => Array.from({ length: 12 }, (_, p) => n * 10 ** p)).sort((a, b) => a - b) };
const spans = (_, ticks) => ticks.map((s) => (s === 0 ? "0" : span(s).replace(".0 s", " s").replace(/ 0 (s|min|h)$/, "")));

// As wide as its longest text, so that none is cut.
const fitting = (plot, values) => 18 + Math.ceil(7 * Math.max(3, ...(values || []).map((text) => String(text ?? "").length)));

// A line needs two points: where there are few, each is marked.
const marks = (data) => (_, index) => {
  let count = 0;
  for (const value of data[index]) if (value !== null && value !== undefined && (count += 1) > MOST_MARKED) return false;
  return true;
};

// How a series goes from point to point: in a straight line, in steps (a value holds until the next), or not at all.
const PATHS = { steps: uPlot.paths.stepped({ align: 1 }), points: () => null };
const wayOf = (one, path) => (one.edge || one.raw ? path : one.of.path || path);
// An axis that begins at 0: what is an amount looks as large as it is.
const fromZero = (_, __, high) => [0, high > 0 ? 1.05 * high : 1];

function options({ data, spec, bands, width, height, log, units, x_name, time, lasting, sync, zoomed, pointed, path, zero, counted }) {
  const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 }, font: "12px system-ui, sans-serif" };
  return {
    width, height, pxAlign: false,
    cursor: { drag: { x: true, y: false, setScale: false }, points: { size: 6 }, ...(sync ? { sync: { key: sync, setSeries: false } } : {}) },
    legend: { show: false },
    scales: { x: { time }, y: { distr: log ? 3 : 1, ...(zero && !log ? { range: fromZero } : {}) } },
    tzDate: (at_s) => uPlot.tzDate(new Date(at_s * 1000), "Etc/UTC"),
    axes: [{ ...axis, size: 34, ...(lasting ? LASTING : time ? TIME : counted ? COUNTED : {}), values: time ? (_, ticks) => hoursOf(ticks) : lasting ? spans : (_, ticks) => ticks.map((v) => tick(v)), label: x_name, labelSize: 18, labelFont: "12px system-ui, sans-serif" },
      { ...axis, size: fitting, values: (_, ticks) => ticks.map((v) => (v === null ? "" : units.tick(v))), ...(units.steps && !log ? { incrs: units.steps } : {}) }],
    series: spec.map((one, i) => (i === 0 ? {} : {
      label: one.of.label, stroke: one.edge ? "transparent" : one.raw ? faint(one.of.token) : colour(one.of.token), width: one.edge ? 0 : one.raw ? 1 : 1.6,
      ...(PATHS[wayOf(one, path)] ? { paths: PATHS[wayOf(one, path)] } : {}), ...(one.of.dash && !one.edge ? { dash: [6, 4] } : {}),
      points: { show: one.edge || one.raw || (one.of.dash && data[0].length > 1) ? false : wayOf(one, path) === "points" || (wayOf(one, path) === "lines" && marks(data)), size: 6, fill: colour(one.of.token) }, spanGaps: true,
    })),
    bands: bands.map((band) => ({ series: band.series, fill: faint(band.of.token) })),
    hooks: {
      setSelect: [(plot) => {
        const { left, width: w } = plot.select;
        const [x] = plot.data;
        if (w > 4) zoomed(Math.max(x[0], plot.posToVal(left, "x")), Math.min(x[x.length - 1], plot.posToVal(left + w, "x")));
        plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
      }],
      setCursor: [(plot) => pointed(plot.cursor.idx)],
    },
  };
}

export function Curve({ label, x, series, height = 240, log = false, units = PLAIN, x_name = "step", time = false, lasting = false, sync = "", zoom, legend = true, path = "lines", zero = false, counted = false,
  empty = "nothing was logged yet" }) {
  const place = useRef(null);
  const plot = useRef(null);
  const [box, width] = useWidth();
  const [at, setAt] = useState(null);
  const theme = useTheme();
  const plan = useMemo(() => plotted(x, series), [x, series]);
  const shape = `${x.length < 2}|${width}|${height}|${log}|${time}|${lasting}|${x_name}|${path}|${zero}|${counted}|${theme}|${series.map((one) => `${one.label}/${one.token}/${Boolean(one.least)}/${Boolean(one.raw)}/${Boolean(one.dash)}/${one.path}`).join()}`;
  const zoomTo = useRef(zoom);
  zoomTo.current = zoom;
  useEffect(() => {
    if (!width || !place.current) return undefined;
    const made = new uPlot(options({
      ...plan, width, height, log, units, x_name, time, lasting, sync, path, zero, counted, zoomed: (from, to) => zoomTo.current?.(from, to), pointed: (index) => setAt(index ?? null),
    }), plan.data, place.current);
    plot.current = made;
    drawn(made, plan, time, lasting);
    return () => { made.destroy(); plot.current = null; };
  }, [shape]);
  useEffect(() => { if (plot.current) drawn(plot.current, plan, time, lasting); }, [plan]);
  const pressed = (event) => {
    if (!zoom || !x.length) return;
    const [low, high] = [x[0], x[x.length - 1]];
    const quarter = (high - low) / 4;
    // What is wider than all points asks for more than is here.
    if (event.key === "+" && quarter) zoom(low + quarter, high - quarter);
    else if (event.key === "-") zoom(low - (quarter || 1), high + (quarter || 1));
    else if (event.key === "0") zoom(null, null);
  };
  const words = x.length ? `${label}: ${series.slice(0, 12).map((one) => summary(one, units)).join("; ")}; ${x_name} ${xWord(x[0], time, lasting)} to ${xWord(x[x.length - 1], time, lasting)}` : `${label}: ${empty}`;
  return html`<div ref=${box}>
    ${x.length === 0 ? html`<p class="notice">${label}: ${empty}.</p>` : html`
      <div class="chart" ref=${place} role="img" aria-label=${words} tabindex=${zoom ? 0 : null} onDblClick=${() => zoom?.(null, null)} onKeyDown=${pressed}></div>
      ${legend && series.length > 1 && html`<ul class="legend">${series.map((one) => html`<li><${Pill} word=${one.label} token=${one.token} square /></li>`)}</ul>`}
      <p class="tip">${at !== null && x[at] !== undefined ? pointedAt(x_name, xWord(x[at], time, lasting), series, at, units) : zoom ? "Drag to zoom, double-click to see all." : ""}</p>`}
  </div>`;
}

function drawn(plot, plan, time, lasting) {
  plot.setData(plan.data);
  const ends = endsOf(plan.data[0], time, lasting);
  if (ends) plot.setScale("x", ends);
}

const known = (values) => values.filter((value) => value !== null && value !== undefined);

function summary(one, units) {
  const values = known(one.mean);
  if (!values.length) return `${one.label} has no values`;
  let least = Infinity;
  let greatest = -Infinity;
  for (const value of known(one.least || one.mean)) least = Math.min(least, value);
  for (const value of known(one.greatest || one.mean)) greatest = Math.max(greatest, value);
  return `${one.label} last ${units.word(values[values.length - 1])}, least ${units.word(least)}, greatest ${units.word(greatest)}`;
}

const xWord = (value, time, lasting) => (time ? moment(new Date(value * 1000).toISOString()) : lasting ? span(value) : number(value));

function pointedAt(x_name, where, series, at, units) {
  const parts = [];
  for (const one of series) {
    if (one.mean[at] === null || one.mean[at] === undefined) continue;
    const spread = one.least && one.least[at] !== one.greatest[at] ? ` (${units.word(one.least[at])} to ${units.word(one.greatest[at])})` : "";
    parts.push(`${one.label} ${units.word(one.mean[at])}${spread}`);
    if (parts.length === 12) { parts.push("…"); break; }
  }
  return `${x_name} ${where}: ${parts.join(" · ")}`;
}

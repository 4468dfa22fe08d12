// A chart of curves over steps. A series has the least and the greatest of each bucket of steps beside its mean, so spikes stay in sight.
// Drag chooses a range (the server is asked anew for it, in full detail); a double click shows all again. Keys: + and - zoom, 0 shows all.
import { html, useEffect, useMemo, useRef, useState } from "../kit.js";
import uPlot from "../../vendor/uplot/uplot.js";
import { colour } from "../theme.js";
import { moment, number, tick } from "../format.js";
import { useTheme, useWidth } from "../use.js";
import { Pill } from "./bits.js";

// series: [{label, token, mean, least?, greatest?}] over the same `x`. Pure: what uPlot wants of it.
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
    data.push(one.mean);
    spec.push({ of: one });
  }
  return { data, spec, bands };
}

// Ticks of time in UTC: the day where a day begins, or where the axis does.
function hoursOf(_, ticks) {
  return ticks.map((at_s, i) => {
    const text = new Date(at_s * 1000).toISOString();
    return i === 0 || text.slice(11, 16) === "00:00" ? `${text.slice(11, 16)}\n${text.slice(5, 10)}` : text.slice(11, 16);
  });
}

const faint = (token) => {
  const hex = colour(token).replace("#", "");
  return `#${hex}38`;
};

function options({ spec, bands, width, height, log, unit, x_name, time, zoomed, pointed }) {
  const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 }, font: "12px system-ui, sans-serif" };
  return {
    width, height, pxAlign: false,
    cursor: { drag: { x: true, y: false, setScale: false }, points: { size: 6 } },
    legend: { show: false },
    scales: { x: { time }, y: { distr: log ? 3 : 1 } },
    tzDate: (at_s) => uPlot.tzDate(new Date(at_s * 1000), "Etc/UTC"),
    axes: [{ ...axis, size: 34, values: time ? hoursOf : (_, ticks) => ticks.map((v) => number(v)), label: x_name, labelSize: 18, labelFont: "12px system-ui, sans-serif" },
      { ...axis, size: 64, values: (_, ticks) => ticks.map((v) => (v === null ? "" : tick(v) + (unit || ""))) }],
    series: spec.map((one, i) => (i === 0 ? {} : {
      label: one.of.label, stroke: one.edge ? "transparent" : colour(one.of.token), width: one.edge ? 0 : 1.5, points: { show: false }, spanGaps: true,
    })),
    bands: bands.map((band) => ({ series: band.series, fill: faint(band.of.token) })),
    hooks: {
      setSelect: [(plot) => {
        const { left, width: w } = plot.select;
        if (w > 4) zoomed(Math.floor(plot.posToVal(left, "x")), Math.ceil(plot.posToVal(left + w, "x")));
        plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
      }],
      setCursor: [(plot) => pointed(plot.cursor.idx)],
    },
  };
}

export function Curve({ label, x, series, height = 240, log = false, unit = "", x_name = "step", time = false, zoom, legend = true, empty = "nothing was logged yet" }) {
  const place = useRef(null);
  const plot = useRef(null);
  const [box, width] = useWidth();
  const [at, setAt] = useState(null);
  const theme = useTheme();
  const plan = useMemo(() => plotted(x, series), [x, series]);
  const shape = `${width}|${height}|${log}|${time}|${unit}|${theme}|${series.map((one) => `${one.label}/${one.token}/${Boolean(one.least)}`).join()}`;
  const zoomTo = useRef(zoom);
  zoomTo.current = zoom;
  useEffect(() => {
    if (!width || !place.current) return undefined;
    const made = new uPlot(options({
      ...plan, width, height, log, unit, x_name, time, zoomed: (from, to) => zoomTo.current?.(from, to), pointed: (index) => setAt(index ?? null),
    }), plan.data, place.current);
    plot.current = made;
    return () => { made.destroy(); plot.current = null; };
  }, [shape]);
  useEffect(() => { plot.current?.setData(plan.data); }, [plan]);
  const pressed = (event) => {
    if (!zoom || !x.length) return;
    const [low, high] = [x[0], x[x.length - 1]];
    const quarter = Math.max(1, Math.floor((high - low) / 4));
    if (event.key === "+") zoom(low + quarter, high - quarter);
    else if (event.key === "-") zoom(Math.max(0, low - quarter), high + quarter);
    else if (event.key === "0") zoom(null, null);
  };
  const words = x.length ? `${label}: ${series.slice(0, 12).map((one) => summary(one)).join("; ")}; ${x_name} ${xWord(x[0], time)} to ${xWord(x[x.length - 1], time)}` : `${label}: ${empty}`;
  return html`<div ref=${box}>
    ${x.length === 0 ? html`<p class="notice">${label}: ${empty}.</p>` : html`
      <div class="chart" ref=${place} role="img" aria-label=${words} tabindex=${zoom ? 0 : null} onDblClick=${() => zoom?.(null, null)} onKeyDown=${pressed}></div>
      ${legend && series.length > 1 && html`<ul class="legend">${series.map((one) => html`<li><${Pill} word=${one.label} token=${one.token} square /></li>`)}</ul>`}
      <p class="tip">${at !== null && x[at] !== undefined ? told(x_name, xWord(x[at], time), series, at) : zoom ? "Drag to zoom, double-click to see all." : ""}</p>`}
  </div>`;
}

const known = (values) => values.filter((value) => value !== null && value !== undefined);

function summary(one) {
  const values = known(one.mean);
  if (!values.length) return `${one.label} has no values`;
  let least = Infinity;
  let greatest = -Infinity;
  for (const value of known(one.least || one.mean)) least = Math.min(least, value);
  for (const value of known(one.greatest || one.mean)) greatest = Math.max(greatest, value);
  return `${one.label} last ${number(values[values.length - 1])}, least ${number(least)}, greatest ${number(greatest)}`;
}

const xWord = (value, time) => (time ? moment(new Date(value * 1000).toISOString()) : number(value));

function told(x_name, where, series, at) {
  const parts = [];
  for (const one of series) {
    if (one.mean[at] === null || one.mean[at] === undefined) continue;
    const spread = one.least && one.least[at] !== one.greatest[at] ? ` (${number(one.least[at])} to ${number(one.greatest[at])})` : "";
    parts.push(`${one.label} ${number(one.mean[at])}${spread}`);
    if (parts.length === 12) { parts.push("…"); break; }
  }
  return `${x_name} ${where}: ${parts.join(" · ")}`;
}

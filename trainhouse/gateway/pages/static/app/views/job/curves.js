// The metrics of one job as panels that grow while it trains.
import { html, useEffect, useMemo, useRef, useState } from "../../kit.js";
import { url } from "../../api.js";
import { Curve } from "../../parts/curve.js";
import { Shown } from "../../parts/notice.js";
import { counterOf, Panels, X_KINDS } from "../../parts/panels.js";
import { plural } from "../../format.js";
import { beganOf, rangeOf, samplesFrom, smoothed, stepsOf, xOf } from "../../series.js";
import { SERIES } from "../../states.js";
import { unitOf } from "../../units.js";
import { useData } from "../../use.js";

const FRESH_MS = 2000;

export function Curves({ job, names, path, pulse, query, ready }) {
  const tick = useSlow(pulse);
  const counter = counterOf(names);
  return html`<${Panels} names=${names} query=${query} place="job" draw=${(name, view, { height, zoom }) => html`
    <${One} path=${path} ready=${ready} metric=${name} token=${SERIES[names.indexOf(name) % SERIES.length]} tick=${tick} view=${view} height=${height} zoom=${zoom}
      began_ms=${Date.parse(job.started_at || job.submitted_at) || null} counter=${view.x === "samples" ? counter : null} />`} />`;
}

function One({ path, ready, metric, token, tick, view, height, zoom, began_ms, counter }) {
  const range = { points: 1000, from_step: view.range[0], to_step: view.range[1] };
  const found = useData(ready ? url(`${path}/curves`, { metric: counter && counter !== metric ? [metric, counter] : metric, ...range }) : null);
  const first = useRef(tick);
  const began = useRef(null);
  useEffect(() => {
    if (tick !== first.current) found.reload();
    first.current = tick;
  }, [tick]);
  const curve = found.data?.items[0];
  const plan = useMemo(() => {
    if (!curve) return { x: [], series: [] };
    const counts = counter ? found.data.items[found.data.items.length - 1] : null;
    began.current = beganOf(curve, began_ms, began.current);
    const x = xOf(curve, view.x, { began_ms: began.current, samplesAt: counts ? samplesFrom(counts) : null });
    const mean = smoothed(curve.mean, view.smooth);
    return { x, series: [{ label: metric, token, mean, raw: view.smooth ? curve.mean : null, least: curve.least, greatest: curve.greatest }] };
  }, [curve, view.x, view.smooth]);
  const zoomed = (from, to) => zoom(...rangeOf(plan.x, from, to, view.range, () => stepsOf(plan.x, curve.step, from, to)));
  return html`<h3>${metric} ${curve && html`<span class="sub">${plural(curve.points, "point")}</span>`}</h3>
    <${Shown} of=${found} what=${metric}>${() => html`<${Curve} label=${metric} x=${plan.x} series=${plan.series} log=${view.log} zoom=${zoomed} height=${height} units=${unitOf(metric)}
      x_name=${X_KINDS.find(([name]) => name === view.x)[1]} time=${view.x === "time"} lasting=${view.x === "relative"} sync=${path} empty="no value in this range" />`}<//>`;
}

// Follows a counter, at most once in FRESH_MS: a job that logs every 10 ms must not be asked for as often.
function useSlow(value) {
  const [slow, setSlow] = useState(value);
  const timer = useRef(0);
  const newest = useRef(value);
  newest.current = value;
  useEffect(() => {
    if (value !== slow && !timer.current) timer.current = setTimeout(() => { timer.current = 0; setSlow(newest.current); }, FRESH_MS);
  }, [value]);
  useEffect(() => () => clearTimeout(timer.current), []);
  return slow;
}

// The metrics of all chosen runs as panels, a line a run over the same buckets of steps, with a legend that brings one forward.
import { html, useMemo, useRef } from "../../kit.js";
import { url } from "../../api.js";
import { Curve } from "../../parts/curve.js";
import { Shown } from "../../parts/notice.js";
import { counterOf, Panels, X_KINDS } from "../../parts/panels.js";
import { Pill } from "../../parts/bits.js";
import { plural } from "../../format.js";
import { aligned, beganOf, rangeOf, samplesFrom, smoothed, stepsOf, xOf } from "../../series.js";
import { unitOf } from "../../units.js";
import { useData } from "../../use.js";
import { tokenOf } from "../compare.js";

// Points of all runs together: what a chart has room for. A zoom asks for as many of its part.
const MOST_POINTS = 20000;
const pointsOf = (runs) => Math.max(50, Math.min(400, Math.floor(MOST_POINTS / Math.max(1, runs))));

export function Curves({ runs, chosen, metrics, names, at, setAt, query }) {
  const known = useMemo(() => metrics.map((one) => one.metric), [metrics]);
  const counter = counterOf(known);
  const counts = useMemo(() => Object.fromEntries(metrics.map((one) => [one.metric, one.jobs])), [metrics]);
  return html`<div><div class="row legend-runs" role="group" aria-label="Runs; choose one to see it alone">${runs.map((run, i) => html`<button key=${run.job_id} class="plain"
      aria-pressed=${at === run.job_id ? "true" : "false"} onClick=${() => setAt(at === run.job_id ? null : run.job_id)}><${Pill} word=${names[run.job_id]} token=${tokenOf(i)} square /></button>`)}</div>
    <${Panels} names=${known} query=${query} place="compare" draw=${(name, view, { height, zoom }) => html`
      <${One} runs=${runs} chosen=${chosen} metric=${name} jobs=${counts[name]} names=${names} at=${at} view=${view} height=${height} zoom=${zoom}
        counter=${view.x === "samples" ? counter : null} />`} /></div>`;
}

function One({ runs, chosen, metric, jobs, names, at, view, height, zoom, counter }) {
  const asked = (name) => url("/v1/compare/curves", { job: chosen, metric: name, points: pointsOf(chosen.length), bands: false, from_step: view.range[0], to_step: view.range[1] });
  const found = useData(asked(metric));
  const counts = useData(counter ? asked(counter) : null);
  const began_ms = useRef({});
  const plan = useMemo(() => {
    if (!found.data || (counter && !counts.data)) return null;
    const counted = Object.fromEntries((counter ? counts.data.items : []).filter((item) => item.step.length).map((item) => [item.job_id, samplesFrom(item)]));
    const began = Object.fromEntries(runs.map((run) => [run.job_id, Date.parse(run.started_at || run.submitted_at) || null]));
    // A run that does not count samples has no place on an axis of samples.
    const placed = found.data.items.map((item) => (!counter || counted[item.job_id] ? item : { ...item, step: [], time_ms: [], mean: [] }));
    const items = placed.map((item) => {
      began_ms.current[item.job_id] = beganOf(item, began[item.job_id], began_ms.current[item.job_id]);
      const x = xOf(item, view.x, { began_ms: began_ms.current[item.job_id], samplesAt: counted[item.job_id] });
      return { ...item, x, mean: smoothed(item.mean, view.smooth) };
    });
    const without = found.data.items.filter((item, i) => item.step.length && !items[i].step.length).length;
    const { x, columns } = aligned(items);
    return { x, items, without, series: items.map((item, i) => ({ label: names[item.job_id] || item.job_id, token: tokenOf(i), id: item.job_id, mean: columns[i] })) };
  }, [found.data, counts.data, counter, view.x, view.smooth, names]);
  const forward = useMemo(() => (plan ? plan.series.filter((one) => !at || one.id === at) : []), [plan, at]);
  const stepsBetween = (from, to) => {
    const ranges = plan.items.filter((item) => item.step.length).map((item) => stepsOf(item.x, item.step, from, to));
    return [Math.min(...ranges.map(([low]) => low)), Math.max(...ranges.map(([, high]) => high))];
  };
  const zoomed = (from, to) => zoom(...rangeOf(plan.x, from, to, view.range, () => stepsBetween(from, to)));
  return html`<h3>${metric} <span class="sub">${plural(jobs, "run")}</span></h3><${Shown} of=${counter && !counts.data ? counts : found} what=${metric}>${() => plan && html`
    <${Curve} label=${`${metric} of ${plural(chosen.length, "run")}`} x=${plan.x} series=${forward} height=${height} log=${view.log} legend=${false} zoom=${zoomed} units=${unitOf(metric)}
      x_name=${X_KINDS.find(([name]) => name === view.x)[1]} time=${view.x === "time"} lasting=${view.x === "relative"} sync="compare" />
    ${plan.without > 0 && html`<p class="sub">${plural(plan.without, "run")} without ${counter}: not on this axis.</p>`}`}<//>`;
}

// The metrics of all chosen runs as panels, a line a run over the same buckets of steps, with a legend that brings one forward.
import { html, useMemo } from "../../kit.js";
import { url } from "../../api.js";
import { Curve } from "../../parts/curve.js";
import { Shown } from "../../parts/notice.js";
import { Panels, X_KINDS } from "../../parts/panels.js";
import { Pill } from "../../parts/bits.js";
import { plural } from "../../format.js";
import { aligned, smoothed, stepsOf, xOf } from "../../series.js";
import { unitOf } from "../../units.js";
import { useData } from "../../use.js";
import { tokenOf } from "../compare.js";

export function Curves({ runs, chosen, metrics, names, at, setAt, query }) {
  const known = useMemo(() => metrics.map((one) => one.metric), [metrics]);
  const counts = useMemo(() => Object.fromEntries(metrics.map((one) => [one.metric, one.jobs])), [metrics]);
  return html`<div><div class="row legend-runs" role="group" aria-label="Runs; choose one to see it alone">${runs.map((run, i) => html`<button key=${run.job_id} class="plain"
      aria-pressed=${at === run.job_id ? "true" : "false"} onClick=${() => setAt(at === run.job_id ? null : run.job_id)}><${Pill} word=${names[run.job_id]} token=${tokenOf(i)} square /></button>`)}</div>
    <${Panels} names=${known} query=${query} place="compare" draw=${(name, view, { height, zoom }) => html`
      <${One} runs=${runs} chosen=${chosen} metric=${name} jobs=${counts[name]} names=${names} at=${at} view=${view} height=${height} zoom=${zoom} />`} /></div>`;
}

function One({ runs, chosen, metric, jobs, names, at, view, height, zoom }) {
  const found = useData(url("/v1/compare/curves", { job: chosen, metric, points: 400, from_step: view.range[0], to_step: view.range[1] }));
  const plan = useMemo(() => {
    if (!found.data) return null;
    const began = Object.fromEntries(runs.map((run) => [run.job_id, Date.parse(run.started_at || run.submitted_at) || null]));
    const items = found.data.items.map((item) => ({ ...item, x: xOf(item, view.x, { began_ms: began[item.job_id] }), mean: smoothed(item.mean, view.smooth) }));
    const { x, columns } = aligned(items);
    return { x, items, series: items.map((item, i) => ({ label: names[item.job_id] || item.job_id, token: tokenOf(i), id: item.job_id, mean: columns[i] })) };
  }, [found.data, view.x, view.smooth, names]);
  const forward = useMemo(() => (plan ? plan.series.filter((one) => !at || one.id === at) : []), [plan, at]);
  const zoomed = (from, to) => {
    if (from === null) return zoom(null, null);
    const ranges = plan.items.filter((item) => item.step.length).map((item) => stepsOf(item.x, item.step, from, to));
    return zoom(Math.min(...ranges.map(([low]) => low)), Math.max(...ranges.map(([, high]) => high)));
  };
  return html`<h3>${metric} <span class="sub">${plural(jobs, "run")}</span></h3><${Shown} of=${found} what=${metric}>${() => html`
    <${Curve} label=${`${metric} of ${plural(chosen.length, "run")}`} x=${plan.x} series=${forward} height=${height} log=${view.log} legend=${false} zoom=${zoomed} units=${unitOf(metric)}
      x_name=${X_KINDS.find(([name]) => name === view.x)[1]} time=${view.x === "time"} lasting=${view.x === "relative"} sync="compare" />`}<//>`;
}

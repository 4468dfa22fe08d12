// The metrics of all chosen runs as panels over the same buckets of steps: a line a run, or a mean and a band for each group of runs.
// A legend brings one forward.
import { html, useMemo, useRef } from "../../kit.js";
import { url } from "../../api.js";
import { Curve } from "../../parts/curve.js";
import { Shown } from "../../parts/notice.js";
import { counterOf, Panels, X_KINDS } from "../../parts/panels.js";
import { Pill } from "../../parts/bits.js";
import { plural } from "../../format.js";
import { ask } from "../../router.js";
import { aligned, beganOf, rangeOf, samplesFrom, smoothed, stepsOf, xOf } from "../../series.js";
import { unitOf } from "../../units.js";
import { useData } from "../../use.js";
import { banded, BANDS } from "./groups.js";

// Points of all runs together: what a chart has room for. A zoom asks for as many of its part.
const MOST_POINTS = 20000;
const BESIDE = ["group", "band", "brush", "sx", "sy", "sxlog", "sylog", "im", "iof"];
const pointsOf = (runs) => Math.max(50, Math.min(400, Math.floor(MOST_POINTS / Math.max(1, runs))));

// runs: those that are drawn, of all that are `chosen`.
export function Curves({ runs, chosen, metrics, names, tokenOf, at, setAt, query, groups, offered }) {
  const known = useMemo(() => metrics.map((one) => one.metric), [metrics]);
  const counter = counterOf(known);
  const counts = useMemo(() => Object.fromEntries(metrics.map((one) => [one.metric, one.jobs])), [metrics]);
  const band = BANDS.some(([name]) => name === query.get("band")) ? query.get("band") : BANDS[0][0];
  const lines = groups ? groups.map((group) => ({ id: group.id, label: group.label, token: group.token }))
    : runs.map((run) => ({ id: run.job_id, label: names[run.job_id], token: tokenOf(run) }));
  const alone = lines.some((line) => line.id === at) ? at : null;
  return html`<div><div class="row" style="margin-bottom:8px">
      <label class="inline">Group by<select value=${groups ? query.get("group") : ""} onChange=${(event) => ask({ group: event.target.value || null })}><option value="">nothing</option>
        ${offered.map((one) => html`<option>${one.path}</option>`)}</select></label>
      ${groups && html`<label class="inline">Band<select value=${band} onChange=${(event) => ask({ band: event.target.value === BANDS[0][0] ? null : event.target.value })}>
        ${BANDS.map(([name, word]) => html`<option value=${name}>${word}</option>`)}</select></label>`}</div>
    <div class="row legend-runs" role="group" aria-label=${`${groups ? "Groups of runs" : "Runs"}; choose one to see it alone`}>${lines.map((line) => html`<button key=${line.id} class="plain"
      aria-pressed=${alone === line.id ? "true" : "false"} onClick=${() => setAt(alone === line.id ? null : line.id)}><${Pill} word=${line.label} token=${line.token} square /></button>`)}</div>
    <${Panels} names=${known} query=${query} place="compare" beside=${BESIDE} draw=${(name, view, { height, zoom }) => html`
      <${One} runs=${runs} chosen=${chosen} metric=${name} jobs=${counts[name]} names=${names} tokenOf=${tokenOf} at=${alone} view=${view} height=${height} zoom=${zoom} groups=${groups} band=${band}
        counter=${view.x === "samples" ? counter : null} />`} /></div>`;
}

function One({ runs, chosen, metric, jobs, names, tokenOf, at, view, height, zoom, groups, band, counter }) {
  const asked = (name) => url("/v1/compare/curves", { job: chosen, metric: name, points: pointsOf(chosen.length), bands: false, from_step: view.range[0], to_step: view.range[1] });
  const found = useData(asked(metric));
  const counts = useData(counter ? asked(counter) : null);
  const began_ms = useRef({});
  const plan = useMemo(() => {
    if (!found.data || (counter && !counts.data)) return null;
    const counted = Object.fromEntries((counter ? counts.data.items : []).filter((item) => item.step.length).map((item) => [item.job_id, samplesFrom(item)]));
    const began = Object.fromEntries(runs.map((run) => [run.job_id, Date.parse(run.started_at || run.submitted_at) || null]));
    // A run that does not count samples has no place on an axis of samples.
    const drawn = found.data.items.filter((item) => item.job_id in began);
    const placed = drawn.map((item) => (!counter || counted[item.job_id] ? item : { ...item, step: [], time_ms: [], mean: [] }));
    const items = placed.map((item) => {
      began_ms.current[item.job_id] = beganOf(item, began[item.job_id], began_ms.current[item.job_id]);
      const x = xOf(item, view.x, { began_ms: began_ms.current[item.job_id], samplesAt: counted[item.job_id] });
      return { ...item, x, mean: smoothed(item.mean, view.smooth) };
    });
    const without = drawn.filter((item, i) => item.step.length && !items[i].step.length).length;
    const { x, columns } = aligned(items);
    const byRun = new Map(items.map((item, i) => [item.job_id, columns[i]]));
    const series = groups
      ? groups.map((group) => ({ label: group.label, token: group.token, id: group.id, ...banded(x, group.runs.filter((id) => byRun.has(id)).map((id) => byRun.get(id)), band) }))
        .filter((one) => one.mean.some((value) => value !== null))
      : runs.filter((run) => byRun.has(run.job_id)).map((run) => ({ label: names[run.job_id], token: tokenOf(run), id: run.job_id, mean: byRun.get(run.job_id) }));
    return { x, items, without, series };
  }, [found.data, counts.data, counter, view.x, view.smooth, names, runs, groups, band, tokenOf]);
  const forward = useMemo(() => (plan ? plan.series.filter((one) => !at || one.id === at) : []), [plan, at]);
  const stepsBetween = (from, to) => {
    const ranges = plan.items.filter((item) => item.step.length).map((item) => stepsOf(item.x, item.step, from, to));
    return [Math.min(...ranges.map(([low]) => low)), Math.max(...ranges.map(([, high]) => high))];
  };
  const zoomed = (from, to) => zoom(...rangeOf(plan.x, from, to, view.range, () => stepsBetween(from, to)));
  return html`<h3>${metric} <span class="sub">${plural(jobs, "run")}</span></h3><${Shown} of=${counter && !counts.data ? counts : found} what=${metric}>${() => plan && html`
    <${Curve} label=${`${metric} of ${plural(runs.length, "run")}${groups ? ` in ${plural(groups.length, "group")}` : ""}`} x=${plan.x} series=${forward} height=${height} log=${view.log} legend=${false} zoom=${zoomed} units=${unitOf(metric)}
      x_name=${X_KINDS.find(([name]) => name === view.x)[1]} time=${view.x === "time"} lasting=${view.x === "relative"} sync="compare" />
    ${plan.without > 0 && html`<p class="sub">${plural(plan.without, "run")} without ${counter}: not on this axis.</p>`}`}<//>`;
}

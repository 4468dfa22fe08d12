// The values of a metric in the order in which trials ended, with the best so far. Many trials are put together by the gateway: a row has its least and greatest.
import { html, useMemo } from "../../kit.js";
import { Card } from "../../parts/bits.js";
import { Curve } from "../../parts/curve.js";
import { Empty, Shown } from "../../parts/notice.js";
import { number, plural } from "../../format.js";
import { ask } from "../../router.js";
import { metricOf, pathOf } from "../../study_words.js";
import { usePart } from "./again.js";

export function History({ study, query }) {
  const metric = metricOf(study, query);
  const log = query.get("log") === "1";
  const found = usePart(pathOf(study.project, study.study, "/history", { metric }), study);
  const push = html`${study.metrics.length > 1 && html`<label class="inline">of<select aria-label="Metric" value=${metric} onChange=${(event) => ask({ metric: event.target.value })}>${study.metrics.map((name) => html`<option>${name}</option>`)}</select></label>`}
    <label class="inline"><input type="checkbox" checked=${log} onChange=${() => ask({ log: log ? null : 1 })} />log</label>`;
  return html`<${Card} title="History" push=${push}><${Shown} of=${found} what="the history" empty=${(d) => !d.ended}
    nothing=${`No trial has ended with a value of ${metric} yet.`}>${(d) => html`<${Drawn} found=${d} log=${log} />`}<//><//>`;
}

function Drawn({ found, log }) {
  const alone = found.width === 1;
  const series = useMemo(() => [
    alone ? { label: "value of a trial", token: "--c8", mean: found.mean, path: "points" } : { label: `mean of ${found.width} trials, with least and greatest`, token: "--c8", mean: found.mean, least: found.least, greatest: found.greatest },
    { label: "best so far", token: "--c2", mean: found.best, path: "steps" },
  ], [found]);
  const positive = found.least.every((value) => value > 0);
  return html`<p class="sub">${plural(found.ended, "trial")} with ${found.metric}, whose ${found.mode === "min" ? "least" : "greatest"} value is the best. The best so far: <b>${number(found.best[found.best.length - 1])}</b>.</p>
    <${Curve} label=${`${found.metric} of ${plural(found.ended, "trial")}`} x=${found.place} series=${series} x_name="trials ended" counted log=${log && positive} height=${280} />
    ${log && !positive && html`<${Empty}>Not all values are above 0, so the axis is not logarithmic.<//>`}`;
}

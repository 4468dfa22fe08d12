// Two metrics of a study against each other: the trials that no other one beats in each, and the others.
import { html, useMemo, useState } from "../../kit.js";
import { Card, Later, Pill } from "../../parts/bits.js";
import { Shown } from "../../parts/notice.js";
import { number, plural } from "../../format.js";
import { ask } from "../../router.js";
import { Plot } from "../compare/scatter.js";
import { useRuns, useSample } from "./sample.js";

export function Front({ study, query }) {
  const found = useSample(study);
  const [x, y] = axesOf(study, query);
  const choose = (label, name, value) => html`<label class="inline">${label}<select aria-label=${`${label} of the front`} value=${value} onChange=${(event) => ask({ [name]: event.target.value })}>
    ${study.metrics.map((one) => html`<option>${one}</option>`)}</select></label>`;
  const push = study.metrics.length > 2 && html`${choose("x", "fx", x)}${choose("y", "fy", y)}`;
  return html`<${Card} title="Pareto front" push=${push}><${Shown} of=${found} what="trials" empty=${(d) => !d.items.length}
    nothing="No trial has ended with values yet.">${(d) => html`<${Later}>${() => html`<${Drawn} study=${study} found=${d} x=${x} y=${y} />`}<//>`}<//><//>`;
}

function axesOf(study, query) {
  const known = (name, fallback) => (study.metrics.includes(query.get(name)) ? query.get(name) : fallback);
  return [known("fx", study.metrics[0]), known("fy", study.metrics[1])];
}

function Drawn({ study, found, x, y }) {
  const [at, setAt] = useState(null);
  const { runs, names, metrics } = useRuns(study, found);
  const front = useMemo(() => new Set(runs.filter((run) => run.best).map((run) => run.job_id)), [runs]);
  const of = (name) => ({ ...metrics.find((one) => one.title === name), full: `${name} (${study.modes[study.metrics.indexOf(name)]})`, of: (run) => run.values[name] ?? undefined });
  const order = useMemo(() => [...runs].sort((a, b) => front.has(a.job_id) - front.has(b.job_id)), [runs]);
  return html`<p class="sub">${plural(front.size, "trial")} of ${number(found.total)} that no other one beats in each metric.</p>
    <${Plot} runs=${order} across=${of(x)} up=${of(y)} logs=${[false, false]} kept=${front} names=${names} tokenOf=${(run) => (front.has(run.job_id) ? "--c2" : "--s-done")} at=${at} setAt=${setAt} noun="trial" />
    <ul class="legend"><li><${Pill} word="on the front" token="--c2" /></li><li><${Pill} word="others" token="--s-done" /></li></ul>`;
}

// Up to a hundred runs beside each other: which, their curves, where their configs differ, and all results as parallel axes.
import { html, useMemo, useState } from "../kit.js";
import { url } from "../api.js";
import { Card, JobState, Later, useTitle } from "../parts/bits.js";
import { Empty, Shown } from "../parts/notice.js";
import { Table } from "../parts/table.js";
import { ask } from "../router.js";
import { hours, number, plural, titleOf } from "../format.js";
import { SERIES } from "../states.js";
import { useData } from "../use.js";
import { Curves } from "./compare/curves.js";
import { Parallel } from "./compare/parallel.js";
import { Choose } from "./compare/choose.js";
import { shown } from "./job/config.js";

export const tokenOf = (index) => SERIES[index % SERIES.length];

export default function Compare({ query }) {
  useTitle("Compare");
  const chosen = query.getAll("job");
  return html`<div class="title"><h1>Compare</h1><span class="sub">${chosen.length ? plural(chosen.length, "run") : ""}</span></div>
    <${Choose} chosen=${chosen} />
    ${chosen.length ? html`<${Runs} chosen=${chosen} query=${query} />`
      : html`<${Empty}>Choose runs above, or mark them on the <a href="/jobs">list of jobs</a>: up to a hundred are set beside each other here.<//>`}`;
}

function Runs({ chosen, query }) {
  const found = useData(url("/v1/compare", { job: chosen }));
  const [at, setAt] = useState(null);
  return html`<${Shown} of=${found} what="the runs">${(d) => {
    const names = namesOf(d.items);
    const metric = d.metrics[0]?.metric;
    return html`<div class="grid">
      ${metric ? html`<${Curves} runs=${d.items} chosen=${chosen} metrics=${d.metrics} names=${names} at=${at} setAt=${setAt} query=${query} />`
        : html`<${Card} title="Metrics"><${Empty}>None of these runs has logged a metric. Training code logs one by <code>session.log(loss=…)</code>.<//><//>`}
      <${Card} title="Parallel coordinates"><${Later}>${() => html`<${Parallel} runs=${d.items} config=${d.config} metrics=${d.metrics} names=${names} at=${at} setAt=${setAt} />`}<//><//>
      <${Card} title="Where the configs differ"><${Differences} runs=${d.items} config=${d.config} names=${names} /><//>
      <${Card} title="Results"><${Later}>${() => html`<${Table} caption="Results of the runs" rows=${d.items} keyOf=${(run) => run.job_id} columns=${results(metric, chosen, names)} />`}<//><//>
    </div>`;
  }}<//>`;
}

// Names, and ids behind those that several runs share.
export function namesOf(runs) {
  const count = {};
  for (const run of runs) count[titleOf(run)] = (count[titleOf(run)] || 0) + 1;
  return Object.fromEntries(runs.map((run) => [run.job_id, count[titleOf(run)] > 1 ? `${titleOf(run)} ${run.job_id.slice(-6)}` : titleOf(run)]));
}

const results = (metric, chosen, names) => [
  ["Run", (run) => html`<a href=${`/jobs/${run.job_id}`}>${names[run.job_id]}</a>`], ["State", (run) => html`<${JobState} state=${run.state} />`],
  ["Steps", (run) => number(run.step), "num"],
  ...(metric ? [[`${metric}, last`, (run) => number(run.metrics[metric]?.last), "num"], ["least", (run) => number(run.metrics[metric]?.least), "num"],
    ["greatest", (run) => number(run.metrics[metric]?.greatest), "num"]] : []),
  ["Ranks", (run) => number(run.world_size), "num"], ["Restarts", (run) => number(run.restarts), "num"], ["Steps/s", (run) => number(run.steps_per_s, 3), "num"],
  ["Device time", (run) => hours(run.gpu_seconds), "num"], ["In kept steps", (run) => hours(run.stepping_gpu_seconds), "num"],
  ["Action", (run) => html`<button aria-label=${`Remove ${names[run.job_id]}`} onClick=${() => ask({ job: chosen.filter((id) => id !== run.job_id) })}>Remove</button>`],
];

function Differences({ runs, config, names }) {
  const [word, setWord] = useState("");
  const rows = useMemo(() => config.filter((one) => one.path.toLowerCase().includes(word.toLowerCase())), [config, word]);
  if (runs.length < 2) return html`<${Empty}>One run differs from nothing; choose another one.<//>`;
  if (!config.length) return html`<${Empty}>The configs of these runs are the same, as far as they are known.<//>`;
  return html`<label class="field" style="max-width:24rem;margin-bottom:10px">Filter fields<input data-search type="search" value=${word} onInput=${(e) => setWord(e.target.value)} /></label>
    <${Table} caption="Fields in which the configs differ" rows=${rows} keyOf=${(one) => one.path} columns=${[
      ["Field", (one) => html`<code>${one.path}</code>`],
      ...runs.map((run) => [names[run.job_id], (one) => (run.job_id in one.values ? html`<code>${shown(one.values[run.job_id])}</code>` : html`<span class="sub">not set</span>`)])]} />`;
}

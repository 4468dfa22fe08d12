// Up to a hundred runs beside each other: which, their metrics (each run's, or a mean and band for each group of runs), all values as parallel
// axes and as points, what goes along with a metric, and where configs, environments and code differ.
import { html, useCallback, useMemo, useState } from "../kit.js";
import { url } from "../api.js";
import { Card, JobState, Later, useTitle } from "../parts/bits.js";
import { Empty, Shown } from "../parts/notice.js";
import { Table } from "../parts/table.js";
import { ask } from "../router.js";
import { hours, number, plural } from "../format.js";
import { SERIES } from "../states.js";
import { useData } from "../use.js";
import { axesOf, brushesOf, dimensionsOf, kept } from "./compare/axes.js";
import { Choose, MOST } from "./compare/choose.js";
import { Curves } from "./compare/curves.js";
import { Code, Environment } from "./compare/environment.js";
import { groupable, groupsOf } from "./compare/groups.js";
import { Importance } from "./compare/importance.js";
import { Parallel } from "./compare/parallel.js";
import { Scatter } from "./compare/scatter.js";
import { shown } from "./job/config.js";

const MOST_AXES = 9;

export default function Compare({ query }) {
  useTitle("Compare");
  const named = [...new Set(query.getAll("job"))];
  const chosen = named.slice(0, MOST);
  return html`<div class="title"><h1>Compare</h1><span class="sub">${chosen.length ? plural(chosen.length, "run") : ""}</span></div>
    <${Choose} chosen=${chosen} />
    ${named.length > MOST && html`<p class="notice warn" style="margin-bottom:16px" role="status">The address names ${number(named.length)} runs; the first ${MOST} are compared.</p>`}
    ${chosen.length ? html`<${Runs} chosen=${chosen} query=${query} />`
      : html`<${Empty}>Choose runs above, or mark them on the <a href="/jobs">list of jobs</a>: up to a hundred are set beside each other here.<//>`}`;
}

function Runs({ chosen, query }) {
  const found = useData(url("/v1/compare", { job: chosen }));
  return html`<${Shown} of=${found} what="the runs">${(d) => html`<${Found} found=${d} chosen=${chosen} query=${query} />`}<//>`;
}

function Found({ found, chosen, query }) {
  // What is pointed at changes at every move: curves are drawn anew for what is chosen alone.
  const [at, setAt] = useState(null);
  const [over, setOver] = useState(null);
  const { items: runs, metrics, config, parameters, names } = found;
  const by = query.get("group");
  const groups = useMemo(() => {
    const parameter = parameters.find((one) => one.path === by);
    return parameter ? groupsOf(runs, parameter) : null;
  }, [found, by]);
  const tokens = useMemo(() => {
    const own = new Map(runs.map((run, i) => [run.job_id, SERIES[i % SERIES.length]]));
    for (const group of groups || []) for (const id of group.runs) own.set(id, group.token);
    return own;
  }, [found, groups]);
  const tokenOf = useCallback((run) => tokens.get(run.job_id), [tokens]);
  const dimensions = useMemo(() => dimensionsOf(runs, config, parameters, metrics), [found]);
  const axes = useMemo(() => axesOf(runs, dimensions, MOST_AXES), [dimensions]);
  const brushed = query.getAll("brush").join();
  const brushes = useMemo(() => brushesOf(query), [brushed]);
  const left = useMemo(() => kept(runs, axes, brushes), [axes, brushes]);
  const own = useMemo(() => runs.filter((run) => left.has(run.job_id)), [found, left]);
  const metric = metrics[0]?.metric;
  const shared = { runs, names, tokenOf, at: over || at, setAt: setOver, kept: left };
  return html`<div class="grid">
    ${metric ? html`<${Curves} runs=${own} chosen=${chosen} metrics=${metrics} names=${names} tokenOf=${tokenOf} at=${at} setAt=${setAt} query=${query} groups=${groups} offered=${groupable(parameters, runs)} />`
      : html`<${Card} title="Metrics"><${Empty}>None of these runs has logged a metric. Training code logs one by <code>session.log(loss=…)</code>.<//><//>`}
    <${Card} title="Parallel coordinates"><${Later}>${() => html`<${Parallel} ...${shared} axes=${axes} brushes=${brushes} />`}<//><//>
    <${Scatter} ...${shared} dimensions=${dimensions} query=${query} />
    <${Importance} chosen=${chosen} metrics=${metrics} query=${query} />
    <${Card} title="Results"><${Later}>${() => html`<${Table} caption="Results of the runs" rows=${own} keyOf=${(run) => run.job_id} columns=${results(metric, chosen, names)} />`}<//><//>
    <${Card} title="Where the configs differ"><${Differences} runs=${runs} config=${config} names=${names} /><//>
    <${Environment} runs=${runs} chosen=${chosen} names=${names} />
    <${Code} runs=${runs} names=${names} query=${query} />
  </div>`;
}

const results = (metric, chosen, names) => [
  ["Run", (run) => html`<a href=${`/jobs/${encodeURIComponent(run.job_id)}`}>${names[run.job_id]}</a>`, "wide"], ["State", (run) => html`<${JobState} state=${run.state} />`],
  ["Steps", (run) => number(run.step), "num"],
  ...(metric ? [[`${metric}, last`, (run) => number(run.metrics[metric]?.last), "num"], ["lowest", (run) => number(run.metrics[metric]?.least), "num"],
    ["highest", (run) => number(run.metrics[metric]?.greatest), "num"]] : []),
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

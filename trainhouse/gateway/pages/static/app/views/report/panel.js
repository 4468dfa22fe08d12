// A live panel of a report: curves of runs, a table of runs, or a chart of an answer in SQL. It asks with the rights of its reader, draws once
// it is near what is looked at (or is to be printed), and asks again on a clock.
import { html, useMemo } from "../../kit.js";
import { call, url } from "../../api.js";
import { JobState, Pill } from "../../parts/bits.js";
import { Curve } from "../../parts/curve.js";
import { Empty, Failed, Loading, Shown } from "../../parts/notice.js";
import { X_KINDS } from "../../parts/panels.js";
import { Table } from "../../parts/table.js";
import { ago, moment, number, plural, span, titleOf } from "../../format.js";
import { aligned, beganOf, smoothed, xOf } from "../../series.js";
import { SERIES } from "../../states.js";
import { unitOf } from "../../units.js";
import { useAsked, useClock, useData, useNear } from "../../use.js";
import { Bars, Lines } from "../sql/answer.js";
import { axes } from "../sql/axes.js";
import { panelOf } from "./spec.js";

const EVERY_MS = 15000;
const SQL_EVERY_MS = 60000;
const MOST_LOOKED_AT = 1000;
const MOST_ROWS = 200;
const KINDS = { curves: Curves, runs: Runs, sql: Sql };

export function Panel({ text, project, all }) {
  const [box, near] = useNear();
  const found = useMemo(() => {
    try { return { spec: panelOf(text) }; } catch (error) { return { error }; }
  }, [text]);
  if (found.error) return html`<div ref=${box} class="report-panel"><p class="notice bad">This panel cannot be shown: ${found.error.message}.</p><pre class="text" tabindex="0">${text}</pre></div>`;
  const title = found.spec.title || (found.spec.type === "runs" ? "Runs" : "");
  return html`<div class="card report-panel" ref=${box}>${title && html`<h3>${title}</h3>`}
    ${near || all ? html`<${KINDS[found.spec.type]} spec=${found.spec} project=${project} />` : html`<div class="chart" data-waits></div>`}</div>`;
}

// The runs of a panel: {data: [job …], error, reload}. Those named by id come in that order; of a filter the newest come first.
function useRuns(spec, project) {
  const { name_contains: part, ...filter } = spec.filter;
  const path = spec.jobs ? url("/v1/compare", { job: spec.jobs }) : url("/v1/training-jobs", { project, ...filter, limit: part ? MOST_LOOKED_AT : spec.limit });
  const found = useData(path, { every_ms: EVERY_MS });
  const jobs = useMemo(() => {
    const items = found.data?.items;
    if (!items) return null;
    return (part ? items.filter((job) => titleOf(job).toLowerCase().includes(part.toLowerCase())) : items).slice(0, spec.limit);
  }, [found.data, part]);
  return { data: spec.jobs ? found.data?.items || null : jobs, error: found.error, reload: found.reload };
}

const NO_RUNS = "No run fits this panel yet.";

function Curves({ spec, project }) {
  const runs = useRuns(spec, project);
  const ids = (runs.data || []).map((job) => job.job_id).join(" ");
  const names = useMemo(() => namesOf(runs.data || []), [ids]);
  return html`<${Shown} of=${runs} what="the runs" empty=${(d) => !d.length} nothing=${NO_RUNS}>${() => html`
    ${spec.metrics.map((metric) => html`<${Metric} key=${metric} metric=${metric} ids=${ids} runs=${runs.data} names=${names} spec=${spec} />`)}
    <ul class="legend">${runs.data.map((job, i) => html`<li key=${job.job_id}><a href=${`/jobs/${encodeURIComponent(job.job_id)}`}><${Pill} word=${names[job.job_id]} token=${SERIES[i % SERIES.length]} square /></a></li>`)}</ul>`}<//>`;
}

function Metric({ metric, ids, runs, names, spec }) {
  const found = useData(url("/v1/compare/curves", { job: ids.split(" "), metric, points: 400, bands: false }), { every_ms: EVERY_MS });
  const plan = useMemo(() => {
    if (!found.data) return null;
    const began = Object.fromEntries(runs.map((run) => [run.job_id, Date.parse(run.started_at || run.submitted_at) || null]));
    const items = found.data.items.map((item) => ({ ...item, x: xOf(item, spec.x, { began_ms: beganOf(item, began[item.job_id]) }), mean: smoothed(item.mean, spec.smooth) }));
    const { x, columns } = aligned(items);
    return { x, series: items.map((item, i) => ({ label: names[item.job_id] || item.job_id, token: SERIES[i % SERIES.length], mean: columns[i] })) };
  }, [found.data, spec, names]);
  return html`<h4>${metric}</h4><${Shown} of=${found} what=${metric}>${() => html`<${Curve} label=${`${metric} of ${plural(runs.length, "run")}`} x=${plan.x} series=${plan.series} height=${spec.height}
    log=${spec.log} legend=${false} units=${unitOf(metric)} x_name=${X_KINDS.find(([name]) => name === spec.x)[1]} time=${spec.x === "time"} lasting=${spec.x === "relative"} />`}<//>`;
}

// Names that are the same for several runs say the id too. Pure.
export function namesOf(jobs) {
  const counts = new Map();
  for (const job of jobs) counts.set(titleOf(job), (counts.get(titleOf(job)) || 0) + 1);
  return Object.fromEntries(jobs.map((job) => [job.job_id, counts.get(titleOf(job)) > 1 ? `${titleOf(job)} ${job.job_id.slice(-6)}` : titleOf(job)]));
}

const CELLS = {
  run: ["Run", (job, { names }) => html`<a href=${`/jobs/${encodeURIComponent(job.job_id)}`}>${names[job.job_id]}</a>`, "wide"],
  state: ["State", (job) => html`<${JobState} state=${job.state} />`], user: ["User", (job) => job.user], team: ["Team", (job) => job.team],
  pool: ["Pool", (job) => job.pool], project: ["Project", (job) => job.project], step: ["Step", (job) => number(job.step), "num"], loss: ["Loss", (job) => number(job.loss), "num"],
  attempt: ["Attempt", (job) => number(job.attempt), "num"], took: ["Took", (job) => span(job.elapsed_s), "num"],
  submitted: ["Submitted", (job, { now_ms }) => html`<span title=${moment(job.submitted_at)}>${ago(job.submitted_at, now_ms)}</span>`, "short"],
  reason: ["Reason", (job) => (job.reason || "").split("\n")[0], "wide"],
};

function Runs({ spec, project }) {
  const runs = useRuns(spec, project);
  const now_ms = useClock(10000);
  const ids = (runs.data || []).map((job) => job.job_id);
  const found = useData(spec.metrics.length && ids.length && !spec.jobs ? url("/v1/compare", { job: ids }) : null, { every_ms: EVERY_MS });
  const metrics = useMemo(() => Object.fromEntries(((spec.jobs ? runs.data : found.data?.items) || []).map((run) => [run.job_id, run.metrics || {}])), [found.data, runs.data]);
  const more = { now_ms, names: namesOf(runs.data || []) };
  const columns = [...spec.columns.map((name) => [CELLS[name][0], (job) => CELLS[name][1](job, more), CELLS[name][2]]),
    ...spec.metrics.map((name) => [name, (job) => { const last = metrics[job.job_id]?.[name]?.last; return last === undefined ? "–" : unitOf(name).word(last); }, "num"])];
  return html`<${Shown} of=${runs} what="the runs" empty=${(d) => !d.length} nothing=${NO_RUNS}>${(jobs) => html`
    <${Table} caption=${spec.title || "Runs"} rows=${jobs} keyOf=${(job) => job.job_id} columns=${columns} />`}<//>`;
}

// ClickHouse's JSONCompact as names and rows.
const asked = async (query, signal) => {
  const answer = await call("/v1/query", { method: "POST", body: { query, format: "JSONCompact" }, signal });
  return { names: answer.meta.map((column) => column.name), rows: answer.data };
};

function Sql({ spec }) {
  const found = useAsked(spec.query, asked, { every_ms: SQL_EVERY_MS });
  if (!found.data) return found.error ? html`<${Failed} error=${found.error} again=${found.reload} />` : html`<${Loading} what="the answer" />`;
  if (!found.data.rows.length) return html`<${Empty}>The query has no rows.<//>`;
  return html`<${Answer} answer=${found.data} spec=${spec} />`;
}

function Answer({ answer, spec }) {
  const kinds = useMemo(() => axes(answer), [answer]);
  if (spec.chart === "table") {
    const rows = answer.rows.slice(0, MOST_ROWS);
    return html`<${Table} caption=${spec.title || "Answer"} rows=${rows} columns=${answer.names.map((name, i) => [name, (row) => cell(row[i]), kinds.kinds[i] === "number" ? "num" : ""])} />
      ${answer.rows.length > rows.length && html`<p class="sub">The first ${rows.length} of ${plural(answer.rows.length, "row")}.</p>`}`;
  }
  const named = [...(spec.by === null ? [] : [spec.by]), ...(spec.of || [])];
  const unknown = named.find((name) => !answer.names.includes(name));
  if (unknown) return html`<p class="notice bad">This panel cannot be shown: the answer has no column ${unknown}; it has ${answer.names.join(", ")}.</p>`;
  const by = spec.by === null ? kinds.first : answer.names.indexOf(spec.by);
  const of = spec.of ? spec.of.map((name) => answer.names.indexOf(name)) : kinds.values.filter((i) => i !== by).slice(0, 4);
  if (!of.length) return html`<p class="notice bad">This panel cannot be shown: the answer has no column of numbers to draw.</p>`;
  return spec.chart === "bars" ? html`<${Bars} answer=${answer} by=${by} of=${of[0]} />` : html`<${Lines} answer=${answer} by=${by} of=${of} time=${kinds.kinds[by] === "time"} />`;
}

const cell = (value) => (value === null || value === undefined ? "NULL" : typeof value === "object" ? JSON.stringify(value) : typeof value === "number" ? number(value, 6) : String(value));

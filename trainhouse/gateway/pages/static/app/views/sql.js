// Any question in SQL, read-only, with a table and a chart of the answer.
import { html, useEffect, useMemo, useRef, useState } from "../kit.js";
import { call } from "../api.js";
import { Card, useTitle } from "../parts/bits.js";
import { Curve } from "../parts/curve.js";
import { Empty, Failed } from "../parts/notice.js";
import { Rows } from "../parts/rows.js";
import { ask } from "../router.js";
import { number, plural, span } from "../format.js";
import { SERIES } from "../states.js";

const FIRST = "SELECT state, count() AS jobs FROM job_status GROUP BY state ORDER BY jobs DESC";
const EXAMPLES = [
  ["Jobs by state", FIRST],
  ["Attempts that began to run, by hour", "SELECT toStartOfHour(began_at) AS hour, count() AS began FROM job_spans WHERE state = 'RUNNING' GROUP BY hour ORDER BY hour"],
  ["A loss curve", "SELECT step, avg(value) AS loss FROM step_metrics WHERE metric = 'loss' AND rank = 0 GROUP BY step ORDER BY step LIMIT 2000"],
  ["Where device time went", "SELECT category, round(sum(gpu_seconds) / 3600, 2) AS gpu_hours FROM gpu_seconds GROUP BY category ORDER BY gpu_hours DESC"],
  ["Longest waits", "SELECT job_id, team, wait_s, reason FROM queue_waits ORDER BY wait_s DESC LIMIT 50"],
];
const MOST_POINTS = 4000;

export default function Sql({ query }) {
  useTitle("SQL");
  const [text, setText] = useState(query.get("q") || FIRST);
  const [state, setState] = useState({ answer: null, error: null, busy: false, took_ms: 0 });
  const running = useRef(null);
  const run = async () => {
    running.current?.abort();
    running.current = new AbortController();
    setState((before) => ({ ...before, busy: true, error: null }));
    ask({ q: text });
    const began = performance.now();
    try {
      const answer = await call("/v1/query", { method: "POST", body: { query: text, format: "JSONCompact" }, signal: running.current.signal });
      setState({ answer: shaped(answer), error: null, busy: false, took_ms: performance.now() - began });
    } catch (error) {
      if (error.name !== "AbortError") setState((before) => ({ ...before, error, busy: false }));
    }
  };
  useEffect(() => { if (query.get("q")) run(); return () => running.current?.abort(); }, []);
  return html`
    <div class="title"><h1>SQL</h1><span class="sub">read-only, with limits of time, rows and memory</span></div>
    <${Card} title="Query" push=${html`<label class="inline">Example<select value="" onChange=${(e) => { if (e.target.value) setText(e.target.value); e.target.value = ""; }}>
        <option value="">choose …</option>${EXAMPLES.map(([name, sql]) => html`<option value=${sql}>${name}</option>`)}</select></label>`}>
      <label><span class="hidden">SQL</span><textarea data-search rows="6" spellcheck="false" value=${text} onInput=${(e) => setText(e.target.value)}
        onKeyDown=${(e) => { if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) { e.preventDefault(); run(); } }}></textarea></label>
      <div class="row" style="margin-top:8px"><button class="main" onClick=${run} disabled=${state.busy}>${state.busy ? "Asking …" : "Run"}</button>
        <span class="sub"><kbd>Ctrl</kbd> <kbd>Enter</kbd> runs it</span>
        ${state.answer && !state.busy && html`<span class="sub" role="status">${plural(state.answer.rows.length, "row")} in ${span(state.took_ms / 1000)}</span>`}</div><//>
    <div style="margin-top:16px">${state.error ? html`<${Failed} error=${state.error} again=${run} />` : state.answer ? html`<${Answer} answer=${state.answer} />` : ""}</div>`;
}

// ClickHouse's JSONCompact to {names, rows}. Pure.
export const shaped = (answer) => ({ names: answer.meta.map((column) => column.name), rows: answer.data });

function Answer({ answer }) {
  if (!answer.rows.length) return html`<${Empty}>The query has no rows.<//>`;
  return html`<div class="grid"><${Chart} answer=${answer} /><${Card} title="Rows"><${Grid} answer=${answer} /><//></div>`;
}

const text = (value) => (value === null || value === undefined ? "NULL" : typeof value === "object" ? JSON.stringify(value) : String(value));

// Only the rows in sight are in the document: an answer may have 100,000.
function Grid({ answer }) {
  const columns = { gridTemplateColumns: `repeat(${answer.names.length}, minmax(9rem, 1fr))`, minWidth: `${answer.names.length * 9.5}rem` };
  return html`<div class="scroll-x"><div class="sql-row sql-head" style=${columns}>${answer.names.map((name) => html`<span class="clip">${name}</span>`)}</div>
    <${Rows} rows=${answer.rows} height_px=${28} look="sql-body" rowLook="sql-line" inner label="Rows of the answer"
      draw=${(row) => html`<div class="sql-row" style=${columns}>${row.map((value) => html`<span class="clip" title=${text(value)}>${text(value)}</span>`)}</div>`} /></div>`;
}

const isNumber = (value) => typeof value === "number" || (typeof value === "string" && value !== "" && Number.isFinite(Number(value)));
const isTime = (value) => typeof value === "string" && /^\d{4}-\d\d-\d\d[T ]\d\d:\d\d/.test(value);

// Columns that can be an axis: numbers and times; a column of words makes bars. Pure.
export function axes(answer) {
  const kinds = answer.names.map((_, i) => {
    const values = answer.rows.slice(0, 200).map((row) => row[i]).filter((value) => value !== null && value !== undefined);
    if (!values.length) return "none";
    return values.every(isNumber) ? "number" : values.every(isTime) ? "time" : "word";
  });
  return { kinds, first: kinds.findIndex((kind) => kind !== "none"), values: kinds.map((kind, i) => (kind === "number" ? i : -1)).filter((i) => i >= 0) };
}

function Chart({ answer }) {
  const found = useMemo(() => axes(answer), [answer]);
  const [by, setBy] = useState(found.first);
  const columns = found.values.filter((i) => i !== by);
  const [chosen, setChosen] = useState(null);
  const shown = chosen !== null && columns.includes(chosen) ? [chosen] : columns.slice(0, 4);
  if (!columns.length) return null;
  const choice = (label, value, set, options) => html`<label class="inline">${label}<select value=${value} onChange=${(e) => set(e.target.value === "" ? null : Number(e.target.value))}>${options}</select></label>`;
  return html`<${Card} title="Chart" push=${html`${choice("by", by, setBy, answer.names.map((name, i) => html`<option value=${i}>${name}</option>`))}
      ${choice("of", chosen ?? "", setChosen, html`<option value="">all</option>${columns.map((i) => html`<option value=${i}>${answer.names[i]}</option>`)}`)}`}>
    ${found.kinds[by] === "word" ? html`<${Bars} answer=${answer} by=${by} of=${shown[0]} />` : html`<${Lines} answer=${answer} by=${by} of=${shown} time=${found.kinds[by] === "time"} />`}<//>`;
}

export function Bars({ answer, by, of }) {
  const rows = answer.rows.slice(0, 30);
  const most = Math.max(...rows.map((row) => Math.abs(Number(row[of]) || 0)), 1e-300);
  return html`<div class="bars" role="list" aria-label=${`${answer.names[of]} by ${answer.names[by]}`}>${rows.map((row) => html`<div class="one" role="listitem">
    <span class="clip" title=${text(row[by])}>${text(row[by])}</span><div class="stack"><span style=${{ width: `${100 * Math.abs(Number(row[of]) || 0) / most}%`, background: "var(--c1)" }}></span></div>
    <span class="num">${number(row[of])}</span></div>`)}</div>${answer.rows.length > 30 && html`<p class="sub">The first 30 of ${number(answer.rows.length)} rows.</p>`}`;
}

export function Lines({ answer, by, of, time }) {
  const plan = useMemo(() => {
    const every = Math.ceil(answer.rows.length / MOST_POINTS);
    const at = (row) => (time ? Date.parse(row[by].replace(" ", "T").replace(/(:\d\d(\.\d+)?)$/, "$1Z")) / 1000 : Number(row[by]));
    const rows = answer.rows.filter((row, i) => i % every === 0 && row[by] !== null).map((row) => [at(row), row]).sort((a, b) => a[0] - b[0]);
    return { every, x: rows.map(([x]) => x), series: of.map((i, n) => ({ label: answer.names[i], token: SERIES[n % SERIES.length], mean: rows.map(([, row]) => (row[i] === null ? null : Number(row[i]))) })) };
  }, [answer, by, of.join(), time]);
  return html`<${Curve} label=${of.map((i) => answer.names[i]).join(", ")} x=${plan.x} series=${plan.series} x_name=${answer.names[by]} time=${time} />
    ${plan.every > 1 && html`<p class="sub">Every ${plan.every}th row is drawn; min and max in the query keep extremes.</p>`}`;
}

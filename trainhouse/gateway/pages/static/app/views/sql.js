// Any question in SQL, read-only: an editor that knows the tables, what was asked before, a table and a chart of the answer.
import { html, useEffect, useRef, useState } from "../kit.js";
import { call, send } from "../api.js";
import { Card, useTitle } from "../parts/bits.js";
import { Menu } from "../parts/menu.js";
import { Failed } from "../parts/notice.js";
import { ask } from "../router.js";
import { ago, number, plural, span } from "../format.js";
import { useAsked } from "../use.js";
import { Answer } from "./sql/answer.js";
import { Editor } from "./sql/editor.js";
import { forget, keep, ran } from "./sql/history.js";
import { Schema, SCHEMA_QUERY } from "./sql/schema.js";
import { readRows } from "./sql/streamed.js";

const FIRST = "SELECT state, count() AS jobs FROM job_status GROUP BY state ORDER BY jobs DESC";
const EXAMPLES = [
  ["Jobs by state", FIRST],
  ["Attempts that began to run, by hour", "SELECT toStartOfHour(began_at) AS hour, count() AS began FROM job_spans WHERE state = 'RUNNING' GROUP BY hour ORDER BY hour"],
  ["A loss curve", "SELECT step, avg(value) AS loss FROM step_metrics WHERE metric = 'loss' AND rank = 0 GROUP BY step ORDER BY step LIMIT 2000"],
  ["Where device time went", "SELECT category, round(sum(gpu_seconds) / 3600, 2) AS gpu_hours FROM gpu_seconds GROUP BY category ORDER BY gpu_hours DESC"],
  ["Longest waits", "SELECT job_id, team, wait_s, reason FROM queue_waits ORDER BY wait_s DESC LIMIT 50"],
];

const tablesOf = async (path, signal) => (await call(path, { method: "POST", body: { query: SCHEMA_QUERY, format: "JSONCompact" }, signal })).data
  .map(([table, columns]) => ({ table, columns }));

export default function Sql({ query }) {
  useTitle("SQL");
  const [text, setText] = useState(query.get("q") || FIRST);
  const [state, setState] = useState({ answer: null, error: null, busy: false, read: 0 });
  const [past, setPast] = useState(ran);
  const running = useRef(null);
  const api = useRef(null);
  const tables = useAsked("/v1/query", tablesOf);
  const run = async (chosen) => {
    const asked = typeof chosen === "string" ? chosen : text;
    running.current?.abort();
    const own = new AbortController();
    running.current = own;
    setState((before) => ({ ...before, busy: true, error: null, read: 0 }));
    ask({ q: asked });
    const began = performance.now();
    try {
      const response = await send("/v1/query", { method: "POST", body: { query: asked, format: "JSONCompactEachRowWithNamesAndTypes" }, signal: own.signal });
      const found = await readRows(response, (read) => setState((before) => ({ ...before, read })));
      const took_ms = performance.now() - began;
      setState({ answer: { ...found, text: asked, took_ms }, error: null, busy: false, read: 0 });
      setPast(keep({ text: asked, at: new Date().toISOString(), rows: found.rows.length }));
    } catch (error) {
      if (error.name !== "AbortError") setState((before) => ({ ...before, error, busy: false }));
    }
  };
  useEffect(() => { if (query.get("q")) run(); return () => running.current?.abort(); }, []);
  const insert = (added, whole) => api.current?.insert(added, whole);
  const again = (one) => { insert(one, true); run(one); };
  return html`
    <div class="title"><h1>SQL</h1><span class="sub">read-only, with limits of time, rows and memory</span></div>
    <div class="grid">
      <${Card} title="Query" width="w8" push=${html`<${History} entries=${past} again=${again} clear=${() => setPast(forget())} />
          <label class="inline">Example<select value="" onChange=${(e) => { if (e.target.value) insert(e.target.value, true); e.target.value = ""; }}>
          <option value="">choose …</option>${EXAMPLES.map(([name, sql]) => html`<option value=${sql}>${name}</option>`)}</select></label>`}>
        <${Editor} first=${text} setText=${setText} tables=${tables.data} run=${run} api=${api} />
        <div class="row" style="margin-top:8px"><button class="main" onClick=${run} disabled=${state.busy}>${state.busy ? "Asking …" : "Run"}</button>
          ${state.busy && html`<button onClick=${() => { running.current?.abort(); setState((before) => ({ ...before, busy: false })); }}>Cancel</button>`}
          <span class="sub"><kbd>Ctrl</kbd> <kbd>Enter</kbd> runs it, <kbd>Ctrl</kbd> <kbd>Space</kbd> completes</span>
          <span class="sub" role="status">${state.busy ? state.read > 0 && `${number(state.read)} rows so far` : state.answer && `${plural(state.answer.rows.length, "row")} in ${span(state.answer.took_ms / 1000)}`}</span></div><//>
      <${Card} title="Tables" width="w4"><${Schema} found=${tables} insert=${insert} /><//>
      <div>${state.error ? html`<${Refused} error=${state.error} again=${run} />` : state.answer ? html`<${Answer} key=${state.answer.text} answer=${state.answer} />` : ""}</div>
    </div>`;
}

// A limit says what it is; how to stay below it is said here.
const Refused = ({ error, again }) => html`<${Failed} error=${error} again=${again} />
  ${error.status === 422 && html`<p class="sub">Ask for less: add LIMIT, a narrower WHERE, or GROUP BY.</p>`}`;

const History = ({ entries, again, clear }) => html`<${Menu} title="History" label="Queries of before">
  ${entries.length ? html`<ul class="list sql-history">${entries.map((one) => html`<li key=${one.text}><button class="plain" onClick=${() => again(one.text)}><code class="clip">${one.text}</code></button>
      <span class="sub">${plural(one.rows, "row")}, ${ago(one.at, Date.now())}</span></li>`)}</ul><button onClick=${clear}>Forget all</button>`
    : html`<p class="sub">No query was run in this browser yet.</p>`}<//>`;

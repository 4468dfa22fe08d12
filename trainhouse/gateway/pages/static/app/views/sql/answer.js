// An answer: a chart of it, its rows, and the whole of it as CSV.
import { html, useMemo, useState } from "../../kit.js";
import { send } from "../../api.js";
import { Card } from "../../parts/bits.js";
import { Curve } from "../../parts/curve.js";
import { Empty, Failed } from "../../parts/notice.js";
import { Rows } from "../../parts/rows.js";
import { number, plural } from "../../format.js";
import { SERIES } from "../../states.js";
import { axes, kindsOf, linesOf } from "./axes.js";

const MOST_BARS = 30;
// A browser draws nothing taller than this many rows.
const MOST_ROWS = 1000000;

export function Answer({ answer }) {
  if (!answer.rows.length) return html`<${Empty}>The query ran and has no rows: its WHERE keeps nothing, or the table is still empty. Submit a job: trainhouse submit SPEC.<//>`;
  return html`<div class="grid"><${Chart} answer=${answer} /><${Card} title="Rows" push=${html`<${Csv} text=${answer.text} />`}><${Grid} answer=${answer} /><//></div>`;
}

// Asked anew, in CSV: what was shown may have been changed since, and numbers are as ClickHouse writes them.
function Csv({ text }) {
  const [state, setState] = useState({ busy: false, error: null });
  const download = async () => {
    setState({ busy: true, error: null });
    try {
      const response = await send("/v1/query", { method: "POST", body: { query: text, format: "CSVWithNames" } });
      const link = document.createElement("a");
      link.href = URL.createObjectURL(await response.blob());
      link.download = "trainhouse.csv";
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
      setState({ busy: false, error: null });
    } catch (error) {
      setState({ busy: false, error });
    }
  };
  return html`${state.error && html`<${Failed} error=${state.error} />`}<button onClick=${download} disabled=${state.busy}>${state.busy ? "Fetching …" : "Download CSV"}</button>`;
}

const shownText = (value) => (value === null || value === undefined ? "NULL" : typeof value === "object" ? JSON.stringify(value) : String(value));

// Only the rows in sight are in the document.
function Grid({ answer }) {
  const rows = answer.rows.length > MOST_ROWS ? answer.rows.slice(0, MOST_ROWS) : answer.rows;
  const columns = { gridTemplateColumns: `repeat(${answer.names.length}, minmax(9rem, 1fr))`, minWidth: `${answer.names.length * 9.5}rem` };
  const kinds = useMemo(() => axes(answer).kinds, [answer]);
  const look = (i) => (kinds[i] === "number" ? "clip num" : "clip");
  return html`${rows !== answer.rows && html`<p class="sub">The first ${number(MOST_ROWS)} of ${plural(answer.rows.length, "row")}; the CSV has all.</p>`}
    <div class="scroll-x"><div class="sql-row sql-head" style=${columns}>${answer.names.map((name, i) => html`<span class=${look(i)} title=${answer.types?.[i]}>${name}</span>`)}</div>
    <${Rows} rows=${rows} height_px=${28} look="sql-body" rowLook="sql-line" inner label="Rows of the answer"
      draw=${(row) => html`<div class="sql-row" style=${columns}>${row.map((value, i) => html`<span class=${look(i)} title=${shownText(value)}>${shownText(value)}</span>`)}</div>`} /></div>`;
}

function Chart({ answer }) {
  const found = useMemo(() => axes(answer), [answer]);
  const [by, setBy] = useState(found.first);
  const [chosen, setChosen] = useState(null);
  const [kind, setKind] = useState("");
  const columns = found.values.filter((i) => i !== by);
  const shown = chosen !== null && columns.includes(chosen) ? [chosen] : columns.slice(0, 4);
  if (!columns.length) return null;
  const kinds = kindsOf(found.kinds[by], answer.rows.length);
  const drawn = kinds.includes(kind) ? kind : kinds[0];
  const choice = (label, value, set, options) => html`<label class="inline">${label}<select value=${value} onChange=${(e) => set(e.target.value)}>${options}</select></label>`;
  return html`<${Card} title="Chart" push=${html`
      ${choice("by", by, (value) => setBy(Number(value)), answer.names.map((name, i) => html`<option value=${i}>${name}</option>`))}
      ${choice("of", chosen ?? "", (value) => setChosen(value === "" ? null : Number(value)), html`<option value="">${columns.length > 4 ? "the first 4" : "all"}</option>${columns.map((i) => html`<option value=${i}>${answer.names[i]}</option>`)}`)}
      ${kinds.length > 1 && choice("as", drawn, setKind, kinds.map((name) => html`<option value=${name}>${name}</option>`))}`}>
    ${drawn === "bars" ? html`<${Bars} answer=${answer} by=${by} of=${shown[0]} />` : html`<${Lines} answer=${answer} by=${by} of=${shown} time=${found.kinds[by] === "time"} kind=${drawn} />`}<//>`;
}

export function Bars({ answer, by, of }) {
  const rows = answer.rows.slice(0, MOST_BARS);
  const most = Math.max(...rows.map((row) => Math.abs(Number(row[of]) || 0)), 1e-300);
  return html`<div class="bars" role="list" aria-label=${`${answer.names[of]} by ${answer.names[by]}`}>${rows.map((row) => html`<div class="one" role="listitem">
    <span class="clip" title=${shownText(row[by])}>${shownText(row[by])}</span><div class="stack"><span style=${{ width: `${100 * Math.abs(Number(row[of]) || 0) / most}%`, background: "var(--c1)" }}></span></div>
    <span class="num">${number(row[of])}</span></div>`)}</div>${answer.rows.length > MOST_BARS && html`<p class="sub">The first ${MOST_BARS} of ${number(answer.rows.length)} rows.</p>`}`;
}

export function Lines({ answer, by, of, time, kind }) {
  const plan = useMemo(() => linesOf(answer.rows, by, of, time), [answer, by, of.join(), time]);
  const series = useMemo(() => of.map((i, n) => ({ label: answer.names[i], token: SERIES[n % SERIES.length], mean: plan.columns[n] })), [plan]);
  return html`<${Curve} label=${of.map((i) => answer.names[i]).join(", ")} x=${plan.x} series=${series} x_name=${answer.names[by]} time=${time} path=${kind} />
    ${plan.every > 1 && html`<p class="sub">Every ${plan.every}th row is drawn; min and max in the query keep extremes.</p>`}`;
}

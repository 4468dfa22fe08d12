// Where runs differ in environment (Python, torch, packages, commit, machine), and two of them in code, file by file.
import { html, useState } from "../../kit.js";
import { url } from "../../api.js";
import { Card } from "../../parts/bits.js";
import { Empty, Shown } from "../../parts/notice.js";
import { Table } from "../../parts/table.js";
import { bytes, plural } from "../../format.js";
import { ask } from "../../router.js";
import { useData } from "../../use.js";
import { shown } from "../job/config.js";

const MOST_ROWS = 200;

export function Environment({ runs, chosen, names }) {
  const found = useData(runs.length > 1 ? url("/v1/compare/environments", { job: chosen }) : null);
  if (runs.length < 2) return html`<${Card} title="Environment"><${Empty}>One run differs from nothing; choose another one.<//><//>`;
  return html`<${Card} title="Environment"><${Shown} of=${found} what="the environments">${(d) => html`
    ${!d.known.length ? html`<${Empty}>No environment of these runs is recorded. A job records its own when its session starts: <code>Session.start()</code>.<//>`
      : !d.items.length ? html`<${Empty}>${d.known.length < 2 ? "The environment of one run alone is recorded" : `The environments of ${plural(d.known.length, "run")} are the same`}.<//>`
      : html`<${Table} caption="Lines in which the environments differ" rows=${d.items.slice(0, MOST_ROWS)} keyOf=${(one) => one.path} columns=${[
        ["What", (one) => html`<code>${one.path}</code>`],
        ...runs.filter((run) => d.known.includes(run.job_id)).map((run) => [names[run.job_id], (one) => (run.job_id in one.values ? html`<code>${shown(one.values[run.job_id])}</code>` : html`<span class="sub">not there</span>`)])]} />
        ${d.items.length > MOST_ROWS && html`<p class="sub">The first ${MOST_ROWS} of ${d.items.length} lines.</p>`}`}
    ${d.known.length > 0 && d.known.length < runs.length && html`<p class="sub">Not recorded for ${plural(runs.length - d.known.length, "run")}.</p>`}`}<//><//>`;
}

export function Code({ runs, names, query }) {
  const ids = runs.map((run) => run.job_id);
  const left = ids.includes(query.get("left")) ? query.get("left") : ids[0];
  const right = ids.includes(query.get("right")) ? query.get("right") : ids.find((id) => id !== left);
  const found = useData(right ? url("/v1/compare/code", { left, right }) : null);
  if (!right) return html`<${Card} title="Code"><${Empty}>One run differs from nothing; choose another one.<//><//>`;
  const choose = (label, name, value) => html`<label class="inline">${label}<select value=${value} onChange=${(event) => ask({ [name]: event.target.value })}>${ids.map((id) => html`<option value=${id}>${names[id]}</option>`)}</select></label>`;
  return html`<${Card} title="Code"><div class="row" style="margin-bottom:8px">${choose("from", "left", left)}${choose("to", "right", right)}</div>
    <${Shown} of=${found} what="the code">${(d) => html`<${Files} found=${d} names=${names} />`}<//><//>`;
}

const commit = (side) => (side.git_commit ? html` at commit <code>${side.git_commit.slice(0, 12)}</code>${side.git_dirty ? " with changes" : ""}` : "");

function Files({ found, names }) {
  const missing = [found.left, found.right].filter((side) => !side.sha256);
  if (missing.length) return html`<${Empty}>${missing.map((side) => names[side.job_id] || side.job_id).join(" and ")} ${missing.length > 1 ? "were" : "was"} submitted without code.<//>`;
  const about = html`<p class="sub">${names[found.left.job_id]}${commit(found.left)}; ${names[found.right.job_id]}${commit(found.right)}</p>`;
  if (found.same || !found.files.length) return html`${about}<${Empty}>Their code is the same.<//>`;
  return html`${about}${found.files.map((file) => html`<${File} key=${file.path} file=${file} only=${found.files.length === 1} />`)}
    ${found.more > 0 && html`<p class="sub">${plural(found.more, "more file")} differ.</p>`}`;
}

// Lines are made when they are opened: there may be five hundred files.
function File({ file, only }) {
  const [open, setOpen] = useState(only);
  const sizes = [file.left_bytes, file.right_bytes].filter((size) => size !== null).map(bytes).join(" → ");
  return html`<details class="metrics" open=${open} onToggle=${(event) => setOpen(event.target.open)}><summary><code>${file.path}</code> <span class="tag">${file.change}</span> <span class="sub">${sizes}</span></summary>
    ${open && (file.diff === null ? html`<p class="sub">Its lines are not shown: ${file.not_shown || "it is not text, or too large"}.</p>`
      : file.diff === "" ? html`<p class="sub">An empty file.</p>`
      : html`<pre class="text diff" tabindex="0" aria-label=${`Lines of ${file.path} that differ`}>${file.diff.split("\n").map((line) => html`<span class=${lookOf(line)}>${line}${"\n"}</span>`)}</pre>`)}</details>`;
}

const lookOf = (line) => (line.startsWith("@@") || /^(---|\+\+\+) /.test(line) ? "sub" : line.startsWith("+") ? "plus" : line.startsWith("-") ? "minus" : null);

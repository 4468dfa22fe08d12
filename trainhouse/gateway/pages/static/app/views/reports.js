// Reports of all projects that the reader sees, and the way to a new one.
import { html, useMemo, useState } from "../kit.js";
import { Card, useTitle } from "../parts/bits.js";
import { Shown } from "../parts/notice.js";
import { Table } from "../parts/table.js";
import { ago, moment, number, plural } from "../format.js";
import { go } from "../router.js";
import { useClock } from "../use.js";
import { useAll } from "../all.js";

const EVERY_MS = 15000;
export const addressOf = (project, name) => `/reports/${encodeURIComponent(project)}/${encodeURIComponent(name)}`;

export default function Reports({ who }) {
  useTitle("Reports");
  const found = useAll("/v1/reports", EVERY_MS);
  const [word, setWord] = useState("");
  const now_ms = useClock(10000);
  const rows = useMemo(() => (found.data || []).filter((r) => `${r.name} ${r.project} ${r.saved_by} ${r.created_by}`.toLowerCase().includes(word.toLowerCase().trim())), [found.data, word]);
  const writes = who.roles.some((role) => role !== "viewer");
  return html`
    <div class="title"><h1>Reports</h1><span class="sub" role="status">${found.data ? `${number(rows.length)} of ${plural(found.data.length, "report")}` : ""}</span></div>
    ${writes && html`<div style="margin-bottom:16px"><${New} who=${who} known=${found.data || []} /></div>`}
    <${Card} title="All reports" push=${html`<label><span class="hidden">Filter reports</span><input data-search type="search" value=${word} placeholder="Filter ( / )"
        onInput=${(event) => setWord(event.target.value)} /></label>`}>
      <${Shown} of=${found} what="reports" empty=${(d) => !d.length}
        nothing=${writes ? "No report was saved yet. Write one above: Markdown, with live panels of curves, runs and SQL." : "No report was saved yet."}>${() => (rows.length ? html`
        <${Table} caption="Reports, those saved last first" rows=${rows} keyOf=${(r) => addressOf(r.project, r.name)} columns=${columns(now_ms)} />`
        : html`<p class="notice">No report fits “${word}”.</p>`)}<//><//>`;
}

const columns = (now_ms) => [
  ["Report", (r) => html`<a href=${addressOf(r.project, r.name)}><b>${r.name}</b></a>`, "wide"], ["Project", (r) => r.project],
  ["Saved", (r) => html`<span title=${moment(r.at)}>${ago(r.at, now_ms)}</span>`, "short"], ["By", (r) => r.saved_by], ["Version", (r) => number(r.version), "num"],
  ["Begun by", (r) => r.created_by],
];

function New({ who, known }) {
  const projects = who.projects.includes("*") ? [...new Set(["default", ...known.map((r) => r.project)])] : who.projects;
  const made = (event) => {
    event.preventDefault();
    const { name, project } = event.target.elements;
    if (name.value.trim() && project.value.trim()) go(`${addressOf(project.value.trim(), name.value.trim().normalize("NFC"))}?edit=1`);
  };
  return html`<${Card} title="New report"><form class="row end" onSubmit=${made}>
    <label class="field grow">Name<input name="name" required maxlength="120" pattern="[^\/\\\\]+" title="1 to 120 characters without slash and backslash" /></label>
    <label class="field">Project<input name="project" required maxlength="128" list="report-projects" value=${projects[0]} /></label>
    <datalist id="report-projects">${projects.map((name) => html`<option value=${name}></option>`)}</datalist>
    <button class="main">Write it</button></form><//>`;
}

// One report: Markdown with live panels, to read, to print, to edit with a preview; its versions. `?edit=1` edits, `?version=` shows an earlier one.
import { html, useEffect, useMemo, useRef, useState } from "../kit.js";
import { call, url } from "../api.js";
import { Card, useTitle } from "../parts/bits.js";
import { Markdown, partsOf } from "../parts/markdown.js";
import { Menu } from "../parts/menu.js";
import { Empty, Failed, Loading, Shown } from "../parts/notice.js";
import { ago, moment } from "../format.js";
import { ask, go } from "../router.js";
import { isDark, setTheme } from "../theme.js";
import { useClock, useData } from "../use.js";
import { Panel } from "./report/panel.js";
import { EXAMPLE } from "./report/spec.js";

const MOST_CHARS = 65536;
const PREVIEW_MS = 400;
const PRINT_WAIT_MS = 15000;
const FIRST = `What was tried, and what came of it.\n\n## Loss\n\n\`\`\`panel\n${EXAMPLE}\nlimit: 5\n\`\`\`\n\n## Runs\n\n\`\`\`panel\ntype: runs\nlimit: 10\n\`\`\`\n`;

export default function Report({ query }) {
  const [project, name] = location.pathname.split("/").slice(2).map(decodeURIComponent);
  const path = `/v1/reports/${encodeURIComponent(project)}/${encodeURIComponent(name)}`;
  const version = query.get("version");
  const editing = query.get("edit") === "1";
  const { data: report, error, reload: load } = useData(url(path, { version }));
  useTitle(name);
  const isNew = error?.status === 404 && !version;
  if (!report && !error) return html`<${Loading} what="the report" />`;
  if (error && !(isNew && editing)) return html`<div class="title"><h1>${name}</h1></div>${isNew ? html`<${Empty}>There is no report ${name} in project ${project} that you may see.
    <button onClick=${() => ask({ edit: 1 })}>Write it</button><//>` : html`<${Failed} error=${error} again=${load} />`}`;
  if (editing) return html`<${Editor} project=${project} name=${name} path=${path} report=${report} saved=${() => { load(); ask({ edit: null, version: null }); }} />`;
  return html`<${Reading} report=${report} project=${project} name=${name} path=${path} version=${version} />`;
}

function Reading({ report, project, name, path, version }) {
  const now_ms = useClock(10000);
  const [all, setAll] = useState(false);
  const [word, setWord] = useState("");
  const box = useRef(null);
  useEffect(() => {
    const before = () => setAll(true);
    addEventListener("beforeprint", before);
    return () => removeEventListener("beforeprint", before);
  }, []);
  const copy = async () => {
    try { await navigator.clipboard.writeText(location.href); setWord("Copied."); } catch { setWord(location.href); }
  };
  return html`<article class="report" ref=${box}>
    <div class="title"><h1>${name}</h1><div class="push">
      <span class="sub" role="status">${word}</span><button onClick=${copy}>Copy link</button><button onClick=${() => { setAll(true); printed(box.current); }}>Print</button>
      <${Versions} path=${path} shown=${report.version} now_ms=${now_ms} />
      ${report.may_save && !report.deleted && html`<button class="main" onClick=${() => ask({ edit: 1, version: null })}>Edit</button>
        ${!version && html`<${Delete} path=${path} report=${report} name=${name} />`}`}</div></div>
    <p class="sub">project ${project} · version ${report.version} · saved by ${report.saved_by || "unknown"} <span title=${moment(report.at)}>${ago(report.at, now_ms)}</span></p>
    ${version && html`<p class="notice warn noprint">This is an earlier version. <button onClick=${() => ask({ version: null })}>Show the newest</button></p>`}
    ${report.deleted ? html`<${Empty}>This version is the report's deletion.<//>` : html`<${Body} text=${report.content} project=${project} all=${all} />`}</article>`;
}

// Keys by the text itself: while somebody types, panels whose text stays as it was are not drawn anew.
function Body({ text, project, all }) {
  const parts = useMemo(() => partsOf(text), [text]);
  const counts = new Map();
  const keyed = (word) => { counts.set(word, (counts.get(word) || 0) + 1); return `${counts.get(word)} ${word}`; };
  if (!parts.length) return html`<${Empty}>This report has no text yet.<//>`;
  return html`<div class="report-body">${parts.map((part) => (part.panel !== undefined
    ? html`<${Panel} key=${keyed(`panel ${part.panel}`)} text=${part.panel} project=${project} all=${all} />`
    : html`<${Markdown} key=${keyed(`text ${part.tokens.map((token) => token.raw).join("")}`)} tokens=${part.tokens} />`))}</div>`;
}

// All panels drawn, in light colours; then the browser's own dialog.
async function printed(box) {
  const dark = isDark();
  if (dark) setTheme(false, false);
  const deadline = Date.now() + PRINT_WAIT_MS;
  const waits = () => box.querySelector("[data-waits]") || [...box.querySelectorAll(".notice")].some((one) => one.textContent.startsWith("Loading"));
  do { await new Promise((resolve) => setTimeout(resolve, 200)); } while (waits() && Date.now() < deadline);
  window.print();
  if (dark) setTheme(true, false);
}

function Versions({ path, shown, now_ms }) {
  const [open, setOpen] = useState(false);
  const found = useData(open ? `${path}/history` : null);
  return html`<${Menu} title="History" opened=${() => setOpen(true)} label="Versions of the report">${open && html`<${Shown} of=${found} what="the versions">${(d) => html`
    <ul class="list">${d.items.map((one) => html`<li key=${one.version}><button class="plain" aria-pressed=${one.version === shown ? "true" : "false"} onClick=${() => ask({ version: one.version })}>Version ${one.version}</button>
      <span class="sub">${one.deleted ? "deleted" : "saved"} by ${one.saved_by || "unknown"} ${ago(one.at, now_ms)}${one.note ? `: ${one.note}` : ""}</span></li>`)}</ul>`}<//>`}<//>`;
}

function Delete({ path, report, name }) {
  const [asked, setAsked] = useState(false);
  const [error, setError] = useState(null);
  const remove = async () => {
    try {
      await call(url(path, { replaces: report.version }), { method: "DELETE" });
      go("/reports");
    } catch (problem) { setAsked(false); setError(problem); }
  };
  if (error) return html`<span class="sub" role="alert">${error.message}</span>`;
  if (!asked) return html`<button class="danger" onClick=${() => setAsked(true)}>Delete</button>`;
  return html`<span class="row" role="group" aria-label=${`Delete the report ${name}?`}>Delete this report? <button class="danger" onClick=${remove}>Yes, delete it</button><button onClick=${() => setAsked(false)}>Keep it</button></span>`;
}

function Editor({ project, name, path, report, saved }) {
  const [text, setText] = useState(report ? report.content : FIRST);
  const [shown, setShown] = useState(text);
  const [note, setNote] = useState("");
  const [base, setBase] = useState(report ? report.version : 0);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  const dirty = text !== (report ? report.content : FIRST);
  useEffect(() => {
    const timer = setTimeout(() => setShown(text), PREVIEW_MS);
    return () => clearTimeout(timer);
  }, [text]);
  useEffect(() => {
    if (!dirty) return undefined;
    const leaving = (event) => event.preventDefault();
    addEventListener("beforeunload", leaving);
    return () => removeEventListener("beforeunload", leaving);
  }, [dirty]);
  const save = async () => {
    setBusy(true);
    setError(null);
    try {
      await call(path, { method: "PUT", body: { content: text, replaces: base, note } });
      saved();
    } catch (problem) { setError(problem); setBusy(false); }
  };
  return html`
    <div class="title"><h1>${name}</h1><span class="sub">project ${project} · ${base ? `editing version ${base}` : "new report"}</span><div class="push">
      <input aria-label="What changed" placeholder="What changed (optional)" maxlength="512" value=${note} onInput=${(event) => setNote(event.target.value)} />
      <button class="main" disabled=${busy || text.length > MOST_CHARS} onClick=${save}>${busy ? "Saving …" : "Save"}</button>
      <button onClick=${() => (report ? ask({ edit: null }) : go("/reports"))}>Cancel</button></div></div>
    ${error && (error.status === 409 ? html`<${Conflict} error=${error} path=${path} take=${(version) => { setBase(version); setError(null); }} />` : html`<p class="notice bad" role="alert" style="margin-bottom:14px">${error.message}</p>`)}
    ${text.length > MOST_CHARS && html`<p class="notice bad" role="alert" style="margin-bottom:14px">A report has at most ${MOST_CHARS} characters; this one has ${text.length}.</p>`}
    <div class="grid"><div class="w6"><${Card} title="Markdown"><label><span class="hidden">Markdown of the report</span>
      <textarea data-search rows="28" spellcheck="true" value=${text} onInput=${(event) => setText(event.target.value)}
        onKeyDown=${(event) => { if (event.key === "s" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); save(); } }}></textarea></label>
      <p class="sub"><kbd>Ctrl</kbd> <kbd>S</kbd> saves. A fence <code>panel</code> shows <code>type: curves</code>, <code>runs</code> or <code>sql</code>, live.</p><//></div>
      <div class="w6"><${Card} title="Preview"><${Body} text=${shown} project=${project} all=${false} /><//></div></div>`;
}

// What they saved stays in the history, whichever is chosen: to save over it is a version after it.
function Conflict({ error, path, take }) {
  const [theirs, setTheirs] = useState(null);
  const look = () => call(path).then(setTheirs, () => setTheirs({ version: 0, content: "", gone: true }));
  return html`<div class="notice warn" role="alert" style="margin-bottom:14px"><p style="margin:0 0 8px">${error.message}</p>
    ${theirs === null ? html`<button onClick=${look}>Show what was saved</button>` : html`${theirs.gone ? html`<p>The report was deleted.</p>` : html`<pre class="text" tabindex="0" aria-label=${`Version ${theirs.version}`}>${theirs.content}</pre>`}
      <button onClick=${() => take(theirs.version)}>${theirs.gone ? "Write it again" : `Go on from version ${theirs.version} with my text`}</button>`}</div>`;
}

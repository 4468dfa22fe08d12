// Images, tables, histograms, texts and audio that a job logged: by key, at one step that all of them share.
// Holds: a key's content is asked for once it is near what is looked at. What a program logged is shown as text, or by an element that runs nothing.
import { html, useEffect, useMemo, useRef, useState } from "../../kit.js";
import { url } from "../../api.js";
import { Card } from "../../parts/bits.js";
import { Distributions } from "../../parts/distributions.js";
import { Empty, Shown } from "../../parts/notice.js";
import { Table } from "../../parts/table.js";
import { bytes, number, plural } from "../../format.js";
import { ask } from "../../router.js";
import { ENDED } from "../../states.js";
import { useData, useNear } from "../../use.js";

const KINDS = [["image", "Images"], ["histogram", "Histograms"], ["table", "Tables"], ["text", "Text"], ["audio", "Audio"]];
const FIRST = 12;
const ROWS = 20;
const MORE_ROWS = 500;
const PACE_MS = 120;

// All steps at which something was logged, rising. Pure.
export const stepsOf = (items) => [...new Set(items.flatMap((one) => one.steps))].sort((a, b) => a - b);

// The place in `steps` of the last one until `step`; without one, the last of all. Pure.
export function placeOf(steps, step) {
  if (step === null) return steps.length - 1;
  let at = 0;
  for (let i = 0; i < steps.length && steps[i] <= step; i += 1) at = i;
  return at;
}

export function Media({ job, path, query }) {
  const found = useData(`${path}/media`, { every_ms: ENDED.has(job.state) ? 0 : 15000 });
  return html`<${Card} title="Media"><${Shown} of=${found} what="media" empty=${(d) => !d.items.length}
    nothing=${html`No image, table, histogram, text or audio was logged. Training code logs one by <code>session.log({"samples": Image(array)})</code>, MLflow's client by <code>log_image</code>, <code>log_table</code> or <code>log_text</code>.`}>${(d) => html`
      <${Keys} items=${d.items} path=${path} query=${query} />`}<//><//>`;
}

function Keys({ items, path, query }) {
  const steps = useMemo(() => stepsOf(items), [items]);
  const word = (query.get("m") || "").toLowerCase().trim();
  const chosen = /^\d+$/.test(query.get("at") || "") ? Number(query.get("at")) : null;
  const shown = items.filter((one) => one.key.toLowerCase().includes(word));
  const step = steps.length ? steps[placeOf(steps, chosen)] : null;
  return html`<div class="row media-bar">
      <label class="grow"><span class="hidden">Search keys</span><input type="search" style="width:100%" value=${query.get("m") || ""} placeholder="Search keys" onInput=${(event) => ask({ m: event.target.value || null })} /></label>
      ${steps.length > 1 && html`<${StepSlider} steps=${steps} chosen=${chosen} />`}</div>
    ${!shown.length && html`<${Empty}>No key fits “${word}”. <button onClick=${() => ask({ m: null })}>Show all</button><//>`}
    ${KINDS.map(([kind, title]) => {
      const own = shown.filter((one) => one.kind === kind);
      return own.length > 0 && html`<section key=${kind} aria-label=${title}><h3>${title}</h3>
        ${own.map((one) => html`<${Lazy} key=${one.key} title=${one.key} about=${aboutOf(one)}>${() => html`<${SHOWS[kind]} one=${one} path=${path} step=${one.stepless ? null : step} />`}<//>`)}</section>`;
    })}`;
}

const aboutOf = (one) => (one.stepless ? plural(one.count, "file") : `${plural(one.count, one.kind)}, ${one.first_step === one.last_step ? `step ${number(one.first_step)}` : `steps ${number(one.first_step)} to ${number(one.last_step)}`}`);

// One step for all keys, in the address, so a link shows another reader the same. Without one the newest is followed.
function StepSlider({ steps, chosen }) {
  const [at, setAt] = useState(placeOf(steps, chosen));
  const timer = useRef(0);
  useEffect(() => { setAt(placeOf(steps, chosen)); }, [steps, chosen]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const move = (place) => {
    const next = Math.min(steps.length - 1, Math.max(0, place));
    setAt(next);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => ask({ at: steps[next] }), PACE_MS);
  };
  return html`<div class="row" role="group" aria-label="Step">
    <button aria-label="Step before" title="Step before" disabled=${at === 0} onClick=${() => move(at - 1)}>←</button>
    <button aria-label="Step after" title="Step after" disabled=${at === steps.length - 1} onClick=${() => move(at + 1)}>→</button>
    <label class="inline">Step<input type="range" min="0" max=${steps.length - 1} step="1" value=${at} aria-valuetext=${`step ${number(steps[at])}`}
      onInput=${(event) => move(Number(event.target.value))} /><span class="num" style="min-width:6ch">${number(steps[at])}</span></label>
    <button aria-pressed=${chosen === null ? "true" : "false"} onClick=${() => ask({ at: null })}>Newest</button></div>`;
}

function Lazy({ title, about, children }) {
  const [box, near] = useNear();
  return html`<div class="media-key" ref=${box}><h4>${title} <span class="sub">${about}</span></h4>${near ? children() : html`<div class="media-ahead"></div>`}</div>`;
}

const ofStep = (path, one, step) => url(`${path}/media/items`, { kind: one.kind, key: one.key, step });
const content = (path, file) => url(`${path}/media/content`, { path: file.path });
const nameOf = (file) => [file.step === null ? "" : `step ${number(file.step)}`, file.rank ? `rank ${file.rank}` : "", file.number ? `number ${file.number + 1}` : ""].filter(Boolean).join(", ");

// The files of a key at a step; the words say so where the key has none at exactly that step.
function AtStep({ one, path, step, children }) {
  const found = useData(ofStep(path, one, step));
  return html`<${Shown} of=${found} what=${one.key} empty=${(d) => !d.items.length} nothing="Nothing was logged under this key until this step.">${(d) => html`
    ${step !== null && d.items[0].step !== step && html`<p class="sub">of step ${number(d.items[0].step)}</p>`}${children(d.items)}`}<//>`;
}

function Images({ one, path, step }) {
  const [all, setAll] = useState(false);
  return html`<${AtStep} one=${one} path=${path} step=${step}>${(files) => html`<ul class="media-grid" aria-label=${`Images ${one.key}`}>
      ${(all ? files : files.slice(0, FIRST)).map((file) => html`<li key=${file.path}><${Picture} src=${content(path, file)} name=${`${one.key}${nameOf(file) ? `, ${nameOf(file)}` : ""}`} /></li>`)}</ul>
    ${files.length > FIRST && !all && html`<button onClick=${() => setAll(true)}>Show all ${number(files.length)} images</button>`}`}<//>`;
}

// Small images are as large as a thumb, their pixels sharp.
function Picture({ src, name }) {
  const [state, setState] = useState({ src: "", look: "" });
  const look = state.src === src ? state.look : "";
  if (look === "broken") return html`<p class="notice warn">${name}: no image that a browser can show.</p>`;
  return html`<a href=${src} target="_blank" rel="noopener"><img class=${look} src=${src} alt=${name} title=${name} loading="lazy" decoding="async"
    onLoad=${(event) => setState({ src, look: event.target.naturalWidth < 200 ? "small" : "" })} onError=${() => setState({ src, look: "broken" })} /></a>`;
}

function Sounds({ one, path, step }) {
  return html`<${AtStep} one=${one} path=${path} step=${step}>${(files) => html`<ul class="media-grid wide" aria-label=${`Audio ${one.key}`}>${files.map((file) => html`<li key=${file.path}>
    <audio controls preload="none" src=${content(path, file)} aria-label=${`${one.key} ${nameOf(file)}`}></audio><span class="sub">${nameOf(file)} · ${bytes(file.size_bytes)}</span></li>`)}</ul>`}<//>`;
}

function Texts({ one, path, step }) {
  return html`<${AtStep} one=${one} path=${path} step=${step}>${(files) => files.slice(0, FIRST).map((file) => html`<${TextOf} key=${file.path} path=${path} file=${file} name=${one.key} />`)}<//>`;
}

function TextOf({ path, file, name }) {
  const found = useData(url(`${path}/media/text`, { path: file.path }));
  return html`<${Shown} of=${found} what=${name}>${(d) => html`<pre class="text media-text" tabindex="0" aria-label=${`${name} ${nameOf(file)}`}>${d.text}</pre>
    ${d.is_cut && html`<p class="sub">The beginning of ${bytes(d.total_bytes)}.</p>`}`}<//>`;
}

function Tables({ one, path, step }) {
  return html`<${AtStep} one=${one} path=${path} step=${step}>${(files) => files.slice(0, FIRST).map((file) => html`<${TableOf} key=${file.path} path=${path} file=${file} name=${one.key} />`)}<//>`;
}

// JSON of another form, or too large for a table, is shown as the text that it is.
function TableOf({ path, file, name }) {
  const [limit, setLimit] = useState(ROWS);
  const found = useData(url(`${path}/media/table`, { path: file.path, limit }));
  if (found.error?.status === 422) return html`<${TextOf} path=${path} file=${file} name=${name} />`;
  if (found.error?.status === 413) return html`<p class="sub">Too large to be shown as a table: ${bytes(file.size_bytes)}.</p><${TextOf} path=${path} file=${file} name=${name} />`;
  return html`<${Shown} of=${found} what=${name}>${(d) => html`<${Table} caption=${`Table ${name}${nameOf(file) ? `, ${nameOf(file)}` : ""}`} rows=${d.rows}
      columns=${d.columns.map((title, i) => [title, (row) => cell(row[i]), d.rows.every((row) => typeof row[i] === "number" || row[i] === null) ? "num" : null])} />
    ${(d.total_rows > d.rows.length || d.total_columns > d.columns.length) && html`<p class="sub">The first ${number(d.rows.length)} of ${plural(d.total_rows, "row")}${d.total_columns > d.columns.length ? `, ${number(d.columns.length)} of ${number(d.total_columns)} columns` : ""}.
      ${limit === ROWS && d.total_rows > d.rows.length && html` <button onClick=${() => setLimit(MORE_ROWS)}>Show ${d.total_rows > MORE_ROWS ? `${number(MORE_ROWS)} rows` : "all rows"}</button>`}</p>`}`}<//>`;
}

const cell = (value) => (value === null || value === undefined ? "" : typeof value === "number" ? number(value, 6) : String(value));

function Histograms({ one, path, step }) {
  const found = useData(url(`${path}/media/histograms`, { key: one.key, ...(one.stepless ? {} : { columns: 100 }), v: one.count }));
  return html`<${Shown} of=${found} what=${one.key} empty=${(d) => !d.items.length} nothing="No histogram of rank 0 can be read here.">${(d) => html`
    <${Distributions} label=${one.key} items=${d.items} step=${step} />`}<//>`;
}

const SHOWS = { image: Images, histogram: Histograms, table: Tables, text: Texts, audio: Sounds };

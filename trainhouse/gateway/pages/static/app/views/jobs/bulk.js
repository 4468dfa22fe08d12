// What is asked for about many chosen jobs at once: compare, tag, another priority, cancel. Each is a request of its own; those that were
// refused stand below with their reasons.
import { html, useState } from "../../kit.js";
import { call } from "../../api.js";
import { number, plural, titleOf } from "../../format.js";
import { mayWrite } from "../../roles.js";
import { go } from "../../router.js";
import { ENDED } from "../../states.js";
import { MOST_KEY_CHARS, MOST_VALUE_CHARS, parseTag } from "../../tags.js";
import { MOST as MOST_COMPARED } from "../compare/choose.js";
import { changed } from "../job/actions.js";

export const MOST_CHOSEN = 500;
const AT_ONCE = 4;
const MOST_LISTED = 20;
const LATER_MS = 2000;
const TRIES = 5;

// Runs one(job) for all, AT_ONCE at a time, and again later where the gateway asks to wait; gives [job, reason] of those that were refused.
export async function forEach(jobs, one, told = () => {}) {
  const waiting = [...jobs];
  const refused = [];
  let done = 0;
  const work = async () => {
    for (let job = waiting.shift(); job; job = waiting.shift()) {
      for (let attempt = 1; ; attempt += 1) {
        try {
          await one(job);
          break;
        } catch (error) {
          if ((error.status === 429 || error.status === 503) && attempt < TRIES) { await new Promise((resolve) => setTimeout(resolve, LATER_MS * attempt)); continue; }
          refused.push([job, error.message]);
          break;
        }
      }
      done += 1;
      told(done);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return refused;
}

export function Bulk({ jobs, rows, who, setChosen, tagged }) {
  const [open, setOpen] = useState("");
  const [state, setState] = useState({ busy: false, word: "", refused: [] });
  const run = async (own, verb, one, after = () => {}) => {
    setOpen("");
    setState({ busy: true, word: `${verb} …`, refused: [] });
    const refused = await forEach(own, one, (done) => setState((before) => ({ ...before, word: `${verb} … ${done} of ${own.length}` })));
    setState({ busy: false, word: `${verb}: ${plural(own.length - refused.length, "job")}${refused.length ? `, ${number(refused.length)} refused` : ""}.`, refused });
    after();
  };
  const going = jobs.filter((job) => !ENDED.has(job.state) && job.source !== "tracked");
  const may = mayWrite(who);
  const tag = (event) => {
    event.preventDefault();
    const pair = parseTag(event.target.elements.tag.value);
    if (!pair) return;
    const remove = event.submitter?.value === "remove";
    const body = remove ? { remove: [pair[0]] } : { set: { [pair[0]]: pair[1] } };
    run(jobs, remove ? "Tag removed" : "Tagged", (job) => call(`${pathOf(job)}/tags`, { method: "POST", body }), () => tagged(jobs, body));
  };
  const prioritize = (event) => {
    event.preventDefault();
    const priority = Number(event.target.elements.priority.value);
    run(going, "Priority changed", (job) => changed(pathOf(job), priority));
  };
  const cancel = () => run(going, "Asked to cancel", (job) => call(`${pathOf(job)}/cancel`, { method: "POST", body: { reason: "cancelled on the pages" } }));
  const button = (name, word, disabled = false) => html`<button aria-expanded=${open === name ? "true" : "false"} disabled=${state.busy || disabled} onClick=${() => setOpen(open === name ? "" : name)}>${word}</button>`;
  if (!jobs.length && !state.word) return null;
  return html`<div class="card bulk" role="group" aria-label="Chosen jobs"><div class="row"><b>${plural(jobs.length, "job")} chosen</b>
      <button class="main" disabled=${!jobs.length || jobs.length > MOST_COMPARED} title=${jobs.length > MOST_COMPARED ? `At most ${MOST_COMPARED} are compared` : null}
        onClick=${() => go(`/compare?${jobs.map((job) => `job=${encodeURIComponent(job.job_id)}`).join("&")}`)}>Compare ${number(jobs.length)}</button>
      ${may && html`${button("tag", "Tag", !jobs.length)}${button("priority", "Change priority", !going.length)}${button("cancel", "Cancel jobs", !going.length)}`}
      ${rows.length > jobs.length && html`<button disabled=${state.busy} onClick=${() => setChosen(new Set(rows.slice(0, MOST_CHOSEN).map((job) => job.job_id)))}>Choose ${rows.length > MOST_CHOSEN ? `the first ${MOST_CHOSEN}` : `all ${number(rows.length)}`} that fit</button>`}
      <button disabled=${state.busy} onClick=${() => { setChosen(new Set()); setOpen(""); setState({ busy: false, word: "", refused: [] }); }}>Clear</button></div>
    ${open === "tag" && html`<form class="row" onSubmit=${tag}><label class="inline">Tag<input name="tag" required placeholder="key=value" maxlength=${MOST_KEY_CHARS + MOST_VALUE_CHARS} /></label>
      <button>Set on ${number(jobs.length)}</button><button value="remove">Remove from ${number(jobs.length)}</button></form>`}
    ${open === "priority" && html`<form class="row" onSubmit=${prioritize}><label class="inline">Priority<input name="priority" type="number" min="0" max="100" step="1" required style="width:6rem" /></label>
      <button>Change ${number(going.length)}</button><span class="sub">0 is the highest, 100 the lowest. ${jobs.length > going.length ? `${plural(jobs.length - going.length, "job")} that ended ${jobs.length - going.length === 1 ? "stays" : "stay"} as ${jobs.length - going.length === 1 ? "it is" : "they are"}.` : ""}</span></form>`}
    ${open === "cancel" && html`<div class="row" role="group" aria-label="Cancel these jobs?">Cancel ${plural(going.length, "job")} that ${going.length === 1 ? "has" : "have"} not ended?
      <button class="danger" onClick=${cancel}>Yes, cancel ${going.length === 1 ? "it" : "them"}</button><button onClick=${() => setOpen("")}>Keep ${going.length === 1 ? "it" : "them"}</button></div>`}
    ${state.word && html`<p class="sub" role="status">${state.word}</p>`}
    ${state.refused.length > 0 && html`<ul class="list">${state.refused.slice(0, MOST_LISTED).map(([job, why]) => html`<li key=${job.job_id}><a href=${`/jobs/${encodeURIComponent(job.job_id)}`}>${titleOf(job)}</a>: ${why}</li>`)}
      ${state.refused.length > MOST_LISTED && html`<li class="sub">and ${number(state.refused.length - MOST_LISTED)} more</li>`}</ul>`}</div>`;
}

const pathOf = (job) => `/v1/training-jobs/${encodeURIComponent(job.job_id)}`;

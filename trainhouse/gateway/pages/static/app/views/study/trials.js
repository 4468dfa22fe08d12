// Trials of a study, some at once, with links to their jobs.
import { html, useRef, useState } from "../../kit.js";
import { Card, Pill } from "../../parts/bits.js";
import { Shown } from "../../parts/notice.js";
import { Table } from "../../parts/table.js";
import { ago, moment, number, span } from "../../format.js";
import { momentOf } from "../../model_words.js";
import { ask } from "../../router.js";
import { pathOf, TRIAL_STATES, trialState, valuesOf } from "../../study_words.js";
import { useClock } from "../../use.js";
import { usePart } from "./again.js";

const AT_ONCE = 50;
const EVERY_MS = 15000;
const ORDERS = [["newest", "the newest first"], ["best", "the best first"], ["number", "by number"]];

export function Trials({ study, query }) {
  const now_ms = useClock(EVERY_MS);
  const order = ORDERS.some(([name]) => name === query.get("order")) ? query.get("order") : "newest";
  const state = TRIAL_STATES[query.get("state")] ? query.get("state") : "";
  const [pages, setPages] = useState({ of: `${order} ${state}`, cursors: [null] });
  const cursors = pages.of === `${order} ${state}` ? pages.cursors : [null];
  const to = (next) => setPages({ of: `${order} ${state}`, cursors: next });
  const found = usePart(pathOf(study.project, study.study, "/trials", { order, state, limit: AT_ONCE, cursor: cursors[cursors.length - 1] }), study);
  // What is there stays until another page has come.
  const last = useRef(null);
  if (found.data) last.current = found.data;
  const push = html`<label class="inline">State<select aria-label="State of the trials" value=${state} onChange=${(event) => ask({ state: event.target.value })}><option value="">all</option>
      ${Object.entries(TRIAL_STATES).map(([name, [word]]) => html`<option value=${name}>${word}</option>`)}</select></label>
    <label class="inline">Order<select aria-label="Order of the trials" value=${order} onChange=${(event) => ask({ order: event.target.value })}>${ORDERS.map(([name, word]) => html`<option value=${name}>${word}</option>`)}</select></label>`;
  return html`<${Card} title="Trials" push=${push}><${Shown} of=${{ ...found, data: found.data || last.current }} what="trials" empty=${(d) => !d.items.length}
    nothing=${state ? `No trial is ${trialState(state)[0]}.` : "No trial has begun yet."}>${(d) => html`
    <${Table} caption="Trials" rows=${d.items} keyOf=${(trial) => trial.trial} columns=${columns(study, now_ms)} />
    ${(cursors.length > 1 || d.next_cursor) && html`<p class="row" style="margin:10px 0 0">
      <button disabled=${cursors.length === 1} onClick=${() => to(cursors.slice(0, -1))}>Back</button>
      <button disabled=${!d.next_cursor} onClick=${() => to([...cursors, d.next_cursor])}>Next</button><span class="sub">page ${number(cursors.length)}</span></p>`}`}<//><//>`;
}

const columns = (study, now_ms) => [
  ["Trial", (trial) => html`<a href=${`/jobs/${encodeURIComponent(trial.job_id)}`} title=${trial.job_id}>${trial.trial}</a>${trial.best ? html` <span class="tag">best</span>` : ""}${trial.enqueued ? html` <span class="tag">enqueued</span>` : ""}`, "short"],
  ["State", (trial) => html`<${Pill} word=${trialState(trial.state)[0]} token=${trialState(trial.state)[1]} />`, "short"],
  ...study.metrics.map((metric) => [metric, (trial) => number(trial.values[metric]), "num"]),
  ["Step", (trial) => number(trial.step), "num"],
  ["Parameters", (trial) => valuesOf(trial), "wide"],
  ["Device time", (trial) => (trial.ended_at_ms ? span(trial.device_s) : "–"), "num"],
  ["Began", (trial) => (trial.began_at_ms ? html`<span title=${moment(momentOf(trial.began_at_ms))}>${ago(momentOf(trial.began_at_ms), now_ms)}</span>` : trial.ended_at_ms ? "–" : "waits"), "short"],
  ["Reason", (trial) => trial.reason || "–", "wide"],
];

// One study: its state and best trials, the history of its metric, parallel coordinates or the Pareto front, importance of parameters, rungs, trials over time,
// cost, and a table of trials. It is asked again while the study goes on; what is far below is asked for when it comes near. The project is in the address.
import { html, useMemo, useRef } from "../kit.js";
import { Card, Figures, Pill, useTitle } from "../parts/bits.js";
import { Shown } from "../parts/notice.js";
import { ago, moment, number } from "../format.js";
import { momentOf } from "../model_words.js";
import { bestOf, costOf, DEFAULT_PROJECT, of, pathOf, spentOf, studyState, trialsOf, valuesOf } from "../study_words.js";
import { useClock, useData, useNear } from "../use.js";
import { Cost } from "./study/cost.js";
import { Front } from "./study/front.js";
import { Gantt } from "./study/gantt.js";
import { History } from "./study/history.js";
import { Importance } from "./study/importance.js";
import { ParallelTrials } from "./study/parallel.js";
import { Requests } from "./study/requests.js";
import { Rungs } from "./study/rungs.js";
import { Trials } from "./study/trials.js";

const EVERY_MS = 4000;
const LARGE = 2000;
const SLOW_MS = 20000;

export default function Study({ id, query }) {
  const project = query.get("project") || DEFAULT_PROJECT;
  useTitle(id);
  const slow = useRef(false);
  const found = useData(pathOf(project, id), { every_ms: slow.current ? SLOW_MS : EVERY_MS });
  const now_ms = useClock(5000);
  return html`<${Shown} of=${found} what="the study">${(study) => {
    slow.current = study.state === "ENDED" || trialsOf(study) > LARGE;
    const [word, token] = studyState(study.state);
    return html`
      <div class="title"><h1>${study.study}</h1><span class="sub">project ${study.project}</span>
        ${study.state !== "ENDED" && html`<span class=${`live ${found.error ? "off" : "on"}`}>${found.error ? "not up to date" : "live"}</span>`}</div>
      <${Figures} items=${facts(study, word, token, now_ms)} />
      ${study.reason && html`<p class="sub wrap">${study.reason}</p>`}
      <${Requests} study=${study} changed=${found.reload} />
      <${Parts} key=${`${study.project}/${study.study}`} study=${study} query=${query} />`;
  }}<//>`;
}

// All that is drawn, anew only when the study or the address has changed: a clock that goes on, or an answer without news, draws nothing.
function Parts({ study, query }) {
  return useMemo(() => html`<div class="grid">
    <${History} study=${study} query=${query} />
    ${study.metrics.length > 1 && html`<${Near} title="Pareto front">${() => html`<${Front} study=${study} query=${query} />`}<//>`}
    <${Near} title="Parallel coordinates">${() => html`<${ParallelTrials} study=${study} query=${query} />`}<//>
    <${Near} title="Importance of parameters" width="w6">${() => html`<${Importance} study=${study} query=${query} />`}<//>
    <${Cost} study=${study} />
    ${study.early_stopping !== "none" && html`<${Near} title="Rungs">${() => html`<${Rungs} study=${study} />`}<//>`}
    <${Near} title="Trials over time">${() => html`<${Gantt} study=${study} />`}<//>
    <${Near} title="Trials">${() => html`<${Trials} study=${study} query=${query} />`}<//>
  </div>`, [study.updated_at_ms, study.state, String(query)]);
}

// A card of its own for what is not near yet.
function Near({ title, width, children }) {
  const [place, near] = useNear();
  return html`<div ref=${place} class=${width || null}>${near ? children() : html`<${Card} title=${title}><div style="min-height:220px"></div><//>`}</div>`;
}

const facts = (s, word, token, now_ms) => [
  ["State", html`<${Pill} word=${word} token=${token} />`],
  [s.metrics.length > 1 ? "Best" : `Best ${s.metrics[0]} (${s.modes[0]})`, s.best.length === 1 ? html`<span title=${valuesOf(s.best[0])}>${bestOf(s)}</span> <a href=${`/jobs/${encodeURIComponent(s.best[0].job_id)}`}>trial ${s.best[0].trial}</a>` : bestOf(s)],
  ["Trials", of(number(trialsOf(s)), s.budget_trials === null ? null : number(s.budget_trials))],
  ["Device time", spentOf(s)],
  ...(costOf(s) ? [["Cost", costOf(s)]] : []),
  ["At the same time", number(s.parallel)],
  ["Sampler", s.sampler],
  ["Early stopping", s.early_stopping],
  ["By", s.user],
  ["Created", html`<span title=${moment(momentOf(s.created_at_ms))}>${ago(momentOf(s.created_at_ms), now_ms)}</span>`],
];

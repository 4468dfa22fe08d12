// All studies, the newest first: state, best value, trials and device time of what they may take.
import { html, useMemo, useState } from "../kit.js";
import { Card, Pill, useTitle } from "../parts/bits.js";
import { Shown } from "../parts/notice.js";
import { Table } from "../parts/table.js";
import { ago, moment, number, plural } from "../format.js";
import { momentOf } from "../model_words.js";
import { addressOf, bestOf, of, spentOf, studyState, trialsOf } from "../study_words.js";
import { useClock } from "../use.js";
import { useAll } from "../all.js";

const EVERY_MS = 10000;
const SHOWN_AT_ONCE = 200;

export default function Studies() {
  useTitle("Studies");
  const found = useAll("/v1/hpo/studies", EVERY_MS);
  const [word, setWord] = useState("");
  const [most, setMost] = useState(SHOWN_AT_ONCE);
  const now_ms = useClock(10000);
  const rows = useMemo(() => (found.data || []).filter((s) => textOf(s).includes(word.toLowerCase().trim())), [found.data, word]);
  const search = (event) => { setWord(event.target.value); setMost(SHOWN_AT_ONCE); };
  return html`
    <div class="title"><h1>Studies</h1><span class="sub" role="status">${found.data ? `${number(rows.length)} of ${plural(found.data.length, "study", "studies")}` : ""}</span></div>
    <${Card} title="All studies" push=${html`<label><span class="hidden">Filter studies</span><input data-search type="search" value=${word} placeholder="Filter ( / )" onInput=${search} /></label>`}>
      <${Shown} of=${found} what="studies" empty=${(d) => !d.length}
        nothing=${html`No study was begun yet. A study tries values of hyperparameters, each trial as a job: <code>trainhouse study create study.yaml</code>`}>${() => (rows.length ? html`
        <${Table} caption="Studies, the newest first" rows=${rows.slice(0, most)} keyOf=${(s) => `${s.project}/${s.study}`} columns=${columns(now_ms)} />
        ${rows.length > most && html`<p class="row" style="margin:10px 0 0"><span class="sub">The first ${number(most)} of ${number(rows.length)}.</span><button onClick=${() => setMost(most + SHOWN_AT_ONCE)}>Show more</button></p>`}`
        : html`<p class="notice">No study fits “${word}”.</p>`)}<//><//>`;
}

const textOf = (s) => `${s.study} ${s.project} ${studyState(s.state)[0]} ${s.user} ${s.sampler} ${s.early_stopping} ${s.metrics.join(" ")}`.toLowerCase();

const columns = (now_ms) => [
  ["Study", (s) => html`<a href=${addressOf(s)}><b>${s.study}</b></a>`, "name"],
  ["State", (s) => html`<span title=${s.reason}><${Pill} word=${studyState(s.state)[0]} token=${studyState(s.state)[1]} /></span>`, "short"],
  ["Best", (s) => bestOf(s), "num"],
  ["Trials", (s) => of(number(trialsOf(s)), s.budget_trials === null ? null : number(s.budget_trials)), "num"],
  ["Spent", (s) => spentOf(s), "num"],
  ["Metric", (s) => s.metrics.map((name, i) => `${name} (${s.modes[i]})`).join(", "), "name"],
  ["Project", (s) => s.project, "name"],
  ["Sampler", (s) => `${s.sampler}${s.early_stopping === "none" ? "" : `, ${s.early_stopping}`}`, "short"],
  ["By", (s) => s.user, "name"],
  ["Created", (s) => html`<span title=${moment(momentOf(s.created_at_ms))}>${ago(momentOf(s.created_at_ms), now_ms)}</span>`, "short"],
];

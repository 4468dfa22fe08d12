// All models: champion and since when, staging, the newest result with its verdict against the champion, emergencies that wait for review.
import { html, useMemo, useState } from "../kit.js";
import { Card, Pill, useTitle } from "../parts/bits.js";
import { Shown } from "../parts/notice.js";
import { Table } from "../parts/table.js";
import { ago, moment, number, plural } from "../format.js";
import { addressOf, figureOf, momentOf, VERDICTS } from "../model_words.js";
import { useClock } from "../use.js";
import { useAll } from "../all.js";

const EVERY_MS = 15000;
const SHOWN_AT_ONCE = 200;

export default function Models() {
  useTitle("Models");
  const found = useAll("/v1/models?brief=true", EVERY_MS);
  const [word, setWord] = useState("");
  const [most, setMost] = useState(SHOWN_AT_ONCE);
  const now_ms = useClock(10000);
  const rows = useMemo(() => (found.data || []).filter((m) => textOf(m).includes(word.toLowerCase().trim())), [found.data, word]);
  const search = (event) => { setWord(event.target.value); setMost(SHOWN_AT_ONCE); };
  return html`
    <div class="title"><h1>Models</h1><span class="sub" role="status">${found.data ? `${number(rows.length)} of ${plural(found.data.length, "model")}` : ""}</span></div>
    <${Card} title="All models" push=${html`<label><span class="hidden">Filter models</span><input data-search type="search" value=${word} placeholder="Filter ( / )" onInput=${search} /></label>`}>
      <${Shown} of=${found} what="models" empty=${(d) => !d.length}
        nothing=${html`No model was registered yet. Make a job's checkpoint the first version of one: <code>trainhouse models register NAME JOB</code>`}>${() => (rows.length ? html`
        <${Table} caption="Models, by project and name" rows=${rows.slice(0, most)} keyOf=${(m) => `${m.project}/${m.name}`} columns=${columns(now_ms)} />
        ${rows.length > most && html`<p class="row" style="margin:10px 0 0"><span class="sub">The first ${number(most)} of ${number(rows.length)}.</span><button onClick=${() => setMost(most + SHOWN_AT_ONCE)}>Show more</button></p>`}`
        : html`<p class="notice">No model fits “${word}”.</p>`)}<//><//>`;
}

const textOf = (m) => `${m.name} ${m.project} ${m.champion ? `champion ${m.champion.semver}` : ""} ${m.result?.suite || ""} ${m.result?.verdict || ""} ${m.emergencies.length ? "emergency review" : ""} ${Object.entries(m.tags).flat().join(" ")}`.toLowerCase();

const versionOf = (v) => (v ? html`${v.version} <span class="sub">(${v.semver})</span>` : "–");

const columns = (now_ms) => [
  ["Model", (m) => html`<a href=${addressOf(m.project, m.name)}><b>${m.name}</b></a>${m.emergencies.length ? html` <span class="tag">emergency to review</span>` : ""}`, "name"],
  ["Project", (m) => m.project, "name"],
  ["Champion", (m) => (m.champion ? versionOf(m.champion) : "none"), "short"],
  ["Since", (m) => (m.champion ? html`<span title=${moment(momentOf(m.champion.since_ms))}>${ago(momentOf(m.champion.since_ms), now_ms)}</span>` : "–"), "short"],
  ["In staging", (m) => versionOf(m.staging), "short"],
  ["Newest result", (m) => (m.result ? html`${m.result.metric === null ? m.result.suite : html`${m.result.suite}/${m.result.metric} <b>${figureOf(m.result)}</b>`} <span class="sub">of ${m.result.version}</span>` : "–")],
  ["Against the champion", (m) => (m.result?.verdict ? html`<${Pill} word=${m.result.verdict} token=${VERDICTS[m.result.verdict] || "--s-unknown"} />` : "–"), "short"],
  ["Versions", (m) => number(m.version_count), "num"],
];

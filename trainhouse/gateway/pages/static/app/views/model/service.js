// A model in service: which versions were observed, how good they are live beside offline, whether their data drifted, how fresh they are.
// The version whose drift is shown (?live=) and the days that count (?days=) are in the address.
import { html, useEffect, useRef } from "../../kit.js";
import { Card, Pill } from "../../parts/bits.js";
import { Empty, Shown } from "../../parts/notice.js";
import { Table } from "../../parts/table.js";
import { ago, moment, number, plural } from "../../format.js";
import { dataOf, daysOf, inProject, isVersion, momentOf, pathOf, shortData, STAGES } from "../../model_words.js";
import { ask } from "../../router.js";
import { useData } from "../../use.js";
import { Alert } from "../overview/causes.js";
import { Drift } from "./service_drift.js";
import { Quality } from "./service_quality.js";

const EVERY_MS = 60000;
const DAYS = ["1", "7", "30", "90"];
const WEEK = "7";

export function Service({ model, query, pulse, now_ms }) {
  const days = DAYS.includes(query.get("days")) ? query.get("days") : WEEK;
  const wanted = query.get("live");
  const found = useData(pathOf(model.project, model.name, "/live", { days, version: wanted && isVersion(wanted) ? wanted : null }), { every_ms: EVERY_MS });
  useEffect(() => { if (pulse) found.reload(); }, [pulse]);
  // What is there stays until what was chosen instead has come.
  const last = useRef(null);
  if (found.data) last.current = found.data;
  const choose = html`<label class="inline">Windows of<select value=${days} onChange=${(event) => ask({ days: event.target.value === WEEK ? null : event.target.value })}>
    ${DAYS.map((n) => html`<option value=${n}>${plural(Number(n), "day")}</option>`)}</select></label>`;
  return html`<${Card} title="Live" push=${choose}><${Shown} of=${{ ...found, data: found.data || last.current }} what="what is live">${(live) => html`
    ${live.alerts.length > 0 && html`<ul class="list" aria-label="Open alerts of this model">${live.alerts.map((one) => html`<li key=${`${one.rule}/${one.since_ms}`}><${Alert} alert=${{ ...one, since: momentOf(one.since_ms) }} now_ms=${now_ms} /></li>`)}</ul>`}
    ${live.unknown.length > 0 && html`<p class="notice warn" style="margin-bottom:12px">${live.unknown.map((one) => `${plural(one.observations, "observation")} of version ${one.version}`).join(", ")}${live.unknown_more > 0 ? `, and of ${plural(live.unknown_more, "other version")}` : ""}: the model has no such version, so they count nowhere. Send the ordinal that its versions have below.</p>`}
    ${idle(live) ? html`<${Empty}><${Begin} model=${model} version=${live.versions[0]} days=${live.days} /><//>` : html`<${Observed} model=${model} live=${live} now_ms=${now_ms} />`}
    <h3 class="part">Freshness</h3><${Freshness} live=${live} model=${model} now_ms=${now_ms} />`}<//><//>`;
}

const idle = (live) => live.versions.every((v) => !v.observed && !v.reference) && !live.quality.length && !live.drift;

// What to do where nothing is there yet.
const Begin = ({ model, version, days }) => html`No predictions were observed within ${plural(days, "day")}. Record what they are compared with, then let the server, or a program that reads its logs, send each window: <code>${`trainhouse models reference ${named(model, version)} --dataset DATASET@VERSION${inProject(model)}`}</code> and <code>${observing(model, version)}</code>, or <code>POST /v1/models/${model.name}/references</code> and <code>/observations</code>.`;

const named = (model, version) => `${model.name}@${version ? version.version : "VERSION"}`;
const observing = (model, version) => `trainhouse models observe ${named(model, version)} --since 1h --inputs in.parquet --outputs out.parquet${inProject(model)}`;

function Observed({ model, live, now_ms }) {
  const chosen = live.versions.find((v) => v.version === live.version);
  const silent = live.versions.filter((v) => !v.observed);
  return html`<h3>Versions in service</h3>
    <${Table} caption="Versions in service, the champion first" rows=${live.versions} keyOf=${(v) => v.version} columns=${columns(live, now_ms)} />
    ${silent.length > 0 && html`<p class="sub">No predictions of ${versionsIn(silent)} within ${plural(live.days, "day")}. ${silent[0].stage === "staging" ? "In shadow, a server asks it too and answers with the champion's. " : ""}<code>${observing(model, silent[0])}</code> sends a window, as does <code>POST /v1/models/${model.name}/observations</code>.</p>`}
    <h3 class="part">Quality, live beside offline</h3><${Quality} model=${model} live=${live} />
    ${chosen && html`<h3 class="part">${`Drift of version ${chosen.version}, ${chosen.stage}`}</h3><${Drift} key=${chosen.version} model=${model} version=${chosen} drift=${live.drift} now_ms=${now_ms} />`}`;
}

const versionsIn = (versions) => `version${versions.length === 1 ? "" : "s"} ${versions.map((v) => v.version).join(", ")}`;

const when = (at_ms, now_ms) => html`<span title=${moment(momentOf(at_ms))}>${ago(momentOf(at_ms), now_ms)}</span>`;

function DriftWord({ drift }) {
  if (!drift) return "not measured";
  const word = drift.drifted ? `${number(drift.drifted)} of ${plural(drift.compared, "field")} drifted` : `none of ${plural(drift.compared, "field")} drifted`;
  return html`<${Pill} word=${word} token=${drift.drifted ? "--s-failed" : "--s-running"} />`;
}

const columns = (live, now_ms) => [
  ["Version", (v) => html`<button class="plain" aria-pressed=${v.version === live.version ? "true" : "false"} aria-label=${`Show drift of version ${v.version}`} onClick=${() => ask({ live: v.version })}>${v.version} (${v.semver})</button>`, "short"],
  ["Stage", (v) => html`<${Pill} word=${v.stage} token=${STAGES[v.stage] || "--s-unknown"} />`, "short"],
  ["Newest window", (v) => (v.observed ? when(v.observed.newest_end_ms, now_ms) : "–"), "short"], ["Drift in it", (v) => html`<${DriftWord} drift=${v.drift} />`, "short"],
  ["Predictions", (v) => (v.observed ? number(v.observed.predictions) : "none"), "num"], ["Labels", (v) => (v.observed ? number(v.observed.labels) : "none"), "num"],
  ["Reference", (v) => (v.reference ? html`<span title=${v.reference.source}>${shortData(v.reference.source)}</span> <span class="sub">(${plural(v.reference.samples, "sample")})</span>` : "none"), "field"],
];

function Freshness({ live, model, now_ms }) {
  if (!live.freshness.length) return html`<${Empty}>The tables do not have its versions yet: they follow within seconds.<//>`;
  return html`<${Table} caption="Age of versions and of their data" rows=${live.freshness} keyOf=${(row) => `${row.version} ${row.data}`} columns=${freshColumns(live, now_ms)} />
    ${live.freshness.some((row) => row.versions_behind > 0) && html`<p class="sub">A job on newer data: <code>trainhouse submit --register ${model.name} --data DATASET@VERSION -- …</code></p>`}`;
}

function Behind({ row, now_ms }) {
  if (row.versions_behind === null) return html`<${Pill} word="not known" token="--s-unknown" />`;
  if (!row.versions_behind) return html`<${Pill} word="the newest" token="--s-running" />`;
  return html`<${Pill} word=${`${plural(row.versions_behind, "version")} behind`} token="--s-doubt" /> <span class="sub">since ${when(row.behind_since_ms, now_ms)}</span>`;
}

const freshColumns = (live, now_ms) => [
  ["Version", (row) => row.version, "short"], ["Stage", (row) => { const { stage } = live.versions.find((v) => v.version === row.version); return html`<${Pill} word=${stage} token=${STAGES[stage] || "--s-unknown"} />`; }, "short"],
  ["Age", (row) => daysOf(row.age_days), "num"],
  ["Data", (row) => { if (!row.data) return "not known"; const one = dataOf(row.data); return one.href ? html`<a href=${one.href} title=${row.data}>${one.text}</a>` : html`<span title=${row.data}>${one.text}</span>`; }, "field"],
  ["Age of data", (row) => daysOf(row.data_age_days), "num"], ["Newer versions of it", (row) => html`<${Behind} row=${row} now_ms=${now_ms} />`, "short"],
];

// One dataset: its versions, and of one of them splits, fields, drift against the version before, shards in quarantine; jobs that read it.
import { html, useState } from "../kit.js";
import { Card, Figures, JobState, useTitle } from "../parts/bits.js";
import { Empty, Shown } from "../parts/notice.js";
import { MadeModels } from "../parts/made_models.js";
import { Table } from "../parts/table.js";
import { ask } from "../router.js";
import { ago, bytes, moment, number, share } from "../format.js";
import { useClock, useData } from "../use.js";

const EVERY_MS = 15000;
const SHOWN_CHARS = 12;

export default function Dataset({ id, query }) {
  useTitle(id);
  const path = `/v1/datasets/${encodeURIComponent(id)}`;
  const versions = useData(`${path}?limit=1000`, { every_ms: EVERY_MS });
  const drift = useData(`${path}/measured-drift`, { every_ms: EVERY_MS });
  const shards = useData(`${path}/quarantine`, { every_ms: EVERY_MS });
  const jobs = useData(`${path}/jobs`, { every_ms: EVERY_MS });
  const [wanted, setWanted] = useState(query.get("version"));
  const now_ms = useClock(10000);
  const choose = (sha256) => { setWanted(sha256); ask({ version: sha256 }); };
  return html`<${Shown} of=${versions} what="the dataset">${(d) => {
    const version = d.items.find((v) => v.sha256 === wanted || v.tags.includes(wanted)) || d.items[0];
    return html`
      <div class="title"><h1>${id}</h1><span class="sub">${shortName(version)}</span>${version.deprecated ? html`<span class="tag">deprecated</span>` : ""}</div>
      ${version.deprecated ? html`<p class="notice warn">Deprecated ${moment(version.deprecated_at)} by ${version.deprecated_by}: ${version.deprecated_reason}. No new job may name this version.</p>` : ""}
      <${Figures} items=${facts(version, now_ms)} />
      <div class="grid">
        <${Card} title="Versions"><${Table} caption="Versions, the newest first" rows=${d.items} keyOf=${(v) => v.sha256} columns=${versionColumns(version, choose, now_ms)} /><//>
        <${Card} title="Splits"><${Table} caption="Splits of the version" rows=${splitsOf(version)} keyOf=${(s) => s.name} columns=${splitColumns(version)} /><//>
        <${Card} title="Fields"><${Fields} version=${version} /><//>
        <${Card} title="Drift against the version before"><${Shown} of=${drift} what="drift">${(m) => html`<${Drift} rows=${m.items} version=${version} versions=${d.items} />`}<//><//>
        <${Card} title="Shards in quarantine"><${Shown} of=${shards} what="shards" empty=${(s) => !s.items.length}
          nothing=${html`No shard of any version was ever found bad. <code>trainhouse data verify ${named(version)}</code> reads all of this version.`}>${(s) => html`
          <${Table} caption="Shards in quarantine, the newest first" rows=${s.items} keyOf=${(x) => x.version + x.shard} columns=${shardColumns(d.items)} />`}<//><//>
        <${Card} title="Jobs that read it"><${Shown} of=${jobs} what="jobs" empty=${(j) => !j.items.length}
          nothing=${html`No job has named it yet: <code>trainhouse submit --data ${named(version)} -- python train.py</code>`}>${(j) => html`
          <${Table} caption="Jobs that read it, the newest first" rows=${j.items} keyOf=${(x) => x.job_id + x.version} columns=${jobColumns(d.items, now_ms)} />`}<//><//>
        <${MadeModels} path=${path} title="Models trained on it" now_ms=${now_ms} nothing=${html`No model was registered from a job that read it: <code>trainhouse models register NAME JOB</code>`} />
      </div>`;
  }}<//>`;
}

const shortName = (v) => (v.tags.length ? v.tags.join(", ") : `sha256:${v.sha256.slice(0, SHOWN_CHARS)}…`);
const named = (v) => `${v.dataset}@${v.tags.length ? v.tags[v.tags.length - 1] : `sha256:${v.sha256}`}`;

// The name of a version by its tag, of those that the page has.
function nameIn(versions, full) {
  const version = versions.find((v) => v.version === full);
  return version ? shortName(version) : `sha256:${full.split("@sha256:")[1]?.slice(0, SHOWN_CHARS) || full}…`;
}

const facts = (v, now_ms) => [
  ["Rows", number(v.row_count)], ["Size", bytes(v.bytes)], ["Published", ago(v.published_at, now_ms)], ["By", v.created_by], ["Project", v.project],
  ["Licence", v.licence || "–"], ["Purposes", v.purposes.length ? v.purposes.join(", ") : "any"], ["Hash", html`<code title=${v.sha256}>${v.sha256.slice(0, SHOWN_CHARS)}…</code>`],
];

const versionColumns = (chosen, choose, now_ms) => [
  ["Version", (v) => html`<button class="plain" aria-pressed=${v.sha256 === chosen.sha256 ? "true" : "false"} aria-label=${`Show version ${shortName(v)}`} onClick=${() => choose(v.sha256)}>${shortName(v)}</button>`],
  ["Published", (v) => ago(v.published_at, now_ms), "short"], ["By", (v) => v.created_by], ["Rows", (v) => number(v.row_count), "num"], ["Size", (v) => bytes(v.bytes), "num"],
  ["Splits", (v) => v.splits.join(", ")], ["Schema", (v) => html`<code title=${v.schema_hash}>${v.schema_hash.slice(0, 8)}</code>`],
  ["Deprecated", (v) => (v.deprecated ? v.deprecated_reason : ""), "wide"],
];

const splitsOf = (v) => v.splits.map((name, i) => ({ name, samples: v.split_samples[i], bytes: v.split_bytes[i], shards: v.split_shards[i] }));

const splitColumns = (v) => [
  ["Split", (s) => s.name], ["Rows", (s) => number(s.samples), "num"], ["Share", (s) => share(s.samples, v.row_count), "num"],
  ["Size", (s) => bytes(s.bytes), "num"], ["Shards", (s) => number(s.shards), "num"],
];

function Fields({ version }) {
  if (!version.field_names.length) return html`<${Empty}>The tables do not have the fields of this version. <code>trainhouse data show ${named(version)}</code> reads them from its manifest.<//>`;
  const rows = version.field_names.map((name, i) => ({ name, type: version.field_types[i], optional: version.field_optional[i] }));
  return html`<${Table} caption="Fields of a sample" rows=${rows} keyOf=${(f) => f.name} columns=${FIELDS} />`;
}

const FIELDS = [["Field", (f) => html`<code>${f.name}</code>`], ["Type", (f) => f.type], ["In each sample", (f) => (f.optional ? "no" : "yes")]];

function Drift({ rows, version, versions }) {
  const own = rows.filter((row) => row.version === version.version);
  if (!own.length) {
    return html`<${Empty}>${versions[versions.length - 1] === version ? "It is the first version: there is none before it to compare it with."
      : html`It was not compared when it was published. <code>trainhouse data drift ${named(version)}</code> compares it now.`}<//>`;
  }
  const { against, fields_compared: compared, fields_drifted: drifted, fields_changed: changed } = own[0];
  return html`<p class="sub">Against ${nameIn(versions, against)}: ${number(drifted)} of ${number(compared)} fields drifted, ${number(changed)} came, went or have another type.</p>
    <${Table} caption="Fields against the version before" rows=${own} keyOf=${(row) => row.field} columns=${DRIFT} />`;
}

const limited = (value, limit) => (value === null ? "–" : limit === null ? number(value, 3) : `${number(value, 3)} (limit ${number(limit, 3)})`);
const missing = (part) => `${number(100 * part, 3)} %`;

const DRIFT = [
  ["Field", (r) => html`<code>${r.field}</code>`], ["Verdict", (r) => html`<span class="tag">${r.verdict.toLowerCase()}</span>`],
  ["PSI", (r) => limited(r.psi, r.psi_limit), "num"], ["KS", (r) => limited(r.ks, r.ks_limit), "num"],
  ["Missing", (r) => (r.missing === r.missing_before ? missing(r.missing) : `${missing(r.missing_before)} → ${missing(r.missing)}`), "num"], ["Reason", (r) => r.reason || "–", "wide"],
];

const shardColumns = (versions) => [
  ["Shard", (s) => html`<code title=${s.shard}>${s.shard.slice(0, SHOWN_CHARS)}…</code>`], ["Version", (s) => nameIn(versions, s.version)], ["Split", (s) => s.split || "–"],
  ["State", (s) => (s.released ? `released by ${s.released_by}${s.released_reason ? `: ${s.released_reason}` : ""}` : html`<span class="tag">in quarantine</span>`)],
  ["Fault", (s) => s.fault.replace("_", " "), "short"], ["Since (UTC)", (s) => moment(s.quarantined_at), "short"],
  ["Found by", (s) => (s.job_id ? html`<a href=${`/jobs/${s.job_id}`}>${s.job_id}</a>` : "–"), "short"],
  ["Evidence", (s) => `${s.sample ? `sample ${s.sample}: ` : ""}${s.expected ? `expected ${s.expected}, ` : ""}${s.seen ? `seen ${s.seen}` : ""}` || "–", "wide"],
];

const jobColumns = (versions, now_ms) => [
  ["Job", (j) => html`<a href=${`/jobs/${j.job_id}`}>${j.name || j.job_id}</a>`], ["State", (j) => html`<${JobState} state=${j.state} />`],
  ["Version", (j) => nameIn(versions, j.version)], ["Purpose", (j) => j.purpose || "–"], ["Submitted", (j) => ago(j.submitted_at, now_ms), "short"],
];

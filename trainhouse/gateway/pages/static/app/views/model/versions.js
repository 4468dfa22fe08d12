// Versions of a model, the newest first, a page at a time; a field shows any of them by number, semver or `champion`.
import { html } from "../../kit.js";
import { Card, Pill } from "../../parts/bits.js";
import { Table } from "../../parts/table.js";
import { ago, moment, number } from "../../format.js";
import { dataOf, momentOf, STAGES } from "../../model_words.js";
import { ask } from "../../router.js";

const MOST_NAMED = 2;
const NOTE_CHARS = 80;
const TAG_CHARS = 40;

export function Versions({ model, chosen, pages, now_ms }) {
  const show = (event) => {
    event.preventDefault();
    const word = event.target.elements.version.value.trim().replace(/^v(?=\d)/, "");
    if (word) ask({ version: word, against: null });
  };
  return html`<${Card} title="Versions" push=${html`<form class="row" onSubmit=${show}><label class="inline">Show<input data-search name="version" maxlength="64" placeholder="3, 1.2.0, champion" style="width:11rem" /></label><button>Show</button></form>`}>
    <${Table} caption="Versions, the newest first" rows=${model.versions} keyOf=${(v) => v.version} columns=${columns(chosen, now_ms)} />
    ${(!pages.first || pages.older) && html`<p class="row" style="margin:10px 0 0"><button disabled=${pages.first} onClick=${pages.newer}>Newer</button><button disabled=${!pages.older} onClick=${pages.older}>Older</button>
      ${model.versions.length > 0 && html`<span class="sub" role="status">${number(model.versions[0].version)} to ${number(model.versions[model.versions.length - 1].version)} of ${number(model.version_count)}</span>`}</p>`}<//>`;
}

const isChosen = (v, chosen) => String(v.version) === chosen || v.semver === chosen || (chosen === "champion" && v.stage === "champion");

export const Data = ({ data, most = MOST_NAMED }) => (data.length ? html`${data.slice(0, most).map((text, i) => { const one = dataOf(text); return html`${i ? ", " : ""}${one.href ? html`<a href=${one.href} title=${text}>${one.text}</a>` : html`<span title=${text}>${one.text}</span>`}`; })}
  ${data.length > most && ` and ${number(data.length - most)} more`}` : "–");

const cut = (text) => (text.length > TAG_CHARS ? `${text.slice(0, TAG_CHARS)}…` : text);

export const Tags = ({ tags }) => Object.entries(tags).map(([name, text]) => html`<span class="tag wrap" key=${name} title=${text}>${text ? `${name}=${cut(text)}` : name}</span> `);

const columns = (chosen, now_ms) => [
  ["Version", (v) => html`<button class="plain" aria-pressed=${isChosen(v, chosen) ? "true" : "false"} aria-label=${`Show version ${v.version}`} onClick=${() => ask({ version: v.version, against: null })}>${v.version}</button>`, "short"],
  ["Semver", (v) => v.semver, "short"],
  ["Stage", (v) => html`<${Pill} word=${v.stage} token=${STAGES[v.stage] || "--s-unknown"} />${v.emergency ? html` <span class="tag">emergency</span>` : ""}`, "short"],
  ["Registered", (v) => html`<span title=${moment(momentOf(v.registered_at_ms))}>${ago(momentOf(v.registered_at_ms), now_ms)}</span>`, "short"], ["By", (v) => v.registered_by, "name"],
  ["Job", (v) => html`<a href=${`/jobs/${encodeURIComponent(v.job_id)}${v.commit ? "?tab=checkpoints" : ""}`}>${v.job_id}${v.commit ? `@${v.commit}` : ""}</a>`, "name"],
  ["Data", (v) => html`<${Data} data=${v.data} />`, "name"], ["Approved by", (v) => v.approvers.join(", "), "name"],
  ["Tags", (v) => html`<${Tags} tags=${v.tags} />`, "name"], ["Notes", (v) => (v.notes.length > NOTE_CHARS ? `${v.notes.slice(0, NOTE_CHARS)}…` : v.notes), "wide"],
];

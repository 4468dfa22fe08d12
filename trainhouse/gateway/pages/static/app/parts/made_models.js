// Versions of models that were made of a job or trained on a dataset.
import { html } from "../kit.js";
import { Card, Pill } from "./bits.js";
import { Shown } from "./notice.js";
import { Table } from "./table.js";
import { ago, moment } from "../format.js";
import { addressOf, STAGES } from "../model_words.js";
import { useData } from "../use.js";

export function MadeModels({ path, title, nothing, now_ms }) {
  const found = useData(`${path}/models`);
  return html`<${Card} title=${title}><${Shown} of=${found} what="models" empty=${(d) => !d.items.length} nothing=${nothing}>${(d) => html`
    <${Table} caption=${`${title}, the newest first`} rows=${d.items} keyOf=${(m) => `${m.project}/${m.model}@${m.version}`} columns=${columns(now_ms)} />`}<//><//>`;
}

const columns = (now_ms) => [
  ["Model", (m) => html`<a href=${addressOf(m.project, m.model, m.version)}><b>${m.model}</b></a>`, "name"], ["Version", (m) => `${m.version} (${m.semver})`, "short"],
  ["Stage", (m) => html`<${Pill} word=${m.stage} token=${STAGES[m.stage] || "--s-unknown"} />`, "short"], ["Project", (m) => m.project, "name"],
  ["Job", (m) => html`<a href=${`/jobs/${encodeURIComponent(m.job_id)}`}>${m.job_id}${m.commit ? `@${m.commit}` : ""}</a>`, "name"],
  ["Registered", (m) => html`<span title=${moment(m.registered_at)}>${ago(m.registered_at, now_ms)}</span>`, "short"], ["By", (m) => m.registered_by, "name"],
];

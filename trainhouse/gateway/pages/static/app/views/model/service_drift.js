// Drift of one version: each field of its inputs and outputs in the newest window, its verdicts over windows, and one figure over time with its limit.
import { html, useState } from "../../kit.js";
import { Pill } from "../../parts/bits.js";
import { Curve } from "../../parts/curve.js";
import { Empty } from "../../parts/notice.js";
import { Table } from "../../parts/table.js";
import { moment, number, plural } from "../../format.js";
import { inProject, momentOf, shortData, verdictOf, verdictsInWords } from "../../model_words.js";

const MEASURES = [["psi", "PSI"], ["ks", "KS"], ["wasserstein", "Wasserstein"]];
const CELL_PX = 5;
const STRIP_PX = 18;
// Gravest is highest, so that verdicts differ without their colours.
const HEIGHTS = { DRIFTED: 1, MISSING: 0.75, TOO_FEW: 0.5, STABLE: 0.25 };

export function Drift({ model, version, drift }) {
  const [wanted, setWanted] = useState(null);
  const [measure, setMeasure] = useState("psi");
  if (!drift) return html`<${Empty}><${WhyNone} model=${model} version=${version} /><//>`;
  const field = drift.fields.find((one) => keyOf(one) === wanted) || drift.fields.find((one) => one.psi.some((value) => value !== null)) || drift.fields[0];
  const newest = drift.windows[drift.windows.length - 1];
  return html`<p class="sub wrap" style="margin-top:0">Newest window: ${moment(momentOf(newest.start_ms))} to ${moment(momentOf(newest.end_ms))} (UTC), ${plural(newest.predictions, "prediction")}, against <span title=${drift.reference}>${shortData(drift.reference)}</span> (${plural(drift.reference_count, "sample")}).
      A limit is what the reference differs from itself by at these sizes.</p>
    <${Table} caption="Fields of the newest window, those that drifted first" rows=${drift.fields} keyOf=${keyOf} columns=${columns(field, setWanted)} />
    <${Over} drift=${drift} field=${field} measure=${measure} setMeasure=${setMeasure} />`;
}

const keyOf = (field) => `${field.side} ${field.field}`;

function WhyNone({ model, version }) {
  const of = `${model.name}@${version.version}`;
  if (!version.reference) return html`Drift is not measured: the version has no reference. <code>trainhouse models reference ${of} --dataset DATASET@VERSION${inProject(model)}</code> records one, as does <code>POST /v1/models/${model.name}/references</code>.`;
  if (!version.observed || !version.observed.windows) return html`Drift is not measured: no window with histograms came. <code>trainhouse models observe ${of} --since 1h --inputs in.parquet --outputs out.parquet${inProject(model)}</code> sends one, as does <code>POST /v1/models/${model.name}/observations</code>.`;
  return html`Drift is not measured yet: the process of alerts measures new windows each quarter of a minute, where <code>trainhouse[evaluation]</code> is installed.`;
}

const last = (values) => values[values.length - 1];
const beyond = (value, limit) => value !== null && limit !== null && value > limit;

function Figure({ field, measure }) {
  const [value, limit] = [last(field[measure]), last(field[`${measure}_limit`])];
  if (value === null) return "–";
  const text = `${number(value, 3)} ${limit === null ? "" : `${beyond(value, limit) ? ">" : "≤"} ${number(limit, 3)}`}`;
  return beyond(value, limit) ? html`<b>${text}</b>` : text;
}

function Strip({ field }) {
  const width = CELL_PX * field.verdicts.length;
  return html`<svg width=${width} height=${STRIP_PX} role="img" aria-label=${verdictsInWords(field.verdicts)}><title>${verdictsInWords(field.verdicts)}</title>
    ${field.verdicts.map((verdict, i) => {
      const height = Math.max(2, STRIP_PX * (HEIGHTS[verdict] || 0));
      return html`<rect x=${i * CELL_PX} y=${STRIP_PX - height} width=${CELL_PX - 1} height=${height} style=${{ fill: `var(${verdictOf(verdict)[1]})` }} />`;
    })}</svg>`;
}

const columns = (chosen, choose) => [
  ["Field", (f) => html`<button class="plain" aria-pressed=${f === chosen ? "true" : "false"} aria-label=${`Show ${f.side} ${f.field} over time`} onClick=${() => choose(keyOf(f))}>${f.side} <code>${f.field}</code></button>`, "field"],
  ["Verdict", (f) => { const [word, token] = verdictOf(f.verdict); return html`<${Pill} word=${word} token=${token} />`; }, "short"],
  ["Over windows", (f) => html`<div class="beside"><${Strip} field=${f} /><span class="sub">${`${number(f.verdicts.filter((v) => v === "DRIFTED").length)} of ${number(f.verdicts.length)} drifted`}</span></div>`, "short"],
  ...MEASURES.map(([measure, word]) => [word, (f) => html`<${Figure} field=${f} measure=${measure} />`, "num"]),
  ["Reason", (f) => f.reason || "–", "wide reason"],
];

function Over({ drift, field, measure, setMeasure }) {
  const name = `${field.side} ${field.field}`;
  if (MEASURES.every(([one]) => field[one].every((value) => value === null))) return html`<${Empty}>${name} has no figure over time: texts are compared by how often each one is, and the reason says which.<//>`;
  const word = MEASURES.find(([one]) => one === measure)[1];
  return html`<div class="row" style="margin:12px 0 6px"><b class="wrap">${name} over time</b><span class="row" role="group" aria-label="Figure over time">${MEASURES.map(([one, text]) => html`<button key=${one} aria-pressed=${one === measure ? "true" : "false"} onClick=${() => setMeasure(one)}>${text}</button>`)}</span></div>
    <${Curve} label=${`${word} of ${name}`} x=${drift.windows.map((w) => w.end_ms / 1000)} x_name="end of the window (UTC)" time zero height=${200}
      series=${[{ label: word, token: "--c1", mean: field[measure] }, { label: "limit", token: "--c2", dash: true, mean: field[`${measure}_limit`] }]} />`;
}

// One version: what it is made of, the gate's conditions with their numbers, its results, a comparison, lineage, its card.
import { html, useEffect } from "../../kit.js";
import { Card, Figures, Pill } from "../../parts/bits.js";
import { Graph } from "../../parts/graph.js";
import { Shown } from "../../parts/notice.js";
import { Table } from "../../parts/table.js";
import { ago, bytes, moment, number } from "../../format.js";
import { inProject, isVersion, momentOf, pathOf, STAGES } from "../../model_words.js";
import { useData, useNear } from "../../use.js";
import { ModelCard, Notes } from "./card.js";
import { Comparison, Results } from "./results.js";
import { VersionRequests } from "./requests.js";
import { Data, Tags } from "./versions.js";

const EVERY_MS = 15000;

export function Version(given) {
  if (isVersion(given.selector)) return html`<${One} ...${given} />`;
  return html`<${Card} title="Version"><p class="notice bad" role="alert">${given.selector} names no version: 3, 1.2.0 or champion does.</p><//>`;
}

function One({ model, selector, against, pulse, changed, now_ms }) {
  const part = `/versions/${encodeURIComponent(selector)}`;
  const found = useData(pathOf(model.project, model.name, part), { every_ms: EVERY_MS });
  const why = useData(pathOf(model.project, model.name, `${part}/why`), { every_ms: EVERY_MS });
  useEffect(() => { if (pulse) { found.reload(); why.reload(); } }, [pulse]);
  return html`<${Shown} of=${found} what="the version">${(v) => html`
    <${Card} title=${`Version ${v.version}`}>
      <p class="sub" style="margin-top:0"><${Pill} word=${v.stage} token=${STAGES[v.stage] || "--s-unknown"} /> ${v.withdrawn && html`<span class="tag">archived by a person</span> `}<${Tags} tags=${v.tags} /></p>
      <${Figures} items=${facts(v, now_ms)} />
      ${v.notes && html`<${Notes} text=${v.notes} />`}
      <${VersionRequests} model=${model} version=${v} evidence=${why.data?.evidence} changed=${changed} />
    <//>
    <${Card} title=${`Gate for version ${v.version}`}><${Shown} of=${why} what="the gate">${(w) => html`<${Gate} why=${w} model=${model} version=${v} />`}<//><//>
    <${Card} title=${`Results of version ${v.version}`}><${Results} version=${v} model=${model} now_ms=${now_ms} /><//>
    <${Comparison} model=${model} version=${v} against=${against} />
    <${Lineage} id=${v.lineage_id} />
    <${ModelCard} path=${pathOf(model.project, model.name, `${part}/card`)} version=${v} />`}<//>`;
}

const facts = (v, now_ms) => [
  ["Semver", v.semver], ["Registered", html`<span title=${moment(momentOf(v.registered_at_ms))}>${ago(momentOf(v.registered_at_ms), now_ms)}</span>`], ["By", v.registered_by || "–"], ["Trained by", v.trained_by || "not known"],
  ["Job", html`<a class="wrap" href=${`/jobs/${encodeURIComponent(v.job_id)}`}>${v.job_id}</a>`],
  [
    "Checkpoint",
    v.commit
      ? html`<a href=${`/jobs/${encodeURIComponent(v.job_id)}?tab=checkpoints`}>${number(v.commit)}</a>`
      : "none: files that a client logged",
  ],
  ["Data", html`<${Data} data=${v.data} most=${4} />`], ["Framework", v.framework || "–"], ["Size", bytes(v.size_bytes)], ["Content", html`<code title=${v.content}>${v.content.slice(0, 12)}…</code>`],
];

function Gate({ why, model, version }) {
  const state = version.stage === "champion" ? "It is champion." : why.met ? "All conditions are met: it may be promoted." : "It cannot be promoted yet.";
  const words = [version.approvers.length && `Approved by ${version.approvers.join(", ")}.`, version.rejecters.length && `Rejected by ${version.rejecters.join(", ")}.`,
    version.missing?.length && `Not known of its lineage: ${version.missing.join(", ")}.`].filter(Boolean);
  return html`<p class="sub" style="margin-top:0"><strong>${state}</strong> ${words.join(" ")} ${model.gate_version ? `Gate of version ${number(model.gate_version)}.` : html`It has the default gate; <code>trainhouse models gate apply ${model.name} gate.yaml${inProject(model)}</code> gives it another.`}</p>
    ${why.conditions.length ? html`<${Table} caption="Conditions of the gate, with their numbers" rows=${why.conditions} keyOf=${(c) => c.name} columns=${CONDITIONS} />` : html`<p class="notice">The gate has no condition.</p>`}`;
}

const CONDITIONS = [
  ["Condition", (c) => c.name, "name"], ["Met", (c) => html`<${Pill} word=${c.met ? "met" : "not met"} token=${c.met ? "--s-running" : "--s-failed"} />`, "short"],
  ["Value", (c) => number(c.value), "num"], ["Limit", (c) => number(c.limit), "num"], ["In words", (c) => c.detail, "wide"],
];

function Lineage({ id }) {
  const [box, near] = useNear();
  return html`<div ref=${box}><${Card} title="Lineage">${near ? html`<${Edges} id=${id} />` : html`<p class="notice">It is read when it comes into view.</p>`}<//></div>`;
}

function Edges({ id }) {
  const found = useData(`/v1/lineage?id=${encodeURIComponent(id)}`);
  return html`<${Shown} of=${found} what="the lineage" empty=${(d) => !d.items.length}
    nothing="The tables do not have its lineage yet: it follows from the checkpoint that was registered, within seconds.">${(d) => html`<${Graph} edges=${d.items} things=${d.things} self=${id} />`}<//>`;
}

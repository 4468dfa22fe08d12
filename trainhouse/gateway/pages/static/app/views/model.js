// One model: which version was champion when, how it does in service, its versions, and of one of them the gate, results, a comparison, lineage, its card. The project
// (?project=), the version (?version=) and the one that it is compared with (?against=) are in the address.
import { html, useRef, useState } from "../kit.js";
import { Card, Figures, useTitle } from "../parts/bits.js";
import { Empty, Shown } from "../parts/notice.js";
import { ago, moment, number } from "../format.js";
import { DEFAULT_PROJECT, momentOf, pathOf } from "../model_words.js";
import { ask } from "../router.js";
import { useClock, useData } from "../use.js";
import { Champions } from "./model/champions.js";
import { Emergencies, RollBack } from "./model/requests.js";
import { History } from "./model/history.js";
import { Notes } from "./model/card.js";
import { Service } from "./model/service.js";
import { Version } from "./model/version.js";
import { Tags, Versions } from "./model/versions.js";

const EVERY_MS = 15000;
const AT_ONCE = 50;

export default function Model({ id, query }) {
  const project = query.get("project") || DEFAULT_PROJECT;
  useTitle(id);
  const [cursors, setCursors] = useState([null]);
  const found = useData(pathOf(project, id, "", { brief: true, limit: AT_ONCE, cursor: cursors[cursors.length - 1] }), { every_ms: EVERY_MS });
  // Bumped by each answer to a request, so that all parts ask again.
  const [pulse, setPulse] = useState(0);
  const now_ms = useClock(10000);
  // What is there stays until another page of versions has come.
  const last = useRef(null);
  if (found.data) last.current = found.data;
  const before = last.current?.project === project ? last.current : null;
  const of = { ...found, data: found.data || before };
  const changed = () => { found.reload(); setPulse((n) => n + 1); };
  return html`<${Shown} of=${of} what="the model">${(model) => {
    const chosen = query.get("version") || String(firstOf(model));
    return html`
      <div class="title"><h1>${model.name}</h1><span class="sub">project ${model.project}</span>
        <div class="push"><${RollBack} model=${model} changed=${changed} /></div></div>
      <${Emergencies} model=${model} changed=${changed} />
      <${Figures} items=${facts(model, now_ms)} />
      ${Object.keys(model.tags).length > 0 && html`<p class="sub"><${Tags} tags=${model.tags} /></p>`}
      ${model.notes && html`<div style="margin-bottom:14px"><${Notes} text=${model.notes} /></div>`}
      <div class="grid">
        <${Champions} model=${model} pulse=${pulse} now_ms=${now_ms} />
        ${model.version_count ? html`
          <${Service} key=${`${model.project}/${model.name}`} model=${model} query=${query} pulse=${pulse} now_ms=${now_ms} />
          <${Versions} model=${model} chosen=${chosen} now_ms=${now_ms} pages=${{ first: cursors.length === 1, newer: () => setCursors(cursors.slice(0, -1)),
            older: model.next_cursor ? () => setCursors([...cursors, model.next_cursor]) : null }} />
          <${Version} key=${chosen} model=${model} selector=${chosen} against=${query.get("against")} pulse=${pulse} changed=${changed} now_ms=${now_ms} />`
          : html`<${Card} title="Versions"><${Empty}>It has no version yet: <code>trainhouse models register ${model.name} JOB</code><//><//>`}
        <${History} model=${model} pulse=${pulse} now_ms=${now_ms} />
      </div>`;
  }}<//>`;
}

// What is looked at first: a version that came after the champion and waits, else the champion, else the newest.
function firstOf(model) {
  const champion = model.champion?.version || 0;
  return model.staging && model.staging > champion ? model.staging : champion || model.version_count;
}

const facts = (m, now_ms) => [
  ["Champion", m.champion ? html`<button class="plain figure" title="Show this version" onClick=${() => ask({ version: m.champion.version, against: null })}>${m.champion.version} (${m.champion.semver})</button>` : "none"],
  ["Since", m.champion ? html`<span title=${moment(momentOf(m.champion_since_ms))}>${ago(momentOf(m.champion_since_ms), now_ms)}</span>` : "–"],
  ["Versions", number(m.version_count)],
  ["Gate", m.gate_version ? `version ${number(m.gate_version)}` : "default"],
  ["Approvals needed", number(m.gate.approvals)],
  ...Object.entries(m.aliases).map(([alias, version]) => [`Alias ${alias}`, number(version)]),
];

export const Stage = ({ stage, token }) => html`<${Pill} word=${stage} token=${token} />`;

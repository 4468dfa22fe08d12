// Which version was champion from when to when: a band over time, and the same as a table with who decided it and why.
import { html, useEffect, useMemo } from "../../kit.js";
import { Card, Pill } from "../../parts/bits.js";
import { Shown } from "../../parts/notice.js";
import { Table } from "../../parts/table.js";
import { moment, number, span } from "../../format.js";
import { addressOf, colourOf, inProject, momentOf, pathOf } from "../../model_words.js";
import { useData, useWidth } from "../../use.js";

const EVERY_MS = 30000;
const BAND_PX = 22;
const LABEL_PX = 34;
const MOST_NAMED = 8;
const DAY_MS = 86400000;

export function Champions({ model, pulse, now_ms }) {
  const found = useData(pathOf(model.project, model.name, "/champions"), { every_ms: EVERY_MS });
  useEffect(() => { if (pulse) found.reload(); }, [pulse]);
  return html`<${Card} title="Champions over time"><${Shown} of=${found} what="the champions" empty=${(d) => !d.items.length}
    nothing=${html`No version was champion yet. Where the gate lets it: <code>trainhouse models promote ${model.name} VERSION${inProject(model)}</code>, or Promote below.`}>${(d) => html`
      <${Band} spans=${d.items} now_ms=${now_ms} />
      <details style="margin-top:10px"><summary>As a table</summary><${Table} caption="Champions, the newest first" rows=${d.items} keyOf=${(s) => `${s.began_ms} ${s.version}`}
        columns=${columns(model, now_ms)} /></details>`}<//><//>`;
}

const lastedMs = (one, now_ms) => (one.ended_ms ?? now_ms) - one.began_ms;

// spans: the newest first.
function Band({ spans, now_ms }) {
  const [box, width] = useWidth();
  const ordered = useMemo(() => [...spans].reverse(), [spans]);
  const first_ms = ordered[0].began_ms;
  const last_ms = Math.max(first_ms + 1, ...ordered.map((one) => one.ended_ms ?? now_ms));
  const x = (at_ms) => (at_ms - first_ms) / (last_ms - first_ms) * Math.max(1, width);
  const tick = (at_ms) => (last_ms - first_ms > 2 * DAY_MS ? moment(momentOf(at_ms)).slice(0, 10) : moment(momentOf(at_ms)).slice(5, 16));
  const ticks = width > 520 ? [0, 0.25, 0.5, 0.75, 1] : [0, 1];
  const named = totals(spans, now_ms);
  return html`<div class="timeline" ref=${box}>${width > 0 && html`<svg width=${width} height=${BAND_PX + 36} role="img" aria-label=${inWords(ordered)}>
      ${ordered.map((one) => {
        const [from, to] = [x(one.began_ms), x(Math.min(last_ms, one.ended_ms ?? last_ms))];
        return html`${to - from > LABEL_PX && html`<text class="dim" x=${from + 2} y="11">v${one.version}${one.emergency ? " !" : ""}</text>`}
          <rect x=${from} y="16" width=${Math.max(1.5, to - from - 0.5)} height=${BAND_PX} style=${{ fill: `var(${colourOf(one.version)})` }}><title>${wordOf(one)}</title></rect>`;
      })}
      ${ticks.map((part) => html`<text class="dim" x=${part * width} y=${BAND_PX + 32} text-anchor=${part === 0 ? "start" : part === 1 ? "end" : "middle"}>${tick(first_ms + part * (last_ms - first_ms))}</text>`)}
    </svg>`}
    <ul class="legend">${named.slice(0, MOST_NAMED).map(([version, lasted_ms]) => html`<li key=${version}><${Pill} word=${`version ${version}`} token=${colourOf(version)} square /> <b>${span(lasted_ms / 1000)}</b></li>`)}
      ${named.length > MOST_NAMED && html`<li>and ${number(named.length - MOST_NAMED)} others</li>`}</ul></div>`;
}

// How long each version was champion, the one that is or was last first.
function totals(spans, now_ms) {
  const found = new Map();
  for (const one of spans) found.set(one.version, (found.get(one.version) || 0) + lastedMs(one, now_ms));
  return [...found];
}

const wordOf = (one) => `version ${one.version} from ${moment(momentOf(one.began_ms))} to ${one.ended_ms === null ? "now" : moment(momentOf(one.ended_ms))}: ${one.how} by ${one.by}${one.emergency ? ", an emergency" : ""}${one.reason ? `: ${one.reason}` : ""}`;
const inWords = (ordered) => `Champions in order: ${ordered.slice(-30).map((one) => `version ${one.version} from ${moment(momentOf(one.began_ms))}`).join(", ")}`;

const columns = (model, now_ms) => [
  ["Version", (s) => html`<a href=${addressOf(model.project, model.name, s.version)}>${s.version} (${s.semver})</a>`, "short"],
  ["From (UTC)", (s) => moment(momentOf(s.began_ms)), "short"], ["To (UTC)", (s) => (s.ended_ms === null ? "now" : moment(momentOf(s.ended_ms))), "short"],
  ["For", (s) => span(lastedMs(s, now_ms) / 1000), "num"], ["How", (s) => `${s.how}${s.emergency ? ", emergency" : ""}`, "short"], ["By", (s) => s.by, "name"],
  ["Approved by", (s) => s.approvers.join(", ") || "–", "name"], ["Reason", (s) => s.reason || "–", "wide"],
];

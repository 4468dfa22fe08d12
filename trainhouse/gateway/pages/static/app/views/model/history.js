// Decisions about a model, the newest first, refused requests among them.
import { html, useEffect } from "../../kit.js";
import { Card } from "../../parts/bits.js";
import { Shown } from "../../parts/notice.js";
import { Table } from "../../parts/table.js";
import { ago, moment, number } from "../../format.js";
import { momentOf, pathOf } from "../../model_words.js";
import { useData } from "../../use.js";

const EVERY_MS = 30000;
const MOST = 200;

export function History({ model, pulse, now_ms }) {
  const found = useData(pathOf(model.project, model.name, "/history", { limit: MOST }), { every_ms: EVERY_MS });
  useEffect(() => { if (pulse) found.reload(); }, [pulse]);
  return html`<${Card} title="History"><${Shown} of=${found} what="the history" empty=${(d) => !d.items.length} nothing="Nothing was decided about it yet.">${(d) => html`
    <details><summary>${number(d.items.length)} newest decisions</summary><${Table} caption="Decisions, the newest first" rows=${[...d.items].reverse()} keyOf=${(e) => `${e.number || 0} ${e.request_id}`} columns=${columns(now_ms)} /></details>`}<//><//>`;
}

// trainhouse.model.version-registered.v1 → version registered
const wordOf = (e) => {
  const word = e.type.split(".")[2].replaceAll("-", " ");
  return word === "approval recorded" ? (e.approved ? "approved" : "rejected") : word === "request refused" ? `refused: ${e.request_type.split(".")[2]?.replaceAll("-", " ") || e.request_type}` : `${word}${e.emergency ? " (emergency)" : ""}`;
};

const columns = (now_ms) => [
  ["When", (e) => html`<span title=${moment(momentOf(e.at_ms))}>${ago(momentOf(e.at_ms), now_ms)}</span>`, "short"], ["What", wordOf, "name"],
  ["Version", (e) => number(e.version), "num"], ["By", (e) => e.user || "–", "name"], ["Reason", (e) => e.reason || "–", "wide"],
];

// One node: how it is, its devices, the gangs on it, verdicts on it.
import { html } from "../kit.js";
import { Card, Figures, NodeState, useTitle } from "../parts/bits.js";
import { Shown } from "../parts/notice.js";
import { Table } from "../parts/table.js";
import { ago, bytes, moment, number, percent, span } from "../format.js";
import { useClock, useData } from "../use.js";

const EVERY_MS = 5000;

export default function Node({ id }) {
  useTitle(id);
  const path = `/v1/nodes/${encodeURIComponent(id)}`;
  const node = useData(path, { every_ms: EVERY_MS });
  const gangs = useData(`${path}/gangs`, { every_ms: EVERY_MS });
  const devices = useData(`${path}/devices`, { every_ms: EVERY_MS });
  const verdicts = useData(`${path}/verdicts`, { every_ms: EVERY_MS });
  const now_ms = useClock();
  return html`<${Shown} of=${node} what="the node">${(n) => html`
    <div class="title"><h1>${n.node_id}</h1><${NodeState} state=${n.state} restriction=${n.restriction} /></div>
    ${n.restriction && n.restriction !== "NONE" && html`<p class="notice warn">${closed(n)}</p>`}
    ${n.state === "LOST" && n.lost_reason && html`<p class="notice bad">${n.lost_reason}</p>`}
    <${Figures} items=${facts(n, now_ms)} />
    ${Object.keys(n.labels || {}).length > 0 && html`<p class="row">${Object.entries(n.labels).map(([k, v]) => html`<span class="tag">${k}: ${v}</span>`)}</p>`}
    <div class="grid">
      <${Card} title="Devices"><${Shown} of=${devices} what="devices" empty=${(d) => !d.items.length} nothing="The node offers no device.">${(d) => html`
        <${Table} caption="Devices of the node" rows=${d.items} keyOf=${(x) => x.device_id} columns=${DEVICES} />`}<//><//>
      <${Card} title="Gangs on it"><${Shown} of=${gangs} what="gangs" empty=${(d) => !d.items.length} nothing="No gang was ever placed here.">${(d) => html`
        <${Table} caption="Gangs on the node, the newest first" rows=${d.items} keyOf=${(g) => `${g.job_id}/${g.epoch}`} columns=${gangColumns(now_ms)} />`}<//><//>
      <${Card} title="Verdicts"><${Shown} of=${verdicts} what="verdicts" empty=${(d) => !d.items.length} nothing="The detector has published no verdict on it.">${(d) => html`
        <${Table} caption="Verdicts on the node, the newest first" rows=${d.items} keyOf=${(v) => v.event_id} columns=${VERDICTS} />`}<//><//>
    </div>`}<//>`;
}

const closed = (n) => `Closed (${n.restriction.toLowerCase()})${n.restricted_by ? ` by ${n.restricted_by}` : ""}${n.restriction_reason ? `: ${n.restriction_reason}` : ""}`;

const facts = (n, now_ms) => [
  ["Pool", n.pool], ["Devices", `${number(n.devices)} ${n.device_type}`], ["CPUs", number(n.cpus)], ["Memory", bytes(n.memory_bytes)],
  ["Ranks", number(n.ranks_running || 0)], ["Address", n.address || "–"], ["Registered", ago(n.registered_at, now_ms)], ["Last heartbeat", ago(n.last_heartbeat_at, now_ms)],
];

const DEVICES = [
  ["Device", (d) => html`<code>${d.device_id}</code>`], ["State", (d) => (d.closed ? `${d.state.toLowerCase()} (${d.closed})` : d.state.toLowerCase())],
  ["Job", (d) => (d.job_id ? html`<a href=${`/jobs/${d.job_id}`}>${d.job_id}</a>` : "–")], ["Rank", (d) => d.rank ?? "–", "num"],
  ["Used", (d) => percent(d.utilization_pct), "num"], ["Memory", (d) => (d.memory_bytes ? `${bytes(d.memory_used_bytes)} of ${bytes(d.memory_bytes)}` : "–"), "num"],
  ["Temperature", (d) => (d.temperature_c === null ? "–" : `${number(d.temperature_c)} °C`), "num"], ["Power", (d) => (d.power_w === null ? "–" : `${number(d.power_w)} W`), "num"],
];

const gangColumns = (now_ms) => [
  ["Job", (g) => html`<a href=${`/jobs/${g.job_id}`}>${g.job_id}</a>`], ["Attempt", (g) => g.attempt, "num"], ["First rank", (g) => g.first_rank, "num"],
  ["Devices", (g) => g.devices, "num"], ["Since", (g) => moment(g.allocated_at)],
  ["For", (g) => span(((g.freed_at ? Date.parse(g.freed_at) : now_ms) - Date.parse(g.allocated_at)) / 1000), "num"],
  ["Until", (g) => (g.freed_at ? moment(g.freed_at) : "now")], ["Reason", (g) => g.reason || "–", "wide"],
];

const VERDICTS = [
  ["When (UTC)", (v) => moment(v.at)], ["Verdict", (v) => html`<span class="tag">${v.type.replace(/^trainhouse\./, "").replace(/\.v\d+$/, "")}</span>`],
  ["Summary", (v) => v.summary || v.evidence || "–", "wide"], ["Job", (v) => (v.job_id ? html`<a href=${`/jobs/${v.job_id}`}>${v.job_id}</a>` : "–")],
];

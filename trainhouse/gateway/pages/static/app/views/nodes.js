// The fleet's nodes: devices by state at a glance, then each node with its figures now and over time.
import { html, useMemo, useState } from "../kit.js";
import { Card, NodeState, useTitle } from "../parts/bits.js";
import { FleetMap } from "../parts/fleetmap.js";
import { Failed, Shown } from "../parts/notice.js";
import { Rows } from "../parts/rows.js";
import { ask, go } from "../router.js";
import { ago, clock, number, percent, plural } from "../format.js";
import { useClock, useData } from "../use.js";
import { useAll } from "../all.js";
import { METRICS, Strip, useHistory } from "./nodes/history.js";

const EVERY_MS = 10000;
const HOURS = [[1, "1 h"], [6, "6 h"], [24, "1 day"], [168, "7 days"]];
const ORDERS = { name: "name", least: "least used", most: "most used", hottest: "hottest" };
const NOTHING = html`No node has registered yet. Start an agent on a machine: <code>trainhouse run agent</code>.`;

// Nodes in an order; those that report no figure come last. Pure.
export function ordered(nodes, order, figures) {
  const [field, sign] = { least: ["utilization_pct", 1], most: ["utilization_pct", -1], hottest: ["temperature_c", -1] }[order] || [];
  if (!field) return nodes;
  const of = (node) => { const value = figures.get(node.node_id)?.[field]; return value === null || value === undefined ? Infinity : sign * value; };
  return [...nodes].sort((a, b) => { const [x, y] = [of(a), of(b)]; return x === y ? 0 : x - y; });
}

export default function Nodes({ query }) {
  useTitle("Nodes");
  const nodes = useAll("/v1/nodes", EVERY_MS);
  const devices = useData("/v1/devices", { every_ms: EVERY_MS });
  const newest = useData("/v1/fleet/figures", { every_ms: EVERY_MS });
  const [word, setWord] = useState("");
  const metric = METRICS[query.get("metric")] ? query.get("metric") : "utilization";
  const hours = HOURS.some(([n]) => String(n) === query.get("hours")) ? Number(query.get("hours")) : 6;
  const order = ORDERS[query.get("order")] ? query.get("order") : "name";
  const now_ms = useClock(5000);
  const history = useHistory(metric, hours);
  const figures = useMemo(() => new Map((newest.data?.items || []).map((one) => [one.node_id, one])), [newest.data]);
  const rows = useMemo(() => ordered((nodes.data || []).filter((n) => textOf(n).includes(word.toLowerCase().trim())), order, figures), [nodes.data, word, order, figures]);
  const choice = (label, value, name, first, options) => html`<label class="inline">${label}<select value=${value} onChange=${(e) => ask({ [name]: e.target.value === first ? null : e.target.value })}>
    ${options.map(([key, text]) => html`<option value=${key}>${text}</option>`)}</select></label>`;
  const { starts } = history;
  return html`
    <div class="title"><h1>Nodes</h1><span class="sub" role="status">${nodes.data ? `${number(rows.length)} of ${plural(nodes.data.length, "node")}` : ""}</span></div>
    <div class="grid">
      <${Card} title="Devices"><${Shown} of=${devices} what="devices" empty=${(d) => !d.items.length} nothing=${NOTHING}>${(d) => html`<${FleetMap} nodes=${d.items} />`}<//><//>
      <${Card} title="Nodes over time" push=${html`${choice("Show", metric, "metric", "utilization", Object.entries(METRICS).map(([key, [text]]) => [key, text]))}
          ${choice("of the last", String(hours), "hours", "6", HOURS.map(([n, text]) => [String(n), text]))}${choice("by", order, "order", "name", Object.entries(ORDERS))}
          <label><span class="hidden">Filter nodes</span><input data-search type="search" value=${word} placeholder="Filter ( / )" onInput=${(event) => setWord(event.target.value)} /></label>`}>
        ${history.error && html`<${Failed} error=${history.error} />`}
        <${Shown} of=${nodes} what="nodes" empty=${(d) => !d.length} nothing=${NOTHING}>${() => html`
          <div class="nodes-row nodes-head" aria-hidden="true"><span>Node</span><span>State</span><span>Devices</span><span class="num">GPU now</span><span class="num">Memory</span><span class="num">Highest</span>
            <span class="axis"><span>${starts.length ? clock(starts[0]).slice(0, 5) : ""}</span><span>${METRICS[metric][0]}, ${METRICS[metric][1]}</span><span>now</span></span><span>Heartbeat</span></div>
          <${Rows} rows=${rows} height_px=${40} look="nodes-body" rowLook="nodes-row" label="Nodes" keyOf=${(n) => n.node_id}
            open=${(n) => go(`/nodes/${encodeURIComponent(n.node_id)}`)} draw=${(n) => line(n, figures.get(n.node_id), history, metric, now_ms)} />
          ${!rows.length && html`<p class="sub">No node fits “${word}”.</p>`}
          <p class="legend" aria-label="Scale"><span>${METRICS[metric][2]} ${METRICS[metric][1]}</span><span class="scale"></span><span>${METRICS[metric][3]} ${METRICS[metric][1]}</span><span>a line: not reported</span></p>`}<//><//>
    </div>`;
}

const textOf = (n) => `${n.node_id} ${n.pool} ${n.state} ${n.restriction} ${n.device_type} ${Object.values(n.labels || {}).join(" ")}`.toLowerCase();

const line = (n, now, history, metric, now_ms) => html`
  <span class="clip" title=${n.node_id}><a href=${`/nodes/${encodeURIComponent(n.node_id)}`}><b>${n.node_id}</b></a> <span class="sub">${n.pool}</span></span>
  <${NodeState} state=${n.state} restriction=${n.restriction} />
  <span class="clip">${number(n.devices)} ${n.device_type}</span>
  <span class="num">${percent(now?.utilization_pct)}</span><span class="num">${percent(now?.memory_pct)}</span>
  <span class="num">${now?.temperature_c === null || now?.temperature_c === undefined ? "–" : `${number(now.temperature_c, 3)} °C`}</span>
  <span><${Strip} values=${history.valuesOf(n.node_id)} metric=${metric} /></span><span class="clip">${ago(n.last_heartbeat_at, now_ms)}</span>`;

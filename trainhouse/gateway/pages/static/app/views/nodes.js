// All nodes: what each has, how it is, what runs there.
import { html, useMemo, useState } from "../kit.js";
import { Card, NodeState, useTitle } from "../parts/bits.js";
import { FleetMap } from "../parts/fleetmap.js";
import { Shown } from "../parts/notice.js";
import { Rows } from "../parts/rows.js";
import { go } from "../router.js";
import { ago, bytes, number, plural } from "../format.js";
import { useClock, useData } from "../use.js";
import { useAll } from "../all.js";

const EVERY_MS = 10000;

export default function Nodes() {
  useTitle("Nodes");
  const nodes = useAll("/v1/nodes", EVERY_MS);
  const devices = useData("/v1/devices", { every_ms: EVERY_MS });
  const [word, setWord] = useState("");
  const now_ms = useClock(5000);
  const rows = useMemo(() => (nodes.data || []).filter((n) => textOf(n).includes(word.toLowerCase().trim())), [nodes.data, word]);
  return html`
    <div class="title"><h1>Nodes</h1><span class="sub" role="status">${nodes.data ? `${number(rows.length)} of ${plural(nodes.data.length, "node")}` : ""}</span></div>
    <div class="grid">
      <${Card} title="Devices"><${Shown} of=${devices} what="devices" empty=${(d) => !d.items.length}
        nothing="No node has registered yet. Start an agent on a machine: trainhouse run agent.">${(d) => html`<${FleetMap} nodes=${d.items} />`}<//><//>
      <${Card} title="Nodes" push=${html`<label><span class="hidden">Filter nodes</span><input data-search type="search" value=${word} placeholder="Filter ( / )"
          onInput=${(event) => setWord(event.target.value)} /></label>`}>
        <${Shown} of=${nodes} what="nodes" empty=${(d) => !d.length} nothing="No node has registered yet.">${() => html`
          <${Rows} rows=${rows} height_px=${48} look="nodes-body" rowLook="nodes-row" label="Nodes" keyOf=${(n) => n.node_id}
            open=${(n) => go(`/nodes/${encodeURIComponent(n.node_id)}`)} draw=${(n) => line(n, now_ms)} />`}<//><//>
    </div>`;
}

const textOf = (n) => `${n.node_id} ${n.pool} ${n.state} ${n.restriction} ${n.device_type} ${Object.values(n.labels || {}).join(" ")}`.toLowerCase();

const line = (n, now_ms) => html`
  <span class="clip"><a href=${`/nodes/${encodeURIComponent(n.node_id)}`}><b>${n.node_id}</b></a> <span class="sub">${n.pool}</span></span>
  <${NodeState} state=${n.state} restriction=${n.restriction} />
  <span class="clip">${number(n.devices)} ${n.device_type}</span><span class="clip">${plural(n.ranks_running || 0, "rank")}</span>
  <span class="clip">${bytes(n.memory_bytes)}</span><span class="clip">heartbeat ${ago(n.last_heartbeat_at, now_ms)}</span>`;

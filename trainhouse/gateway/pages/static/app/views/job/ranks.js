// The ranks: a map of their step times, and where each is and what it did last.
import { html } from "../../kit.js";
import { Card } from "../../parts/bits.js";
import { Heatmap } from "../../parts/heatmap.js";
import { Shown } from "../../parts/notice.js";
import { Table } from "../../parts/table.js";
import { ago, lastLine, number, span } from "../../format.js";
import { ENDED } from "../../states.js";
import { useAnew, useData } from "../../use.js";

export function Ranks({ job, path, now_ms }) {
  const every_ms = ENDED.has(job.state) ? 0 : 5000;
  const map = useData(`${path}/step-heatmap`, { every_ms });
  const ranks = useData(`${path}/ranks?limit=1000`, { every_ms });
  useAnew(ranks, [job.state, job.attempt]);
  return html`<div class="grid">
    <${Card} title="Step times by rank"><${Shown} of=${map} what="step times" empty=${(d) => !d.items.length}
      nothing="No rank has logged two steps yet; the map is drawn from what ranks log at each step.">${(d) => html`<${Heatmap} cells=${d.items} />`}<//><//>
    <${Card} title="Ranks"><${Shown} of=${ranks} what="ranks" empty=${(d) => !d.items.length} nothing="No rank was placed yet.">${(d) => html`
      <${Table} caption="Ranks, the newest attempt first" rows=${d.items} keyOf=${(r) => `${r.epoch}/${r.rank}`} columns=${columns(now_ms)} />`}<//><//>
  </div>`;
}

const columns = (now_ms) => [
  ["Rank", (r) => r.rank, "num"], ["Attempt", (r) => r.attempt, "num"], ["State", (r) => r.state.toLowerCase()],
  ["Node", (r) => html`<a href=${`/nodes/${encodeURIComponent(r.node_id)}`}>${r.node_id}</a>`], ["Device", (r) => r.device_id],
  ["Step", (r) => number(r.step), "num"], ["ms a step", (r) => number(r.step_time_ms, 3), "num"],
  ["Waited for data", (r) => span(r.data_wait_s), "num"], ["Waited for saves", (r) => span(r.save_stall_s), "num"],
  ["Last heartbeat", (r) => ago(r.last_heartbeat_at, now_ms)],
  ["End", (r) => (r.state === "EXITED" ? (r.signal ? `signal ${r.signal}` : `code ${r.exit_code}`) : "–")],
  ["Reason", (r) => lastLine(r.reason), "wide"],
];

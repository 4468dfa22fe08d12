// The story of a job: each event in words.
import { html, useEffect } from "../../kit.js";
import { Card } from "../../parts/bits.js";
import { Shown } from "../../parts/notice.js";
import { Table } from "../../parts/table.js";
import { moment } from "../../format.js";
import { useData } from "../../use.js";

export function Events({ path, pulse }) {
  const found = useData(`${path}/events?limit=1000`);
  useEffect(() => { if (pulse.event) found.reload(); }, [pulse.event]);
  const columns = [
    ["When (UTC)", (e) => html`<span class="mono">${moment(e.time)}</span>`],
    ["Event", (e) => html`<span class="tag">${e.type.replace(/^trainhouse\./, "").replace(/\.v\d+$/, "")}</span>`],
    ["Summary", (e) => e.summary, "wide"], ["Node", (e) => e.node_id || "–"],
  ];
  return html`<${Card} title="Events"><${Shown} of=${found} what="events" empty=${(d) => !d.items.length} nothing="No event of this job is recorded yet.">${(d) => html`
    <${Table} caption="Events, the oldest first" columns=${columns} rows=${d.items} keyOf=${(e) => e.event_id} />`}<//><//>`;
}

// What a job came from and what came of it: code, environment, data, attempts, checkpoints, artifacts, other jobs.
import { html } from "../../kit.js";
import { Card } from "../../parts/bits.js";
import { Graph, shownId } from "../../parts/graph.js";
import { Shown } from "../../parts/notice.js";
import { Table } from "../../parts/table.js";
import { useData } from "../../use.js";

export function Lineage({ job }) {
  const id = `job:${job.job_id}`;
  const found = useData(`/v1/lineage?id=${encodeURIComponent(id)}`);
  return html`<${Card} title="Lineage"><${Shown} of=${found} what="the lineage" empty=${(d) => !d.items.length}
    nothing="Nothing is known of what this job came from or led to yet: code, environment and data come with its first attempt (trainhouse status JOB), checkpoints with session.save.">${(d) => html`
      <${Graph} edges=${d.items} things=${d.things} self=${id} />
      <details style="margin-top:12px"><summary>As a table</summary><${Table} caption="Edges of the lineage" rows=${d.items}
        keyOf=${(e) => `${e.from_id}>${e.to_id}>${e.kind}`} columns=${[["From", (e) => html`<code title=${e.from_id}>${shownId(e.from_id)}</code>`, "wide"], ["Led to", (e) => html`<code title=${e.to_id}>${shownId(e.to_id)}</code>`, "wide"],
          ["How", (e) => e.kind]]} /></details>`}<//><//>`;
}

// The checkpoints of a job, and a restore of one of them for those who may submit.
import { html, useState } from "../../kit.js";
import { call } from "../../api.js";
import { Card } from "../../parts/bits.js";
import { Shown } from "../../parts/notice.js";
import { Table } from "../../parts/table.js";
import { MadeModels } from "../../parts/made_models.js";
import { ago, bytes, number, span } from "../../format.js";
import { useAnew, useData } from "../../use.js";

const stateOf = (c) => ({ PRUNED: "removed by retention", DELETED: `deleted by ${c.deleted_by}` })[c.state] || "complete";
// Nodes keep the newest save of a running job alone.
const inMemory = (c) => (c.memory_nodes.length ? `of ${c.memory_nodes.length} ${c.memory_nodes.length === 1 ? "node" : "nodes"}` : "");

// A reference that cannot be read keeps all checkpoints of its job.
const keeps = (tag, c) => (tag.commit === null ? c.state === "COMPLETED" : tag.commit === c.commit);

export function Checkpoints({ job, path, now_ms, who }) {
  const found = useData(`${path}/checkpoints?limit=500`);
  const [word, setWord] = useState("");
  const [busy, setBusy] = useState(false);
  const tags = useData(`${path}/checkpoint-tags`);
  useAnew(found, [job.last_checkpoint_commit]);
  useAnew(tags, [job.last_checkpoint_commit]);
  const tagsOf = (c) => (tags.data ? tags.data.items.filter((tag) => keeps(tag, c)).map((tag) => tag.name).join(", ") : tags.error ? "unknown" : "…");
  const restore = async (step) => {
    setBusy(true);
    try {
      const made = await call(`${path}/checkpoints/${step}/restore`, { method: "POST", body: {} });
      setWord(html`Submitted as <a href=${`/jobs/${made.job_id}`}>${made.job_id}</a>: it resumes from step ${step}.`);
    } catch (error) { setWord(error.message); }
    setBusy(false);
  };
  const newest = found.data?.items.find((c) => c.state === "COMPLETED");
  const may = who.roles.some((role) => role !== "viewer");
  const columns = [
    ["Step", (c) => number(c.step), "num"], ["State", stateOf], ["Attempt", (c) => c.attempt, "num"],
    ["When", (c) => ago(c.completed_at, now_ms), "short"], ["Size", (c) => bytes(c.bytes_total), "num"], ["New", (c) => bytes(c.bytes_new), "num"],
    ["Training waited", (c) => span(c.stage_s), "num"], ["Upload", (c) => span(c.upload_s), "num"], ["Restored", (c) => `${c.restores} ×`, "num"],
    ["Also in memory", (c) => (c === newest && !job.finished_at ? inMemory(c) : "")], ["Tags", tagsOf], ["Where", (c) => html`<code>${c.uri}</code>`, "wide"],
    ...(may ? [["Action", (c) => (c.state !== "COMPLETED" ? "" : html`<button disabled=${busy} onClick=${() => restore(c.step)} aria-label=${`Resume from here: a new job from step ${c.step}`}>Resume from here</button>`)]] : []),
  ];
  return html`<${Card} title="Checkpoints">${word && html`<p class="notice" role="status">${word}</p>`}
    <${Shown} of=${found} what="checkpoints" empty=${(d) => !d.items.length} nothing=${html`No checkpoint is complete yet. A job saves by <code>session.save()</code>, or as often as its spec says.`}>${(d) => html`
      <${Table} caption="Checkpoints, the newest first" columns=${columns} rows=${d.items} keyOf=${(c) => c.commit} />`}<//><//>
    ${!who.run && !found.error && html`<div style="margin-top:16px"><${MadeModels} path=${path} title="Models made of its checkpoints" now_ms=${now_ms}
      nothing=${html`No checkpoint was registered yet: <code>trainhouse models register NAME ${job.job_id}</code>`} /></div>`}`;
}

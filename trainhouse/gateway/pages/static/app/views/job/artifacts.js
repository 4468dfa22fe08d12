// Versions of artifacts that the job stored, and those that its ranks used.
import { html } from "../../kit.js";
import { Card } from "../../parts/bits.js";
import { Shown } from "../../parts/notice.js";
import { Table } from "../../parts/table.js";
import { ago, bytes, number } from "../../format.js";
import { ENDED } from "../../states.js";
import { useData } from "../../use.js";

const SHORT_CHARS = 12;

export function Artifacts({ job, path, now_ms }) {
  const found = useData(`${path}/artifacts`, { every_ms: ENDED.has(job.state) ? 0 : 15000 });
  return html`<${Card} title="Artifacts"><${Shown} of=${found} what="the artifacts" empty=${(d) => !d.items.length}
    nothing="The job stored and used no artifact. Training code stores one by session.log_artifact(path, name=…, kind=…).">${(d) => html`
      <${Table} caption="Artifacts that the job stored and used" rows=${d.items} keyOf=${(a) => `${a.action} ${a.name} ${a.sha256} ${a.project}`} columns=${COLUMNS(now_ms)} />`}<//><//>`;
}

const COLUMNS = (now_ms) => [
  ["Version", (a) => html`<code title=${`${a.name}@sha256:${a.sha256}`}>${a.name}@${a.sha256.slice(0, SHORT_CHARS)}</code>`, "wide"],
  ["How", (a) => a.action], ["Kind", (a) => a.kind], ["Size", (a) => bytes(a.size_bytes), "num"], ["Files", (a) => number(a.files), "num"],
  ["When", (a) => ago(a.at, now_ms), "short"],
];

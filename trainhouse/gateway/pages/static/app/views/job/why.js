// Why a job waits: the scheduler's own answer, and what would let it start.
import { html } from "../../kit.js";
import { Card, Figures } from "../../parts/bits.js";
import { Shown } from "../../parts/notice.js";
import { due, moment, number } from "../../format.js";
import { useAnew, useData } from "../../use.js";

export function Why({ job, path, now_ms }) {
  const found = useData(`${path}/explain`, { every_ms: job.state === "PENDING" ? 5000 : 0 });
  useAnew(found, [job.state]);
  return html`<${Card} title="Why pending"><${Shown} of=${found} what="the explanation" empty=${(d) => !d.items.length}
    nothing="The scheduler has published no explanation of this job: it did not have to wait, or waits only since now.">${(d) => html`
      <${Answer} one=${d.items[0]} now_ms=${now_ms} waits=${job.state === "PENDING"} />`}<//><//>`;
}

function Answer({ one, now_ms, waits }) {
  const start = one.reserved_start || one.eta;
  return html`${!waits && html`<p class="sub">The job does not wait any more; this was the last answer while it did.</p>`}
    <p><strong>${one.text}</strong></p>
    <${Figures} items=${[["Place", one.place ? `${number(one.place)} of ${number(one.waiting)}` : "–"], ["Needs", one.needs || "–"],
      ["Score", number(one.score)], ["Start expected", start ? (waits ? due(start, now_ms) : moment(start)) : "not known"], ["As of (UTC)", moment(one.at)]]} />
    ${one.refusals?.length > 0 && html`<h3>Why not now</h3><ul>${one.refusals.map((text) => html`<li>${text}</li>`)}</ul>`}
    ${one.unblock?.length > 0 && html`<h3>What would help</h3><ul>${one.unblock.map((text) => html`<li>${text}</li>`)}</ul>`}`;
}

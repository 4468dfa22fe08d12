// Curves that grow while the job trains, the states it was in, where its device time went.
import { html, useEffect, useRef } from "../../kit.js";
import { Card } from "../../parts/bits.js";
import { Shown } from "../../parts/notice.js";
import { StateTimeline, TimeSpent } from "../../parts/timeline.js";
import { ENDED } from "../../states.js";
import { useData } from "../../use.js";
import { Curves } from "./curves.js";

const BEHIND_MS = 1000;

export function Summary({ job, path, pulse, now_ms, query, ready }) {
  const metrics = useData(`${path}/metrics`, { every_ms: ENDED.has(job.state) ? 0 : 15000 });
  const spans = useData(`${path}/timeline`);
  const spent = useData(`${path}/gpu-seconds`, { every_ms: ENDED.has(job.state) ? 0 : 15000 });
  const first = useRef(true);
  useEffect(() => {
    if (!first.current) spans.reload();
    first.current = false;
  }, [job.state, job.attempt]);
  // The stream tells a state before the tables have it.
  const states = spans.data ? statesOf(spans.data.items) : [];
  const behind = states.length > 0 && states[states.length - 1].state !== job.state;
  useEffect(() => {
    if (!behind) return undefined;
    const timer = setTimeout(spans.reload, BEHIND_MS);
    return () => clearTimeout(timer);
  }, [behind, spans.data]);
  return html`<div class="grid">
    <${Shown} of=${metrics} what="metrics" empty=${(d) => !d.items.length}
      nothing=${html`No metric was logged yet. Training code logs one by <code>session.log(loss=…)</code>.`}>${(d) => html`<${Curves} job=${job} names=${d.items.map((one) => one.metric)}
        path=${path} pulse=${pulse.metrics} query=${query} ready=${ready} />`}<//>
    <${Card} title="States"><${Shown} of=${spans} what="the timeline" empty=${(d) => !statesOf(d.items).length} nothing="No state is recorded yet.">${(d) => html`
      <${StateTimeline} spans=${statesOf(d.items)} now_ms=${now_ms} />`}<//><//>
    <${Card} title="Where the device time went"><${Shown} of=${spent} what="the ledger" empty=${(d) => !d.items.length}
      nothing="The job has held no device yet.">${(d) => html`<${TimeSpent} parts=${d.items} />`}<//><//>
  </div>`;
}

// Of the timeline's spans the states; what parts and hangs say is in the ledger below.
const statesOf = (items) => items.filter((one) => one.kind === "state").map((one) => ({ ...one, state: one.span, ends: ENDED.has(one.span) }));

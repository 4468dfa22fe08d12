// Trials over time: a bar from a trial's first device to its end, in as many lanes as ran at the same time. Some hundred at once, the newest first.
import { html, useMemo, useState } from "../../kit.js";
import { Card, Pill } from "../../parts/bits.js";
import { Shown } from "../../parts/notice.js";
import { moment, plural, span } from "../../format.js";
import { hoursOf } from "../../parts/curve.js";
import { momentOf } from "../../model_words.js";
import { go } from "../../router.js";
import { lanesOf, pathOf, TRIAL_STATES, trialState } from "../../study_words.js";
import { useClock, useWidth } from "../../use.js";
import { usePart } from "./again.js";

const AT_ONCE = 200;
const LANE_PX = 16;
const EDGE_PX = 8;
const EVERY_MS = 10000;

export function Gantt({ study }) {
  const now_ms = useClock(EVERY_MS);
  const [cursors, setCursors] = useState([null]);
  const found = usePart(pathOf(study.project, study.study, "/trials", { order: "newest", limit: AT_ONCE, cursor: cursors[cursors.length - 1] }), study);
  const push = html`${cursors.length > 1 && html`<button onClick=${() => setCursors(cursors.slice(0, -1))}>Later</button>`}
    ${found.data?.next_cursor && html`<button onClick=${() => setCursors([...cursors, found.data.next_cursor])}>Earlier</button>`}`;
  return html`<${Card} title="Trials over time" push=${push}><${Shown} of=${found} what="trials" empty=${(d) => !d.items.some((one) => one.began_at_ms)}
    nothing="No trial has had devices yet.">${(d) => html`<${Lanes} trials=${d.items} now_ms=${now_ms} />`}<//><//>`;
}

function Lanes({ trials, now_ms }) {
  const [box, width] = useWidth();
  const bars = useMemo(() => lanesOf(trials, now_ms), [trials, trials.some((one) => !one.ended_at_ms) ? now_ms : 0]);
  const first_ms = Math.min(...bars.map((bar) => bar.from_ms));
  const last_ms = Math.max(first_ms + 1000, ...bars.map((bar) => bar.to_ms));
  const lanes = Math.max(...bars.map((bar) => bar.lane)) + 1;
  const x = (at_ms) => EDGE_PX + (at_ms - first_ms) / (last_ms - first_ms) * Math.max(1, width - 2 * EDGE_PX);
  const parts = width > 520 ? [0, 0.25, 0.5, 0.75, 1] : [0, 1];
  const ticks = hoursOf(parts.map((part) => (first_ms + part * (last_ms - first_ms)) / 1000)).map((text) => text.split("\n").reverse().join(" "));
  const numbers = bars.map((bar) => bar.trial.trial);
  const states = Object.keys(TRIAL_STATES).filter((state) => bars.some((bar) => bar.trial.state === state));
  return html`<div class="timeline" ref=${box}><p class="sub" style="margin:0">Trials ${Math.min(...numbers)} to ${Math.max(...numbers)} within ${span((last_ms - first_ms) / 1000)}, at most ${plural(lanes, "trial")} at the same time.</p>
    ${width > 0 && html`<svg width=${width} height=${lanes * LANE_PX + 24} role="img" aria-label=${`${plural(bars.length, "trial")} over time in ${plural(lanes, "lane")}, from ${moment(momentOf(first_ms))} to ${moment(momentOf(last_ms))}; the table of trials has the times`}>
      ${bars.map(({ trial, lane, from_ms, to_ms }) => html`<rect key=${trial.trial} class="bar" x=${x(from_ms).toFixed(1)} y=${lane * LANE_PX + 1} width=${Math.max(1.5, x(to_ms) - x(from_ms) - 1).toFixed(1)} height=${LANE_PX - 3} rx="2"
        style=${{ fill: `var(${trialState(trial.state)[1]})` }} onClick=${() => go(`/jobs/${encodeURIComponent(trial.job_id)}`)}><title>trial ${trial.trial}, ${trialState(trial.state)[0]}, ${span((to_ms - from_ms) / 1000)} from ${moment(momentOf(from_ms))}${trial.reason ? `: ${trial.reason}` : ""}</title></rect>`)}
      ${parts.map((part, i) => html`<text class="dim" x=${EDGE_PX + part * (width - 2 * EDGE_PX)} y=${lanes * LANE_PX + 18} text-anchor=${part === 0 ? "start" : part === 1 ? "end" : "middle"}>${ticks[i]}</text>`)}
    </svg>`}
    <ul class="legend">${states.map((state) => html`<li><${Pill} square word=${trialState(state)[0]} token=${trialState(state)[1]} /></li>`)}</ul></div>`;
}

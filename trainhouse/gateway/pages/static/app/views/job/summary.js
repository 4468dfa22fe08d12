// Curves that grow while the job trains, the states it was in, where its device time went.
import { html, useEffect, useMemo, useRef, useState } from "../../kit.js";
import { url } from "../../api.js";
import { Card } from "../../parts/bits.js";
import { Curve } from "../../parts/curve.js";
import { Empty, Shown } from "../../parts/notice.js";
import { StateTimeline, TimeSpent } from "../../parts/timeline.js";
import { ENDED, SERIES } from "../../states.js";
import { number } from "../../format.js";
import { useData } from "../../use.js";

const SHOWN_FIRST = 4;
const FRESH_MS = 2000;
const BEHIND_MS = 1000;

export function Summary({ job, path, pulse, now_ms }) {
  const metrics = useData(`${path}/metrics`, { every_ms: ENDED.has(job.state) ? 0 : 15000 });
  const spans = useData(`${path}/timeline`);
  const spent = useData(`${path}/gpu-seconds`, { every_ms: ENDED.has(job.state) ? 0 : 15000 });
  useEffect(() => { spans.reload(); }, [job.state, job.attempt]);
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
      nothing="No metric was logged yet. Training code logs by session.log(step, loss=…).">${(d) => html`<${Curves} names=${d.items.map((one) => one.metric)} path=${path} pulse=${pulse.metrics} />`}<//>
    <${Card} title="States"><${Shown} of=${spans} what="the timeline" empty=${(d) => !statesOf(d.items).length} nothing="No state was told yet.">${(d) => html`
      <${StateTimeline} spans=${statesOf(d.items)} now_ms=${now_ms} />`}<//><//>
    <${Card} title="Where the device time went"><${Shown} of=${spent} what="the ledger" empty=${(d) => !d.items.length}
      nothing="The job has held no device yet.">${(d) => html`<${TimeSpent} parts=${d.items} />`}<//><//>
  </div>`;
}

// Of the timeline's spans the states; what parts and hangs say is in the ledger below.
const statesOf = (items) => items.filter((one) => one.kind === "state").map((one) => ({ ...one, state: one.span, ends: ENDED.has(one.span) }));

function Curves({ names, path, pulse }) {
  const [hidden, setHidden] = useState(() => new Set(names.slice(SHOWN_FIRST)));
  const [log, setLog] = useState(false);
  const [range, setRange] = useState([null, null]);
  const tick = useSlow(pulse);
  const shown = names.filter((name) => !hidden.has(name));
  const toggle = (name) => setHidden((before) => {
    const next = new Set(before);
    if (!next.delete(name)) next.add(name);
    return next;
  });
  return html`<${Card} title="Curves" push=${html`
      ${range[0] !== null && html`<span class="sub">steps ${number(range[0])} to ${number(range[1])}</span><button onClick=${() => setRange([null, null])}>Show all steps</button>`}
      <label class="inline"><input type="checkbox" checked=${log} onChange=${() => setLog(!log)} />log scale</label>`}>
    <div class="row" role="group" aria-label="Metrics shown" style="margin-bottom:10px">${names.slice(0, 40).map((name) => html`
      <button aria-pressed=${hidden.has(name) ? "false" : "true"} onClick=${() => toggle(name)}>${name}</button>`)}</div>
    ${shown.length ? html`<div class="grid">${shown.map((name) => html`<div class=${shown.length > 1 ? "w6" : ""} key=${name}>
      <${One} path=${path} metric=${name} token=${SERIES[names.indexOf(name) % SERIES.length]} tick=${tick} log=${log} range=${range}
        zoom=${(from, to) => setRange([from, to])} /></div>`)}</div>` : html`<${Empty}>Choose a metric above to see its curve.<//>`}<//>`;
}

function One({ path, metric, token, tick, log, range, zoom }) {
  const found = useData(url(`${path}/curves`, { metric, points: 1000, from_step: range[0], to_step: range[1] }));
  useEffect(() => { if (tick) found.reload(); }, [tick]);
  const curve = found.data?.items[0];
  const series = useMemo(() => (curve ? [{ label: metric, token, mean: curve.mean, least: curve.least, greatest: curve.greatest }] : []), [curve]);
  return html`<h3>${metric} ${curve && html`<span class="sub">${number(curve.points)} points</span>`}</h3>
    <${Shown} of=${found} what=${metric}>${() => html`<${Curve} label=${metric} x=${curve.step} series=${series} log=${log} zoom=${zoom} empty="no value in this range" />`}<//>`;
}

// Follows a counter, at most once in FRESH_MS: a job that logs every 10 ms must not be asked for as often.
function useSlow(value) {
  const [slow, setSlow] = useState(value);
  const timer = useRef(0);
  const newest = useRef(value);
  newest.current = value;
  useEffect(() => {
    if (value !== slow && !timer.current) timer.current = setTimeout(() => { timer.current = 0; setSlow(newest.current); }, FRESH_MS);
  }, [value]);
  useEffect(() => () => clearTimeout(timer.current), []);
  return slow;
}

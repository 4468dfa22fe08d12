// Where the time of a step goes and how well the devices are used, as ranks measure it; and profiler's traces to look closer.
import { html } from "../../kit.js";
import { Card, Figures, Pill } from "../../parts/bits.js";
import { Shown } from "../../parts/notice.js";
import { Table } from "../../parts/table.js";
import { ENDED, STEP_PARTS } from "../../states.js";
import { ago, bytes, number, share } from "../../format.js";
import { useData } from "../../use.js";
import { url } from "../../api.js";

const SHARES = [["mfu", "MFU"], ["pipeline/bubble", "Pipeline bubble"]];
const DEVICE = [["system/device_utilization_pct", "Device use"], ["system/device_sm_active_pct", "SMs active"],
  ["system/device_memory_bandwidth_pct", "Memory bandwidth"]];
const ASKED = ["total", ...Object.keys(STEP_PARTS)].map((part) => `step/${part}_ms`)
  .concat(["tokens_per_s", "samples_per_s", "gradient_norm"], SHARES.map(([name]) => name), DEVICE.map(([name]) => name));

export function Performance({ job, path, now_ms }) {
  const every_ms = ENDED.has(job.state) ? 0 : 10000;
  const metrics = useData(url(`${path}/metrics`, { metric: ASKED }), { every_ms });
  const traces = useData(`${path}/profiles`, { every_ms });
  return html`<div class="grid">
    <${Card} title="A step"><${Shown} of=${metrics} what="measurements" empty=${(d) => !d.items.length}
      nothing="Nothing was measured yet. A loop over session.steps is measured by itself, from its third second on.">${(d) => html`<${Measured} items=${d.items} />`}<//><//>
    <${Card} title="Traces"><${Shown} of=${traces} what="traces" empty=${(d) => !d.items.length}
      nothing=${ENDED.has(job.state) ? "No rank was profiled." : html`No rank was profiled yet: <code>trainhouse profile ${job.job_id} --steps 20 --ranks 0</code> records the next steps.`}>${(d) => html`
      <p class="sub">Fetch a trace, and open it in ui.perfetto.dev or chrome://tracing.</p>
      <${Table} caption="Traces, the newest first" rows=${d.items} keyOf=${(t) => t.path} columns=${columns(path, now_ms)} />`}<//><//>
  </div>`;
}

const columns = (path, now_ms) => [
  ["Rank", (t) => t.rank, "num"], ["When", (t) => ago(t.at, now_ms)], ["Size", (t) => bytes(t.size_bytes), "num"],
  ["Trace", (t) => html`<a href=${`${path}/profiles/${encodeURIComponent(t.profile)}/${t.rank}`} download aria-label=${`Fetch the trace ${t.profile} of rank ${t.rank}`}>${t.profile}</a>`, "wide"],
];

function Measured({ items }) {
  const known = new Map(items.filter((one) => one.value !== null).map((one) => [one.metric, one.value]));
  const whole = known.get("step/total_ms");
  const parts = Object.keys(STEP_PARTS).filter((part) => known.get(`step/${part}_ms`) > 0).map((part) => [part, known.get(`step/${part}_ms`)]);
  const figures = [
    ...(whole ? [["A step takes", `${number(whole, 3)} ms`]] : []),
    ...SHARES.filter(([name]) => known.has(name)).map(([name, title]) => [title, share(asShare(known.get(name)), 1)]),
    ...(known.has("tokens_per_s") ? [["Tokens/s", number(known.get("tokens_per_s"), 4)]] : []),
    ...(known.has("samples_per_s") ? [["Samples/s", number(known.get("samples_per_s"), 4)]] : []),
    ...DEVICE.filter(([name]) => known.has(name)).map(([name, title]) => [title, share(known.get(name), 100)]),
    ...(known.has("gradient_norm") ? [["Gradient norm", number(known.get("gradient_norm"), 4)]] : []),
  ];
  const words = parts.map(([part, ms]) => `${STEP_PARTS[part][0]} ${share(ms, whole)}`).join(", ");
  const ranks = [...new Set(items.map((one) => one.rank))].sort((a, b) => a - b);
  return html`<p class="sub">The newest values of rank ${ranks.join(", ")}; the view step_figures has means over all ranks.</p>
    <${Figures} items=${figures} />
    ${whole && html`<div class="stack" role="img" aria-label=${`Parts of a step: ${words}`}>${parts.map(([part, ms]) => html`
      <span style=${{ width: `${100 * ms / whole}%`, background: `var(${STEP_PARTS[part][1]})` }} title=${`${STEP_PARTS[part][0]} ${number(ms, 3)} ms`}></span>`)}</div>
    <ul class="legend">${parts.map(([part, ms]) => html`<li><${Pill} word=${STEP_PARTS[part][0]} token=${STEP_PARTS[part][1]} square /><b> ${share(ms, whole)}</b> ${number(ms, 3)} ms</li>`)}</ul>`}`;
}

// A program's own mfu above 1.5 is in percent, as the alert mfu-low takes it.
const asShare = (value) => (value > 1.5 ? value / 100 : value);

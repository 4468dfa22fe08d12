// Live quality by metric: champion and versions in staging beside their offline figures, as a table and over time.
import { html, useMemo, useState } from "../../kit.js";
import { Pill } from "../../parts/bits.js";
import { Curve } from "../../parts/curve.js";
import { Interval, scaleOf } from "../../parts/interval.js";
import { Empty } from "../../parts/notice.js";
import { Table } from "../../parts/table.js";
import { moment, number } from "../../format.js";
import { AGAINST_OFFLINE, coloursOf, figureOf, inProject, liveCurves, momentOf } from "../../model_words.js";

export function Quality({ model, live }) {
  const metrics = useMemo(() => [...new Set(live.quality.map((row) => row.metric))], [live]);
  const [wanted, setWanted] = useState(null);
  const metric = metrics.includes(wanted) ? wanted : metrics[0];
  const rows = useMemo(() => live.quality.filter((row) => row.metric === metric), [live, metric]);
  const curves = useMemo(() => liveCurves(rows), [rows]);
  if (!metrics.length) {
    const version = live.version ?? "VERSION";
    return html`<${Empty}>No labels came yet, so the live quality is not known. They may come days late, under the window of their predictions: <code>${`trainhouse models observe ${model.name}@${version} --since … --until … --outcomes labels.json${inProject(model)}`}</code>, or <code>POST /v1/models/${model.name}/observations</code> with <code>outcomes</code>.<//>`;
  }
  const colours = coloursOf(live.versions.map((v) => v.version));
  const stages = new Map(live.versions.map((v) => [v.version, v.stage]));
  return html`<${Table} caption="Live quality beside offline, by metric and version" rows=${live.quality} keyOf=${(row) => `${row.metric}\n${row.version}`} columns=${columns(live, colours, stages)} />
    <p class="sub">Live figures are means over labelled predictions, with 95 % intervals. Worse and better: by more than chance explains, and worse by more than the gate's margin, too.
      ${live.quality_after_ms !== null && ` There are more windows than are shown: these ended after ${moment(momentOf(live.quality_after_ms))}.`}</p>
    ${metrics.length > 1 && html`<div class="row" role="group" aria-label="Metric over time" style="margin:10px 0">${metrics.map((name) => html`<button key=${name} class="wrap" aria-pressed=${name === metric ? "true" : "false"} onClick=${() => setWanted(name)}>${name}</button>`)}</div>`}
    <${Curve} label=${`${metric} by window`} x=${curves.x} series=${curves.series} x_name="end of the window (UTC)" time height=${220} />`;
}

function columns(live, colours, stages) {
  const scales = new Map();
  for (const { metric } of live.quality) {
    const own = live.quality.filter((row) => row.metric === metric);
    scales.set(metric, scaleOf(own.flatMap((row) => [liveOf(row), offlineOf(row)])));
  }
  return [
    ["Metric", (row) => row.metric, "name"], ["Version", (row) => html`<${Pill} word=${`${row.version}, ${stages.get(row.version)}`} token=${colours.get(row.version)} square />`, "short"],
    ["Live", (row) => html`<b>${figureOf(liveOf(row))}</b>`, "num"], ["Offline", (row) => (row.offline === null ? "none" : html`<span title=${`suite ${row.suite}, evaluation ${row.evaluation_id}`}>${figureOf(offlineOf(row))}</span>`), "num"],
    ["Against offline", (row) => html`<${Pill} word=${row.against_offline} token=${AGAINST_OFFLINE[row.against_offline] || "--s-unknown"} />`, "short"],
    ["Live above, offline below", (row) => html`<div class="intervals"><${Interval} figure=${liveOf(row)} scale=${scales.get(row.metric)} token=${colours.get(row.version)} label=${`${row.metric} of version ${row.version} live`} />
      ${row.offline !== null && html`<${Interval} figure=${offlineOf(row)} scale=${scales.get(row.metric)} token="--s-closed" label=${`${row.metric} of version ${row.version} offline`} />`}</div>`],
    ["Champion in the same windows", (row) => (row.version === live.champion ? "is champion" : row.champion_live === null ? "no labels" : number(row.champion_live)), "num"],
    ["Labels", (row) => number(row.labels), "num"], ["Windows", (row) => number(row.windows), "num"],
  ];
}

const liveOf = (row) => ({ value: row.live, low: row.low, high: row.high });
const offlineOf = (row) => ({ value: row.offline, low: row.offline_low, high: row.offline_high });

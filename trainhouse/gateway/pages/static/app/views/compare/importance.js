// Which parameters go along with a metric: a rank correlation for each, as the gateway computes it.
import { html } from "../../kit.js";
import { url } from "../../api.js";
import { Card } from "../../parts/bits.js";
import { Empty, Shown } from "../../parts/notice.js";
import { plural } from "../../format.js";
import { ask } from "../../router.js";
import { isLoss } from "../../series.js";
import { useData } from "../../use.js";
import { VALUES } from "./axes.js";

const MOST_SHOWN = 20;

export function Importance({ chosen, metrics, query }) {
  const known = metrics.map((one) => one.metric);
  const metric = known.includes(query.get("im")) ? query.get("im") : known.find(isLoss) || known[0];
  const of = VALUES.some(([key]) => key === query.get("iof")) ? query.get("iof") : "last";
  const found = useData(metric ? url("/v1/compare/importance", { job: chosen, metric, of }) : null);
  if (!metric) return null;
  const push = html`<label class="inline">of<select aria-label="Metric" value=${metric} onChange=${(event) => ask({ im: event.target.value })}>${known.map((name) => html`<option>${name}</option>`)}</select></label>
    <select aria-label="Value of the metric" value=${of} onChange=${(event) => ask({ iof: event.target.value === "last" ? null : event.target.value })}>${VALUES.map(([key, word]) => html`<option value=${key}>${word}</option>`)}</select>`;
  return html`<${Card} title="Importance of parameters" push=${push}><${Shown} of=${found} what="the correlations">${(d) => (d.items.length ? html`<${Bars} found=${d} />`
    : html`<${Empty}>${d.runs < d.least_runs ? `It takes ${d.least_runs} runs with ${metric} to judge a parameter; ${d.runs === 1 ? "this is 1" : `these are ${d.runs}`}.`
      : `No parameter differs among ${d.least_runs} runs or more that have ${metric}, or ${metric} is the same in all of them.`}<//>`)}<//><//>`;
}

function Bars({ found }) {
  return html`<p class="sub">${found.statistic} with ${found.metric} over ${plural(found.runs, "run")}: 1 rises with it, −1 falls with it, 0 has nothing to do with it.
    ${found.runs < 10 ? " From so few runs, a strong one may be chance." : ""}</p>
    <ul class="list importance">${found.items.slice(0, MOST_SHOWN).map((one) => html`<li key=${one.parameter}>
      <code class="clip" title=${one.parameter}>${one.parameter}</code>
      <span class="both" role="presentation"><span style=${{ left: `${50 + Math.min(0, one.correlation) * 50}%`, width: `${Math.abs(one.correlation) * 50}%`, background: `var(${one.correlation < 0 ? "--c1" : "--c2"})` }}></span></span>
      <span class="num">${one.correlation > 0 ? "+" : one.correlation < 0 ? "−" : ""}${Math.abs(one.correlation).toFixed(2)}</span><span class="sub">${plural(one.runs, "run")}</span></li>`)}</ul>
    ${found.items.length > MOST_SHOWN && html`<p class="sub">The strongest ${MOST_SHOWN} of ${found.items.length}.</p>`}`;
}

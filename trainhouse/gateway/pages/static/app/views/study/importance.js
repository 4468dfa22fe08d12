// Which parameters make good trials good, as the gateway computes it.
import { html } from "../../kit.js";
import { Card } from "../../parts/bits.js";
import { Empty, Shown } from "../../parts/notice.js";
import { plural, share } from "../../format.js";
import { metricOf, pathOf } from "../../study_words.js";
import { usePart } from "./again.js";

const MOST_SHOWN = 20;

export function Importance({ study, query }) {
  const metric = metricOf(study, query);
  const found = usePart(pathOf(study.project, study.study, "/importance", { metric }), study);
  return html`<${Card} title="Importance of parameters"><${Shown} of=${found} what="the importance, which takes some seconds">${(d) => html`
    ${d.reason ? html`<${Empty}>No importance for ${d.metric}: ${d.reason}.<//>` : html`
      <p class="sub">For ${d.metric}, by PED-ANOVA over ${d.trials === d.of ? plural(d.trials, "complete trial") : `a sample of ${plural(d.trials, "complete trial")} of ${d.of}`}.</p>
      <div class="bars">${d.items.slice(0, MOST_SHOWN).map((one) => html`<div class="one" key=${one.parameter}><code class="clip" title=${one.parameter}>${one.parameter}</code>
        <div class="meter" role="presentation"><span style=${{ width: `${100 * one.importance}%` }}></span></div><span class="num">${share(one.importance, 1)}</span></div>`)}</div>`}
    ${d.left_out.length > 0 && !d.reason && html`<p class="sub wrap">Not judged: ${d.left_out.join(", ")} (not in every trial, or always the same).</p>`}`}<//><//>`;
}

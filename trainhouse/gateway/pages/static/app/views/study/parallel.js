// Trials as lines over their parameters and metrics: the best ones, and of many a sample.
import { html, useMemo, useState } from "../../kit.js";
import { Card, Later, Pill } from "../../parts/bits.js";
import { Shown } from "../../parts/notice.js";
import { number, plural } from "../../format.js";
import { brushesOf, kept } from "../compare/axes.js";
import { Parallel } from "../compare/parallel.js";
import { useRuns, useSample } from "./sample.js";

export function ParallelTrials({ study, query }) {
  const found = useSample(study);
  return html`<${Card} title="Parallel coordinates"><${Shown} of=${found} what="trials" empty=${(d) => d.items.length < 2}
    nothing="Two trials or more that have ended are drawn here, each as a line.">${(d) => html`<${Later}>${() => html`<${Drawn} study=${study} found=${d} query=${query} />`}<//>`}<//><//>`;
}

function Drawn({ study, found, query }) {
  const [at, setAt] = useState(null);
  const { runs, names, axes, tokens, left_out } = useRuns(study, found);
  const brushed = query.getAll("brush").join();
  const brushes = useMemo(() => brushesOf(query), [brushed]);
  const left = useMemo(() => kept(runs, axes, brushes), [runs, axes, brushes]);
  const ordered = useMemo(() => [...runs].sort((a, b) => rank(tokens, a) - rank(tokens, b)), [runs, tokens]);
  return html`${found.total > runs.length && html`<p class="sub">The best trials and a sample of the others: ${number(runs.length)} of ${plural(found.total, "trial")}.</p>`}
    <${Parallel} runs=${ordered} axes=${axes} brushes=${brushes} kept=${left} names=${names} tokenOf=${(run) => tokens.get(run.job_id)} at=${at} setAt=${setAt} noun="trial" />
    <ul class="legend"><li><${Pill} square word=${study.metrics.length > 1 ? "on the front" : "the best"} token="--c2" /></li><li><${Pill} square word=${`best fifth by ${study.metrics[0]}`} token="--c1" /></li>
      <li><${Pill} square word="others" token="--s-unknown" /></li></ul>
    <p class="tip">${at ? names[at] : ""}</p>
    ${left_out > 0 && html`<p class="sub">${plural(left_out, "more parameter or metric", "more parameters and metrics")} not drawn.</p>`}`;
}

const ORDER = ["--s-unknown", "--c1", "--c2"];
const rank = (tokens, run) => ORDER.indexOf(tokens.get(run.job_id));

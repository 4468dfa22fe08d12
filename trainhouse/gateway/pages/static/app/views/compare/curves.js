// The curves of one metric of all chosen runs over the same buckets of steps, with a legend that brings one forward.
import { html, useMemo, useState } from "../../kit.js";
import { url } from "../../api.js";
import { Curve } from "../../parts/curve.js";
import { Shown } from "../../parts/notice.js";
import { Pill } from "../../parts/bits.js";
import { number } from "../../format.js";
import { useData } from "../../use.js";
import { tokenOf } from "../compare.js";

// Items over buckets of one width to one x and a value a run and bucket; a run has null where it has no bucket. Pure.
export function aligned(items) {
  const x = [...new Set(items.flatMap((item) => item.step))].sort((a, b) => a - b);
  const place = new Map(x.map((step, i) => [step, i]));
  return { x, columns: items.map((item) => {
    const mean = new Array(x.length).fill(null);
    item.step.forEach((step, i) => { mean[place.get(step)] = item.mean[i]; });
    return mean;
  }) };
}

export function Curves({ chosen, metric, names, at, setAt }) {
  const found = useData(url("/v1/compare/curves", { job: chosen, metric, points: 400 }));
  const [log, setLog] = useState(false);
  const plan = useMemo(() => (found.data ? aligned(found.data.items) : null), [found.data]);
  const series = useMemo(() => (plan ? found.data.items.map((item, i) => ({ label: names[item.job_id] || item.job_id, token: tokenOf(i), id: item.job_id, mean: plan.columns[i] })) : []), [plan, names]);
  const forward = useMemo(() => (at ? series.filter((one) => one.id === at) : series), [series, at]);
  return html`<${Shown} of=${found} what=${metric}>${() => html`
    <label class="inline"><input type="checkbox" checked=${log} onChange=${() => setLog(!log)} />log scale</label>
    <${Curve} label=${`${metric} of ${chosen.length} runs`} x=${plan.x} series=${forward} height=${340} log=${log} legend=${false} />
    <div class="row" role="group" aria-label="Runs; choose one to see it alone">${series.map((one) => html`<button key=${one.id} class="plain" aria-pressed=${at === one.id ? "true" : "false"}
      onClick=${() => setAt(at === one.id ? null : one.id)}><${Pill} word=${one.label} token=${one.token} square /> <span class="sub">${number(last(one.mean))}</span></button>`)}</div>`}<//>`;
}

const last = (values) => {
  for (let i = values.length - 1; i >= 0; i -= 1) if (values[i] !== null) return values[i];
  return null;
};

// Results of a version by metric with their intervals; two versions beside each other, with the verdicts of their comparison by metric and group.
import { html, useMemo } from "../../kit.js";
import { Card, Pill } from "../../parts/bits.js";
import { Interval, scaleOf } from "../../parts/interval.js";
import { Empty, Shown } from "../../parts/notice.js";
import { Table } from "../../parts/table.js";
import { ago, moment, number } from "../../format.js";
import { besides, figureOf, inProject, intervalOf, isVersion, momentOf, pathOf, resultsOf, VERDICTS } from "../../model_words.js";
import { ask } from "../../router.js";
import { useData } from "../../use.js";

const onData = (result) => [result.dataset && result.dataset.replace(/@sha256:(.{8}).*$/, "@$1…"), result.split].filter(Boolean).join("/") || "–";

export function Results({ version, model, now_ms }) {
  const rows = useMemo(() => resultsOf(version), [version]);
  if (!rows.length) return html`<${Empty}>It was not evaluated yet: <code>trainhouse models evaluate ${model.name}@${version.version} --spec evaluation.yaml${inProject(model)}</code>.<//>`;
  return html`<${Table} caption="The newest results, by suite and metric" rows=${rows} keyOf=${(r) => r.key} columns=${[
    ["Suite", (r) => r.result.suite, "name"], ["Metric", (r) => r.metric, "name"], ["Value", (r) => html`<b>${number(r.value)}</b>`, "num"], ["Interval", (r) => intervalOf(r) || "–", "num"],
    ["Samples", (r) => number(r.result.samples), "num"], ["Data", (r) => html`<span title=${r.result.dataset}>${onData(r.result)}</span>`, "name"],
    ["When", (r) => html`<span title=${moment(momentOf(r.result.evaluated_at_ms))}>${ago(momentOf(r.result.evaluated_at_ms), now_ms)}</span>`, "short"],
    ["Evaluation", (r) => (r.result.job_id ? html`<a href=${`/jobs/${encodeURIComponent(r.result.job_id)}`}>${r.result.evaluation_id}</a>` : html`<span title=${r.result.document}>${r.result.evaluation_id}</span>`), "name"]]} />`;
}

// Versions that this one was compared with, the newest first, once each.
const comparedWith = (version) => [...new Set(version.comparisons.map((one) => one.against_version).filter((n) => n !== null && n !== version.version))];

export function Comparison({ model, version, against }) {
  const known = comparedWith(version);
  const champion = model.champion && model.champion.version !== version.version ? model.champion.version : null;
  const other = against || String(known.includes(champion) ? champion : known[0] ?? champion ?? "");
  const choose = (event) => {
    event.preventDefault();
    const word = event.target.elements.against.value.trim().replace(/^v(?=\d)/, "");
    if (word) ask({ against: word });
  };
  return html`<${Card} title=${other ? `Version ${version.version} against ${other === "champion" ? "the champion" : `version ${other}`}` : "Comparison"} push=${html`
      ${known.length > 1 && html`<span class="row" role="group" aria-label="Versions that it was compared with">${known.slice(0, 6).map((n) => html`<button aria-pressed=${String(n) === other ? "true" : "false"} onClick=${() => ask({ against: n })}>${n}</button>`)}</span>`}
      <form class="row" onSubmit=${choose}><label class="inline">Against<input name="against" maxlength="64" placeholder="1, 1.0.0, champion" style="width:10rem" /></label><button>Compare</button></form>`}>
    ${other && !isVersion(other) ? html`<p class="notice bad" role="alert">${other} names no version: 3, 1.2.0 or champion does.</p>` : other ? html`<${Besides} key=${other} model=${model} version=${version} other=${other} />` : html`<${Empty}>There is no champion and no comparison yet: name another version to see both beside each other.<//>`}<//>`;
}

function Besides({ model, version, other }) {
  const found = useData(pathOf(model.project, model.name, `/versions/${encodeURIComponent(other)}`));
  return html`<${Shown} of=${found} what="the other version">${(theirs) => (theirs.version === version.version ? html`<${Empty}>It is the same version: name another one.<//>`
    : html`<${Verdicts} version=${version} theirs=${theirs} name=${model.name} /><${Figures} ours=${version} theirs=${theirs} />`)}<//>`;
}

function Verdicts({ version, theirs, name }) {
  const compared = version.comparisons.filter((one) => one.against === theirs.content);
  if (!compared.length) {
    return html`<p class="notice" style="margin-bottom:12px">They were not compared on the same samples, so there is no verdict: <code>trainhouse models compare ${name}@${version.version} --with ${theirs.version}</code>.</p>`;
  }
  return compared.map((one) => html`<${Verdict} key=${one.suite} compared=${one} />`);
}

function Verdict({ compared }) {
  const rows = compared.metrics.map((m) => ({ ...m, value: m.difference }));
  // Metrics have scales of their own; groups of one metric share theirs.
  const scales = new Map([...new Set(rows.map((m) => m.metric))].map((metric) => { const own = rows.filter((m) => m.metric === metric); return [metric, scaleOf(own, [0])]; }));
  return html`<h3>${compared.suite}, ${number(compared.samples)} samples</h3><${Table} caption=${`Verdicts of suite ${compared.suite}, by metric and group`} rows=${rows} keyOf=${(m) => `${m.metric}\n${m.group || ""}`} columns=${[
    ["Metric", (m) => m.metric, "name"], ["Group", (m) => m.group || "all", "name"],
    ["Verdict", (m) => html`<${Pill} word=${m.verdict} token=${VERDICTS[m.verdict] || "--s-unknown"} />`, "short"],
    ["Difference", (m) => figureOf(m), "num"],
    ["Interval", (m) => html`<${Interval} figure=${m} scale=${scales.get(m.metric)} zero label=${`Difference of ${m.metric}${m.group ? ` in ${m.group}` : ""}`} />`],
    ["Margin", (m) => number(m.margin), "num"], ["p (Holm)", (m) => number(m.p_value, 2), "num"]]} />`;
}

function Figures({ ours, theirs }) {
  const rows = useMemo(() => besides(ours, theirs), [ours, theirs]);
  if (!rows.length) return html`<${Empty}>Neither was evaluated yet.<//>`;
  const shown = (f) => (f ? figureOf(f) : "no result");
  const drawn = (f, row, token, version) => (f ? html`<${Interval} figure=${f} scale=${scaleOf([row.ours, row.theirs].filter(Boolean))} token=${token} label=${`${row.metric} of version ${version}`} />` : "");
  return html`<h3 style="margin-top:14px">Results beside each other</h3><${Table} caption="Results of both versions" rows=${rows} keyOf=${(r) => r.key} columns=${[
    ["Suite", (r) => r.result.suite, "name"], ["Metric", (r) => r.metric, "name"], ["Data", (r) => html`<span title=${r.result.dataset}>${onData(r.result)}</span>`, "name"],
    [`Version ${ours.version}`, (r) => shown(r.ours), "num"], [`Version ${theirs.version}`, (r) => shown(r.theirs), "num"],
    ["Intervals", (r) => html`<div class="intervals">${drawn(r.ours, r, "--c1", ours.version)}${drawn(r.theirs, r, "--c2", theirs.version)}</div>`]]} />
    <ul class="legend"><li><${Pill} word=${`version ${ours.version}`} token="--c1" /></li><li><${Pill} word=${`version ${theirs.version}`} token="--c2" /></li></ul>`;
}

// How much of the fleet was used, by whom, for what, and what it cost.
import { html, useMemo } from "../kit.js";
import { url } from "../api.js";
import { Card, Figures, useTitle } from "../parts/bits.js";
import { Curve } from "../parts/curve.js";
import { Empty, Shown } from "../parts/notice.js";
import { Table } from "../parts/table.js";
import { kind, TimeSpent } from "../parts/timeline.js";
import { ask } from "../router.js";
import { hours, number, percent, share } from "../format.js";
import { SERIES } from "../states.js";
import { PERCENT } from "../units.js";
import { useData } from "../use.js";

const SPANS = [["day", 1, "Day"], ["week", 7, "Week"], ["month", 30, "Month"]];
const HOUR_MS = 3600000;

export default function Utilization({ query }) {
  useTitle("Utilization and cost");
  const span = SPANS.find(([name]) => name === query.get("span")) || SPANS[0];
  const since = useMemo(() => new Date(Math.floor(Date.now() / HOUR_MS) * HOUR_MS - span[1] * 24 * HOUR_MS).toISOString(), [span[0]]);
  const by = ["team", "project", "job"].includes(query.get("by")) ? query.get("by") : "team";
  const used = useData(url("/v1/utilization", { by: "hour", since }));
  const teams = useData(url("/v1/utilization", { by: "team", since }));
  const cost = useData(url("/v1/cost", { by, since }));
  const step = span[1] > 7 ? "day" : "hour";
  const over = useData(url("/v1/cost/over-time", { step, since }));
  return html`
    <div class="title"><h1>Utilization and cost</h1><div class="push" role="group" aria-label="Period">${SPANS.map(([name, , word]) => html`
      <button aria-pressed=${name === span[0] ? "true" : "false"} onClick=${() => ask({ span: name === "day" ? null : name })}>${word}</button>`)}</div></div>
    <div class="grid">
      <${Card} title="Devices held"><${Shown} of=${used} what="utilization" empty=${(d) => !d.items.length}
        nothing="No node sent a heartbeat in this period.">${(d) => html`<${Held} items=${d.items} />`}<//><//>
      <${Card} title="Cost by team over time"><${Shown} of=${over} what="cost over time" empty=${(d) => !d.items.length}
        nothing=${html`No team used a device in this period. Submit a job: <code>trainhouse submit SPEC</code>.`}>${(d) => html`<${OverTime} items=${d.items} since=${since} step=${step} />`}<//><//>
      <${Card} title="By team"><${Shown} of=${teams} what="teams" empty=${(d) => !d.items.length}
        nothing="No team held a device in this period.">${(d) => html`<${Teams} items=${d.items} />`}<//><//>
      <${Card} title="Cost, and use of device time" push=${html`<label class="inline">by<select value=${by} onChange=${(e) => ask({ by: e.target.value })}>
          ${["team", "project", "job"].map((name) => html`<option value=${name}>${name}</option>`)}</select></label>`}>
        <${Shown} of=${cost} what="cost" empty=${(d) => !d.items.length} nothing="Nothing was used in this period.">${(d) => html`<${Costs} items=${d.items} by=${by} />`}<//><//>
    </div>`;
}

// Rows of (hour, pool) to one x of seconds since 1970 and a column a pool. Pure.
export function byHour(items, nameOf, valueOf) {
  const x = [...new Set(items.map((row) => Date.parse(row.hour) / 1000))].sort((a, b) => a - b);
  const names = [...new Set(items.map(nameOf))].sort();
  const place = new Map(x.map((hour, i) => [hour, i]));
  const columns = names.map(() => new Array(x.length).fill(null));
  for (const row of items) columns[names.indexOf(nameOf(row))][place.get(Date.parse(row.hour) / 1000)] = valueOf(row);
  return { x, names, columns };
}

function Held({ items }) {
  const plan = useMemo(() => byHour(items, (row) => row.pool, (row) => (row.held_share === null ? null : 100 * row.held_share)), [items]);
  const sum = (name) => items.reduce((all, row) => all + (row[name] || 0), 0);
  const series = useMemo(() => plan.names.map((name, i) => ({ label: name, token: SERIES[i % SERIES.length], mean: plan.columns[i] })), [plan]);
  return html`<${Figures} items=${[["Share of devices held", share(sum("held_gpu_seconds"), sum("capacity_gpu_seconds"))], ["Device hours held", number(sum("held_gpu_seconds") / 3600, 4)],
      ["Device hours available", number(sum("capacity_gpu_seconds") / 3600, 4)]]} />
    ${plan.x.length > 1 ? html`<${Curve} label="Share of devices held" x=${plan.x} series=${series} units=${PERCENT} x_name="hour (UTC)" time path="steps" zero />`
      : html`<${Table} caption="Share of devices held by pool" rows=${items} columns=${[["Pool", (r) => r.pool], ["Hour", (r) => r.hour], ["Held", (r) => share(r.held_gpu_seconds, r.capacity_gpu_seconds), "num"],
        ["Busy while measured", (r) => percent(r.utilization_pct), "num"]]} />`}`;
}

const STEP_S = { hour: 3600, day: 86400 };

// A column a team over every step of the period: a step without a row is one in which the team used nothing. Pure.
export function overTime(items, since_s, now_s, step_s, valueOf) {
  const first = Math.floor(since_s / step_s) * step_s;
  const x = Array.from({ length: Math.max(1, Math.floor((now_s - first) / step_s) + 1) }, (_, i) => first + i * step_s);
  const totals = new Map();
  for (const row of items) totals.set(row.name, (totals.get(row.name) || 0) + row.gpu_seconds);
  const names = [...totals].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).map(([name]) => name);
  const columns = names.map(() => new Array(x.length).fill(0));
  for (const row of items) {
    const at = Math.round((Date.parse(row.at) / 1000 - first) / step_s);
    if (at >= 0 && at < x.length) columns[names.indexOf(row.name)][at] += valueOf(row);
  }
  return { x, names, columns };
}

// In the currency where all has a price, else in device hours.
function OverTime({ items, since, step }) {
  const currencies = [...new Set(items.map((row) => (row.cost === null ? "" : row.currency)))];
  const currency = currencies.length === 1 ? currencies[0] : "";
  const plan = useMemo(() => overTime(items, Date.parse(since) / 1000, Date.now() / 1000, STEP_S[step], (row) => (currency ? row.cost : row.gpu_seconds / 3600)), [items]);
  const series = useMemo(() => plan.names.slice(0, SERIES.length).map((name, i) => ({ label: name || "no team", token: SERIES[i], mean: plan.columns[i] })), [plan]);
  const unit = currency || "device hours";
  return html`<p class="sub">${unit} by ${step}${currency ? "" : "; not all of it has a price in one currency"}${plan.names.length > SERIES.length ? `; the ${SERIES.length} teams that used most` : ""}</p>
    <${Curve} label=${`Cost by team, ${unit}`} x=${plan.x} series=${series} x_name=${`${step} (UTC)`} time path="steps" zero />`;
}

function Teams({ items }) {
  const rows = useMemo(() => {
    const teams = new Map();
    for (const row of items) {
      const one = teams.get(row.team) || { team: row.team, held: 0, busy: 0, weighed: 0 };
      one.held += row.held_gpu_seconds;
      if (row.utilization_pct !== null) { one.busy += row.utilization_pct * row.held_gpu_seconds; one.weighed += row.held_gpu_seconds; }
      teams.set(row.team, one);
    }
    return [...teams.values()].sort((a, b) => b.held - a.held);
  }, [items]);
  const whole = rows.reduce((sum, row) => sum + row.held, 0);
  return html`<div class="bars" role="list" aria-label="Device hours by team">${rows.map((row) => html`<div class="one" role="listitem" key=${row.team}>
    <b class="clip">${row.team || "no team"}</b><div class="stack"><span style=${{ width: `${100 * row.held / rows[0].held}%`, background: "var(--c1)" }}></span></div>
    <span class="num">${hours(row.held)} <span class="sub">${share(row.held, whole)}, ${row.weighed ? `${percent(row.busy / row.weighed)} busy` : "busy: not measured"}</span></span></div>`)}</div>`;
}

function Costs({ items, by }) {
  const rows = useMemo(() => {
    const found = new Map();
    for (const row of items) {
      const name = row.name || "no job (quarantined)";
      const one = found.get(name) || { name, gpu_seconds: 0, unpriced: 0, spot: 0, parts: new Map(), cost: new Map() };
      one.gpu_seconds += row.gpu_seconds;
      one.unpriced += row.unpriced_gpu_seconds;
      if (row.spot) one.spot += row.gpu_seconds;
      one.parts.set(row.category, (one.parts.get(row.category) || 0) + row.gpu_seconds);
      if (row.cost !== null) one.cost.set(row.currency, (one.cost.get(row.currency) || 0) + row.cost);
      found.set(name, one);
    }
    return [...found.values()].sort((a, b) => b.gpu_seconds - a.gpu_seconds);
  }, [items]);
  const all = useMemo(() => [...items.reduce((sum, row) => sum.set(row.category, (sum.get(row.category) || 0) + row.gpu_seconds), new Map())]
    .map(([category, gpu_seconds]) => ({ category, gpu_seconds })), [items]);
  const unpriced = rows.reduce((sum, row) => sum + row.unpriced, 0);
  const wasted = (row) => [...row.parts].filter(([name]) => name !== "stepping").sort((a, b) => b[1] - a[1])[0];
  const columns = [
    [by, (row) => (by === "job" && row.name.includes("-") ? html`<a href=${`/jobs/${row.name}`}>${row.name}</a>` : row.name)],
    ["Device hours", (row) => number(row.gpu_seconds / 3600, 4), "num"], ["Of it spot", (row) => share(row.spot, row.gpu_seconds), "num"],
    ["In kept steps", (row) => share(row.parts.get("stepping") || 0, row.gpu_seconds), "num"],
    ["Largest other part", (row) => (wasted(row) ? `${kind(wasted(row)[0])[0]} ${share(wasted(row)[1], row.gpu_seconds)}` : "–")],
    ["Cost", (row) => (row.cost.size ? [...row.cost].map(([currency, sum]) => `${number(sum, 5)} ${currency}`).join(", ") : "no price"), "num"],
  ];
  return html`<${TimeSpent} parts=${all} />
    ${unpriced > 0 && html`<p class="notice" style="margin:10px 0">${hours(unpriced)} of device time have no price: the pool's policy names none (prices.devices).</p>`}
    ${rows.length ? html`<${Table} caption=${`Device time and cost by ${by}`} columns=${columns} rows=${rows} keyOf=${(row) => row.name} />` : html`<${Empty}>Nothing was used.<//>`}`;
}

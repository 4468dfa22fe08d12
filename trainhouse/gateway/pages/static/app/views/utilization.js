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
  return html`
    <div class="title"><h1>Utilization and cost</h1><div class="push" role="group" aria-label="Period">${SPANS.map(([name, , word]) => html`
      <button aria-pressed=${name === span[0] ? "true" : "false"} onClick=${() => ask({ span: name === "day" ? null : name })}>${word}</button>`)}</div></div>
    <div class="grid">
      <${Card} title="Devices held"><${Shown} of=${used} what="utilization" empty=${(d) => !d.items.length}
        nothing="No node sent a heartbeat in this period.">${(d) => html`<${Held} items=${d.items} />`}<//><//>
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
    ${plan.x.length > 1 ? html`<${Curve} label="Share of devices held" x=${plan.x} series=${series} units=${PERCENT} x_name="hour (UTC)" time />`
      : html`<${Table} caption="Share of devices held by pool" rows=${items} columns=${[["Pool", (r) => r.pool], ["Hour", (r) => r.hour], ["Held", (r) => share(r.held_gpu_seconds, r.capacity_gpu_seconds), "num"],
        ["Busy while measured", (r) => percent(r.utilization_pct), "num"]]} />`}`;
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

// The fleet now: devices by state, who waits and why, alerts, what runs.
import { html, useMemo } from "../kit.js";
import { Card, Figures, JobState, Live, Meter, Pill, useTitle } from "../parts/bits.js";
import { FleetMap } from "../parts/fleetmap.js";
import { Shown } from "../parts/notice.js";
import { Table } from "../parts/table.js";
import { ago, due, number, plural, span, titleOf } from "../format.js";
import { DEVICE_STATES } from "../states.js";
import { useClock, useData } from "../use.js";
import { useJobs } from "../jobs.js";

const EVERY_MS = 5000;
// Tables here are for a glance; the list of jobs draws any number.
const MOST_SHOWN = 20;
const MOST_KNOWN = 2000;
const RUNNING = ["SCHEDULED", "INITIALIZING", "RUNNING", "CHECKPOINTING", "PREEMPTED"];
const holds = (job) => RUNNING.includes(job.state);

export default function Overview() {
  useTitle("Overview");
  const devices = useData("/v1/devices", { every_ms: EVERY_MS });
  const queue = useData("/v1/queue?limit=1000", { every_ms: EVERY_MS });
  const alerts = useData("/v1/alerts?state=OPEN&limit=100", { every_ms: EVERY_MS });
  const running = useJobs({ state: RUNNING }, holds, MOST_KNOWN);
  const now_ms = useClock();
  return html`
    <div class="title"><h1>Overview</h1><${Live} state=${running.live} /></div>
    <${Totals} devices=${devices.data} queue=${queue.data} running=${running.jobs} more=${running.more} alerts=${alerts.data} />
    <div class="grid">
      <${Card} title="Devices"><${Shown} of=${devices} what="the fleet" empty=${(d) => !d.items.length}
        nothing="No node has registered yet. Start an agent on a machine: trainhouse run agent.">${(d) => html`
          <${FleetMap} nodes=${d.items} /><${Counts} counts=${d.counts} />`}<//><//>
      <${Card} title="Waiting" width="w8"><${Shown} of=${queue} what="the queue" empty=${(d) => !d.items.length}
        nothing="No job waits: each has its devices or has ended.">${(d) => html`<${Queue} data=${d} now_ms=${now_ms} />`}<//><//>
      <${Card} title="Alerts" width="w4"><${Shown} of=${alerts} what="alerts" empty=${(d) => !d.items.length}
        nothing="No alert is open.">${(d) => html`<${Alerts} items=${d.items} now_ms=${now_ms} />`}<//><//>
      <${Card} title="Running"><${Shown} of=${running} what="running jobs" empty=${(d) => !d.length}
        nothing="No job holds devices now.">${(d) => html`<${Running} jobs=${d} />`}<//><//>
    </div>`;
}

function Totals({ devices, queue, running, more, alerts }) {
  const counts = devices?.counts || {};
  const all = Object.values(counts).reduce((sum, n) => sum + n, 0);
  const used = (counts.running || 0) + (counts.starting || 0) + (counts.saving || 0);
  return html`<${Figures} items=${[
    ["Devices in use", devices ? `${number(used)} of ${number(all)}` : "…"],
    ["Not usable", devices ? number((counts.closed || 0) + (counts.suspected || 0) + (counts.lost || 0)) : "…"],
    ["Jobs that hold devices", running ? `${number(running.length)}${more ? "+" : ""}` : "…"],
    ["Jobs that wait", queue ? `${number(queue.items.length)}${queue.next_cursor ? "+" : ""}` : "…"],
    ["Open alerts", alerts ? number(alerts.items.length) : "…"],
  ]} />`;
}

const Counts = ({ counts }) => html`<ul class="legend" aria-label="Devices by state">${Object.values(DEVICE_STATES).map(([word, token]) => html`
  <li><${Pill} word=${word} token=${token} square /> <b>${number(counts[word] || 0)}</b></li>`)}</ul>`;

function Queue({ data, now_ms }) {
  const columns = [
    ["Place", (job) => job.place || "–", "num"],
    ["Job", (job) => html`<a href=${`/jobs/${job.job_id}`}>${titleOf(job)}</a>`],
    ["Team", (job) => job.team],
    ["Ranks", (job) => number(job.world_size), "num"],
    ["Waits", (job) => span((now_ms - Date.parse(job.waiting_since)) / 1000), "num"],
    ["Why", (job) => job.text || "The scheduler has not decided about it yet.", "wide"],
    ["Start expected", (job) => (job.reserved_start || job.eta ? due(job.reserved_start || job.eta, now_ms) : "not known")],
  ];
  return html`<${Table} caption="Jobs that wait, in order" columns=${columns} rows=${data.items.slice(0, MOST_SHOWN)} keyOf=${(job) => job.job_id} />
    ${data.items.length > MOST_SHOWN && html`<p class="sub">The first ${MOST_SHOWN} are shown; <a href="/jobs?q=state:waiting">all that wait</a>.</p>`}`;
}

const SEVERITIES = ["INFO", "WARNING", "CRITICAL"];
const weight = (alert) => SEVERITIES.indexOf(String(alert.severity).toUpperCase());

// Alerts by cause, the gravest cause first: a rule fires once for each thing that it watches, and error budgets burn over four spans at once. Pure.
export function byCause(alerts) {
  const causes = new Map();
  for (const alert of alerts) {
    const name = alert.rule.startsWith("slo-burn-") ? "slo-burn" : alert.rule;
    if (!causes.has(name)) causes.set(name, { name, alerts: [] });
    causes.get(name).alerts.push(alert);
  }
  for (const cause of causes.values()) cause.alerts.sort((a, b) => weight(b) - weight(a) || (a.since < b.since ? -1 : 1));
  return [...causes.values()].sort((a, b) => weight(b.alerts[0]) - weight(a.alerts[0]));
}

const Alert = ({ alert, now_ms }) => html`<strong>${alert.summary || alert.rule}</strong><br /><span class="sub">${alert.severity} · ${alert.rule} · since ${ago(alert.since, now_ms)}
  ${alert.owner && ` · ${alert.owner}`}</span>`;

const Alerts = ({ items, now_ms }) => html`<ul class="list" aria-label="Open alerts by cause">${byCause(items).map(({ name, alerts }) => html`<li key=${name}>
  <${Alert} alert=${alerts[0]} now_ms=${now_ms} />
  ${alerts.length > 1 && html`<details><summary>${number(alerts.length)} alerts of this cause</summary><ul class="list">${alerts.slice(1).map((alert) => html`
    <li key=${`${alert.rule}/${alert.key}/${alert.since}`}><${Alert} alert=${alert} now_ms=${now_ms} /></li>`)}</ul></details>`}</li>`)}</ul>`;

function Running({ jobs }) {
  const rows = useMemo(() => [...jobs].sort((a, b) => b.world_size - a.world_size || (a.job_id < b.job_id ? -1 : 1)).slice(0, MOST_SHOWN), [jobs]);
  const columns = [
    ["Job", (job) => html`<a href=${`/jobs/${job.job_id}`}>${job.name}</a>`],
    ["State", (job) => html`<${JobState} state=${job.state} />`],
    ["Team", (job) => job.team],
    ["Ranks", (job) => number(job.world_size), "num"],
    ["Progress", (job) => (job.total_steps ? html`<${Meter} part=${job.step / job.total_steps} label=${`${plural(job.step, "step")} of ${number(job.total_steps)}`} />` : number(job.step))],
    ["Loss", (job) => number(job.loss), "num"],
    ["Left", (job) => span(job.eta_s), "num"],
  ];
  return html`<${Table} caption="Jobs that hold devices" columns=${columns} rows=${rows} keyOf=${(job) => job.job_id} />
    ${jobs.length > MOST_SHOWN && html`<p class="sub">The ${MOST_SHOWN} largest are shown; <a href="/jobs?q=state:running">all that run</a>.</p>`}`;
}

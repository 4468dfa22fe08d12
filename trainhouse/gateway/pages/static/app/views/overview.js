// The fleet now: what runs, what waits and why, alerts by cause; then devices by state and the platform's objectives.
import { html, useMemo } from "../kit.js";
import { url } from "../api.js";
import { Card, JobState, Live, Meter, Pill, useTitle } from "../parts/bits.js";
import { FleetMap } from "../parts/fleetmap.js";
import { Shown } from "../parts/notice.js";
import { Spark } from "../parts/spark.js";
import { Table } from "../parts/table.js";
import { due, number, plural, span, titleOf } from "../format.js";
import { DEVICE_STATES } from "../states.js";
import { useClock, useData } from "../use.js";
import { useJobs } from "../jobs.js";
import { Causes } from "./overview/causes.js";
import { byReason, byTeam } from "./overview/groups.js";
import { Objectives } from "./overview/objectives.js";

const EVERY_MS = 5000;
const SELDOM_MS = 60000;
// Tables here are for a glance; the list of jobs draws any number.
const MOST_SHOWN = 5;
const MOST_GROUPS = 8;
const MOST_KNOWN = 2000;
const RUNNING = ["SCHEDULED", "INITIALIZING", "RUNNING", "CHECKPOINTING", "PREEMPTED"];
const holds = (job) => RUNNING.includes(job.state);

export default function Overview() {
  useTitle("Overview");
  const devices = useData("/v1/devices", { every_ms: EVERY_MS });
  const queue = useData("/v1/queue?limit=1000", { every_ms: EVERY_MS });
  const causes = useData("/v1/alerts/causes", { every_ms: EVERY_MS });
  const trend = useData("/v1/fleet/trend", { every_ms: SELDOM_MS });
  const objectives = useData("/v1/slo", { every_ms: SELDOM_MS });
  const running = useJobs({ state: RUNNING }, holds, MOST_KNOWN);
  const now_ms = useClock();
  return html`
    <div class="title"><h1>Overview</h1><${Live} state=${running.live} /></div>
    <${Totals} devices=${devices.data} queue=${queue.data} running=${running.jobs} more=${running.more} causes=${causes.data} trend=${trend.data} />
    <div class="grid">
      <${Card} title="Running"><${Shown} of=${running} what="running jobs" empty=${(d) => !d.length}
        nothing=${html`No job holds devices now. Submit one: <code>trainhouse submit SPEC</code>, or <code>trainhouse demo</code> for an example.`}>${(d) => html`<${Running} jobs=${d} />`}<//><//>
      <${Card} title="Waiting"><${Shown} of=${queue} what="the queue" empty=${(d) => !d.items.length}
        nothing="No job waits: each has its devices or has ended.">${(d) => html`<${Queue} data=${d} now_ms=${now_ms} />`}<//><//>
      <${Card} title="Alerts"><${Shown} of=${causes} what="alerts" empty=${(d) => !d.items.length}
        nothing=${html`No alert is open. <code>trainhouse alerts rules</code> lists what is watched.`}>${(d) => html`<${Causes} groups=${d.items} now_ms=${now_ms} />`}<//><//>
      <${Card} title="Devices"><${Shown} of=${devices} what="the fleet" empty=${(d) => !d.items.length}
        nothing=${html`No node has registered yet. Start an agent on a machine: <code>trainhouse run agent</code>.`}>${(d) => html`
          <${FleetMap} nodes=${d.items} /><${Counts} counts=${d.counts} />`}<//><//>
      <${Card} title="Objectives"><${Shown} of=${objectives} what="objectives" empty=${(d) => !d.items.length}
        nothing=${html`No objective is set. <code>trainhouse slo</code> shows those that come with Trainhouse.`}>${(d) => html`<${Objectives} rows=${d.items} />`}<//><//>
    </div>`;
}

function Totals({ devices, queue, running, more, causes, trend }) {
  const counts = devices?.counts || {};
  const all = Object.values(counts).reduce((sum, n) => sum + n, 0);
  const used = (counts.running || 0) + (counts.starting || 0) + (counts.saving || 0);
  const alerts = causes?.items.reduce((sum, group) => sum + group.alerts.length, 0);
  const items = [
    ["Jobs that hold devices", running ? `${number(running.length)}${more ? "+" : ""}` : "…", trend?.running, "--s-running"],
    ["Jobs that wait", queue ? `${number(queue.items.length)}${queue.next_cursor ? "+" : ""}` : "…", trend?.waiting, "--s-waiting"],
    ["Open alerts", causes ? `${number(alerts)}${alerts > causes.items.length ? ` from ${plural(causes.items.length, "cause")}` : ""}` : "…", trend?.alerts, "--bad"],
    ["Devices in use", devices ? `${number(used)} of ${number(all)}` : "…"],
    ["Not usable", devices ? number((counts.closed || 0) + (counts.suspected || 0) + (counts.lost || 0)) : "…"],
  ];
  return html`<dl class="figures">${items.map(([name, value, values, token]) => html`<div><dt>${name}</dt><dd>${value}
    ${values && html`<${Spark} values=${values} label=${`${name} in the last day`} token=${token} zero />`}</dd></div>`)}</dl>`;
}

const Counts = ({ counts }) => html`<ul class="legend" aria-label="Devices by state">${Object.values(DEVICE_STATES).map(([word, token]) => html`
  <li><${Pill} word=${word} token=${token} square /> <b>${number(counts[word] || 0)}</b></li>`)}</ul>`;

// A group is a heading and its first jobs; the list of jobs has all of it.
function Group({ title, sub, href, more, children }) {
  return html`<section class="group"><h3>${title} <span class="sub">${sub}</span></h3>${children}
    ${more > 0 && html`<p class="sub"><a href=${href}>${number(more)} more</a></p>`}</section>`;
}

function Queue({ data, now_ms }) {
  const groups = useMemo(() => byReason(data.items), [data]);
  const columns = [
    ["Place", (job) => job.place || "–", "num"],
    ["Job", (job) => html`<a href=${`/jobs/${job.job_id}?tab=why`}>${titleOf(job)}</a>`, "wide"],
    ["Team", (job) => job.team],
    ["Ranks", (job) => number(job.world_size), "num"],
    ["Waits", (job) => span((now_ms - Date.parse(job.waiting_since)) / 1000), "num"],
    ["Why", (job) => job.text || "The scheduler has not decided about it yet.", "wide"],
    ["Start expected", (job) => (job.reserved_start || job.eta ? due(job.reserved_start || job.eta, now_ms) : "not known")],
  ];
  const oldest = (jobs) => span((now_ms - Math.min(...jobs.map((job) => Date.parse(job.waiting_since)))) / 1000);
  return html`${groups.slice(0, MOST_GROUPS).map(({ key, jobs, ranks }) => html`<${Group} key=${key} title=${key} sub=${`${plural(jobs.length, "job")}, ${plural(ranks, "rank")}, the longest for ${oldest(jobs)}`}
      href=${`/jobs?q=${encodeURIComponent(`state:waiting pool:${jobs[0].pool}`)}`} more=${jobs.length - MOST_SHOWN}>
      <${Table} caption=${groups.length > 1 ? `Jobs that wait, in order, ${key}` : "Jobs that wait, in order"} columns=${columns} rows=${jobs.slice(0, MOST_SHOWN)} keyOf=${(job) => job.job_id} /><//>`)}
    ${groups.length > MOST_GROUPS && html`<p class="sub">${number(groups.length - MOST_GROUPS)} more groups; <a href="/jobs?q=state:waiting">all that wait</a>.</p>`}`;
}

function Running({ jobs }) {
  const groups = useMemo(() => byTeam(jobs), [jobs]);
  const shown = groups.slice(0, MOST_GROUPS);
  const ids = shown.flatMap((group) => group.jobs.slice(0, MOST_SHOWN)).map((job) => job.job_id);
  const losses = useData(url("/v1/fleet/losses", { job: ids }), { every_ms: SELDOM_MS });
  const curves = useMemo(() => new Map((losses.data?.items || []).map((one) => [one.job_id, one.values])), [losses.data]);
  const columns = [
    ["Job", (job) => html`<a href=${`/jobs/${job.job_id}`}>${titleOf(job)}</a>`, "wide"],
    ["State", (job) => html`<${JobState} state=${job.state} />`],
    ["Ranks", (job) => number(job.world_size), "num"],
    ["Progress", (job) => (job.total_steps ? html`<${Meter} part=${job.step / job.total_steps} label=${`${plural(job.step, "step")} of ${number(job.total_steps)}`} />` : number(job.step))],
    ["Loss", (job) => html`<span class="beside">${curves.has(job.job_id) && html`<${Spark} values=${curves.get(job.job_id)} label=${`Loss of ${titleOf(job)}`} />`} ${number(job.loss)}</span>`, "num"],
    ["Left", (job) => span(job.eta_s), "num"],
  ];
  return html`${shown.map(({ key, jobs: own, ranks }) => html`<${Group} key=${key} title=${key} sub=${`${plural(own.length, "job")}, ${plural(ranks, "rank")}`}
      href=${`/jobs?q=${encodeURIComponent(`state:running team:${key}`)}`} more=${own.length - MOST_SHOWN}>
      <${Table} caption=${groups.length > 1 ? `Jobs that hold devices, team ${key}` : "Jobs that hold devices"} columns=${columns} rows=${own.slice(0, MOST_SHOWN)} keyOf=${(job) => job.job_id} /><//>`)}
    ${groups.length > MOST_GROUPS && html`<p class="sub">${number(groups.length - MOST_GROUPS)} more teams; <a href="/jobs?q=state:running">all that run</a>.</p>`}`;
}

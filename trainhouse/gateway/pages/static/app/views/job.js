// One job: what it is now, its parts as sections of the address (?tab=), actions that the reader's role allows.
import { html, useCallback, useEffect, useState } from "../kit.js";
import { call } from "../api.js";
import { Figures, JobState, Live, Meter, useTitle } from "../parts/bits.js";
import { Failed, Loading } from "../parts/notice.js";
import { ask } from "../router.js";
import { ago, moment, number, plural, span, titleOf } from "../format.js";
import { ENDED, jobWord } from "../states.js";
import { useClock, useLive } from "../use.js";
import { Summary } from "./job/summary.js";
import { Media } from "./job/media.js";
import { Ranks } from "./job/ranks.js";
import { Performance } from "./job/performance.js";
import { Checkpoints } from "./job/checkpoints.js";
import { Logs } from "./job/logs.js";
import { Events } from "./job/events.js";
import { Why } from "./job/why.js";
import { Config } from "./job/config.js";
import { Artifacts } from "./job/artifacts.js";
import { Lineage } from "./job/lineage.js";
import { Actions } from "./job/actions.js";
import { Share } from "./job/share.js";
import { Tags } from "./job/tags.js";

const TABS = [
  ["summary", "Summary", Summary], ["media", "Media", Media], ["ranks", "Ranks", Ranks], ["performance", "Performance", Performance], ["checkpoints", "Checkpoints", Checkpoints], ["logs", "Logs", Logs],
  ["events", "Events", Events], ["why", "Why pending", Why], ["config", "Config", Config], ["artifacts", "Artifacts", Artifacts], ["lineage", "Lineage", Lineage],
];

// What a link to one run does not open: other jobs, and events as they are.
const NOT_SHARED = ["events", "why", "lineage", "performance"];

// The newer one counts, whether the stream or the answer to a question brought it, and whichever came first.
const newer = (told) => (before) => (before && told.status_seq < before.status_seq ? before : { ...before, ...told });

// What a section wants to hear besides statuses: a wide gang's metrics are not sent to somebody who reads its config.
const PATIENCE_MS = 1000;
const NEWS = { summary: "metrics", logs: "log", events: "event" };

export default function Job({ id, query, who }) {
  const path = `/v1/training-jobs/${encodeURIComponent(id)}`;
  const [job, setJob] = useState(null);
  const [error, setError] = useState(null);
  const [pulse, setPulse] = useState({ metrics: 0, event: 0, log: 0 });
  // Curves are asked for once the stream brings what comes after them: before, each would be asked for twice.
  const [ready, setReady] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setReady(true), PATIENCE_MS);
    return () => clearTimeout(timer);
  }, []);
  const now_ms = useClock();
  useTitle(job ? titleOf(job) : id);
  const load = useCallback(() => call(path).then((found) => { setJob(newer(found)); setError(null); }, setError), [path]);
  useEffect(() => { load(); }, [path]);
  const beat = (name) => () => setPulse((before) => ({ ...before, [name]: before[name] + 1 }));
  const tabs = who.run ? TABS.filter(([name]) => !NOT_SHARED.includes(name)) : TABS;
  const tab = tabs.find(([name]) => name === query.get("tab")) || tabs[0];
  const news = NEWS[tab[0]] ? `&include=${NEWS[tab[0]]}` : "";
  const live = useLive(`${path}/stream?include=status${news}`, {
    status: (told) => setJob(newer(told)),
    metrics: beat("metrics"), event: beat("event"), log: beat("log"), begins: () => { if (news && (ready || tab[0] !== "summary")) beat(NEWS[tab[0]])(); setReady(true); },
  });
  if (!job) return error ? html`<${Failed} error=${error} again=${load} />` : html`<${Loading} what="the job" />`;
  return html`
    <div class="title"><h1>${titleOf(job)}</h1><${JobState} state=${job.state} />${!ENDED.has(job.state) && html`<${Live} state=${live} />`}
      <div class="push"><${Share} job=${job} path=${path} who=${who} />${!who.run && html`<a class="button" href=${`/compare?job=${encodeURIComponent(job.job_id)}`}>Compare</a><${Actions} job=${job} path=${path} who=${who} />`}<${Review} job=${job} path=${path} who=${who} /><${Cancel} job=${job} path=${path} who=${who} /></div></div>
    <p class="sub"><code>${job.job_id}</code> · team ${job.team} · ${job.user} · project ${job.project} · pool ${job.pool}</p>
    ${!who.run && html`<${Tags} path=${path} who=${who} />`}
    ${job.reason && html`<${Reason} job=${job} />`}
    ${job.state === "PENDING" && tab[0] === "summary" && !who.run && html`<div style="margin-bottom:14px"><${Why} job=${job} path=${path} now_ms=${now_ms} /></div>`}
    <${Facts} job=${job} now_ms=${now_ms} />
    <nav class="tabs" aria-label="Parts of the job">${tabs.map(([name, title]) => html`<a href=${`?tab=${name}`} aria-current=${name === tab[0] ? "page" : null}
      onClick=${(event) => { event.preventDefault(); ask({ tab: name === "summary" ? null : name }); }}>${title}</a>`)}</nav>
    <${tab[2]} job=${job} path=${path} pulse=${pulse} now_ms=${now_ms} who=${who} query=${query} ready=${ready || ENDED.has(job.state)} />`;
}

// The first line says what happened; the rest (a traceback, other ranks) is there on demand.
function Reason({ job }) {
  const bad = job.state === "FAILED" || job.state === "REJECTED";
  const lines = job.reason.trim().split("\n");
  const rest = lines.slice(1).join("\n").trim();
  return html`<div class=${`notice${bad ? " bad" : ""}`} style="margin-bottom:14px"><strong>${bad ? `${jobWord(job.state)}: ` : ""}${lines[0]}</strong>
    ${rest && html`<details><summary>All of it</summary><pre class="text">${rest}</pre></details>`}
    ${job.state === "FAILED" && html` <a class="inline" href="?tab=logs&level=error" onClick=${(event) => { event.preventDefault(); ask({ tab: "logs", level: "error" }); }}>Errors in the logs</a>`}</div>`;
}

function Facts({ job, now_ms }) {
  const part = job.total_steps ? (job.step || 0) / job.total_steps : 0;
  const items = [
    ["Steps", job.total_steps ? html`${number(job.step || 0)} of ${number(job.total_steps)}<${Meter} part=${part} label=${`${Math.floor(100 * part)} % of the steps`} />` : number(job.step)],
    ["Loss", number(job.loss)], ["Steps/s", number(job.steps_per_s, 3)], ["Ranks", number(job.world_size)],
    ["Attempt", `${job.attempt}${job.restarts ? `, ${plural(job.restarts, "restart")}` : ""}`],
    ["Submitted", html`<span title=${moment(job.submitted_at)}>${ago(job.submitted_at, now_ms)}</span>`],
    job.finished_at ? ["Took", span(job.elapsed_s)] : ["Left", span(job.eta_s)],
    ["Last checkpoint", job.last_checkpoint_step === null ? "none" : `step ${number(job.last_checkpoint_step)}`],
  ];
  return html`<${Figures} items=${items} />`;
}

// Of a job under review: it goes on by one click; to end it there is the button beside.
function Review({ job, path, who }) {
  const [word, setWord] = useState("");
  if (job.state !== "NEEDS_REVIEW" || !who.roles.some((role) => role !== "viewer")) return null;
  const go_on = async () => {
    try {
      await call(`${path}/review`, { method: "POST", body: { action: "go_on", reason: "continued on the pages" } });
      setWord("Asked to continue: its state follows here.");
    } catch (error) { setWord(error.message); }
  };
  return word ? html`<span class="sub" role="status">${word}</span>` : html`<button onClick=${go_on}>Continue</button>`;
}

// Asks twice; the answer is an event that the scheduler obeys, so the state follows by the live stream.
function Cancel({ job, path, who }) {
  const [asked, setAsked] = useState(false);
  const [word, setWord] = useState("");
  if (ENDED.has(job.state) || job.source === "tracked" || !who.roles.some((role) => role !== "viewer")) return null;
  const cancel = async () => {
    setAsked(false);
    try {
      await call(`${path}/cancel`, { method: "POST", body: { reason: "cancelled on the pages" } });
      setWord("Asked to cancel: its state follows here.");
    } catch (error) { setWord(error.message); }
  };
  if (word) return html`<span class="sub" role="status">${word}</span>`;
  if (!asked) return html`<button class="danger" onClick=${() => setAsked(true)}>Cancel job</button>`;
  return html`<span class="row" role="group" aria-label="Cancel this job?">Cancel this job?
    <button class="danger" onClick=${cancel}>Yes, cancel it</button><button onClick=${() => setAsked(false)}>Keep it</button></span>`;
}

// All jobs: a filter, an order, a list of which only what is in sight is drawn, a choice to compare.
import { html, useEffect, useMemo, useRef, useState } from "../kit.js";
import { JobState, Live, Meter, useTitle } from "../parts/bits.js";
import { Shown } from "../parts/notice.js";
import { Rows } from "../parts/rows.js";
import { ask, go } from "../router.js";
import { keep, sorted } from "../filter.js";
import { ago, number, plural } from "../format.js";
import { useClock } from "../use.js";
import { useJobs } from "../jobs.js";

const MOST = 20000;
const MOST_COMPARED = 50;
const EVERYTHING = () => true;
const COLUMNS = [["name", "Job"], ["state", "State"], ["team", "Team"], ["user", "User"], ["ranks", "Ranks"], ["progress", "Progress"], ["loss", "Loss"], ["submitted", "Submitted"]];
const QUICK = [["", "All"], ["state:running", "Running"], ["state:waiting", "Waiting"], ["state:failed", "Failed"], ["state:succeeded", "Succeeded"]];

export default function Jobs({ query }) {
  useTitle("Jobs");
  const found = useJobs({}, EVERYTHING, MOST);
  const [line, setLine] = useState(query.get("q") || "");
  const [order, setOrder] = useState(query.get("order") || "-submitted");
  const [chosen, setChosen] = useState(() => new Set());
  const now_ms = useClock(10000);
  const wide = useWide();
  const field = useRef(null);
  useEffect(() => { ask({ q: line, order: order === "-submitted" ? null : order }); }, [line, order]);
  const rows = useMemo(() => sorted(keep(found.jobs || [], line), order), [found.jobs, line, order]);
  const choose = (job) => setChosen((before) => {
    const next = new Set(before);
    if (!next.delete(job.job_id) && next.size < MOST_COMPARED) next.add(job.job_id);
    return next;
  });
  return html`
    <div class="title"><h1>Jobs</h1><${Live} state=${found.live} />
      <span class="sub" role="status">${found.jobs ? `${number(rows.length)} of ${plural(found.jobs.length, "job")}` : ""}</span>
      ${chosen.size > 0 && html`<div class="push"><button class="main" onClick=${() => go(`/compare?${[...chosen].map((id) => `job=${id}`).join("&")}`)}>
        Compare ${number(chosen.size)}</button><button onClick=${() => setChosen(new Set())}>Clear</button></div>`}</div>
    <div class="row" style="margin-bottom:10px">
      <label class="grow"><span class="hidden">Filter jobs</span><input ref=${field} data-search type="search" style="width:100%" value=${line}
        placeholder="Filter: words, state:running team:vision user:ada pool:a100  ( / )" onInput=${(event) => setLine(event.target.value)} /></label>
      <div class="row" role="group" aria-label="Often used filters">${QUICK.map(([text, word]) => html`
        <button aria-pressed=${line.trim() === text ? "true" : "false"} onClick=${() => setLine(text)}>${word}</button>`)}</div>
    </div>
    <${Shown} of=${found} what="jobs" empty=${(jobs) => !jobs.length && !found.more}
      nothing="There is no job yet. Submit one: trainhouse submit SPEC.yaml, or POST /v1/training-jobs.">${() => html`
      <div class="card" style="padding:0">
        <${Head} order=${order} setOrder=${setOrder} />
        ${rows.length ? html`<${Rows} rows=${rows} height_px=${wide ? 44 : 62} look="jobs-body" rowLook="jobs-row" label="Jobs" keyOf=${(job) => job.job_id}
          open=${(job) => go(`/jobs/${job.job_id}`)} draw=${(job) => row(job, chosen, choose, now_ms)} />`
          : html`<p class="notice" style="margin:12px">No job fits “${line}”. <button onClick=${() => { setLine(""); field.current.focus(); }}>Show all</button></p>`}
      </div>
      ${found.more && html`<p class="notice warn">The newest ${number(MOST)} jobs are listed; older ones are on the <a href="/sql">SQL page</a>.</p>`}`}<//>`;
}

function Head({ order, setOrder }) {
  return html`<div class="jobs-head">${COLUMNS.map(([key, title]) => {
    const down = order === `-${key}`;
    const on = down || order === key;
    return html`<button class=${["ranks", "loss"].includes(key) ? "num" : ""} aria-label=${`Order by ${title}${on ? (down ? ", now falling" : ", now rising") : ""}`}
      onClick=${() => setOrder(on && !down ? `-${key}` : on ? key : key === "submitted" ? "-submitted" : key)}>${title}${on ? (down ? " ↓" : " ↑") : ""}</button>`;
  })}</div>`;
}

function row(job, chosen, choose, now_ms) {
  const part = job.total_steps ? job.step / job.total_steps : 0;
  return html`
    <div class="clip"><input type="checkbox" aria-label=${`Choose ${job.name} to compare`} checked=${chosen.has(job.job_id)} onChange=${() => choose(job)} />
      <a class="name" href=${`/jobs/${job.job_id}`} tabindex="-1">${job.name}</a> <span class="id">${job.job_id}</span></div>
    <${JobState} state=${job.state} />
    <span class="clip">${job.team}</span><span class="clip">${job.user}</span><span class="num">${number(job.world_size)}</span>
    <span class="row" style="flex-wrap:nowrap">${job.total_steps ? html`<span style="flex:1"><${Meter} part=${part} label=${`Step ${job.step || 0} of ${job.total_steps}`} /></span>
      <span class="num" style="width:5ch">${Math.floor(100 * part)} %</span>` : job.step ? `step ${number(job.step)}` : "–"}</span>
    <span class="num">${number(job.loss)}</span><span class="clip">${ago(job.submitted_at || job.updated_at, now_ms)}</span>`;
}

function useWide() {
  const wide = matchMedia("(min-width: 821px)");
  const [is, setIs] = useState(wide.matches);
  useEffect(() => {
    const changed = () => setIs(wide.matches);
    wide.addEventListener("change", changed);
    return () => wide.removeEventListener("change", changed);
  }, []);
  return is;
}

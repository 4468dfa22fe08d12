// All jobs: a filter, an order, groups, chosen columns, a list of which only what is in sight is drawn, a choice to compare.
// Holds: what is asked for is in the address (q, order, group, col), so it can be saved and shared.
import { html, useEffect, useMemo, useRef, useState } from "../kit.js";
import { JobState, Live, Meter, useTitle } from "../parts/bits.js";
import { Menu } from "../parts/menu.js";
import { Shown } from "../parts/notice.js";
import { Rows } from "../parts/rows.js";
import { Saved } from "../parts/saved.js";
import { ask, go } from "../router.js";
import { gathered, keep, sorted } from "../filter.js";
import { ago, number, plural, span, titleOf } from "../format.js";
import { jobWord } from "../states.js";
import { useClock } from "../use.js";
import { useJobs } from "../jobs.js";
import { wordsOf } from "../tags.js";
import { Bulk, MOST_CHOSEN } from "./jobs/bulk.js";
import { isMore, MoreColumns, tagColumns, useMoreColumns, useTags } from "./jobs/columns.js";

const MOST = 20000;
const EVERYTHING = () => true;
const FIELDS = ["q", "order", "group", "col"];
// [key, title, width, what a cell shows, is it a number]; the name is always there.
const COLUMNS = [
  ["state", "State", "7.5rem", (job) => html`<${JobState} state=${job.state} />`],
  ["team", "Team", "minmax(0, 1fr)", (job) => job.team], ["user", "User", "minmax(0, 1fr)", (job) => job.user],
  ["project", "Project", "minmax(0, 1fr)", (job) => job.project], ["pool", "Pool", "minmax(0, 1fr)", (job) => job.pool],
  ["ranks", "Ranks", "4.5rem", (job) => number(job.world_size), true],
  ["progress", "Progress", "minmax(0, 1.3fr)", (job) => html`<${Progress} job=${job} />`],
  ["loss", "Loss", "5rem", (job) => number(job.loss), true], ["steps_per_s", "Steps/s", "5rem", (job) => number(job.steps_per_s, 3), true],
  ["restarts", "Restarts", "5.5rem", (job) => number(job.restarts), true],
  ["duration", "Duration", "7rem", (job) => span(job.elapsed_s), true],
  ["submitted", "Submitted", "7rem", (job, now_ms) => ago(job.submitted_at || job.updated_at, now_ms)],
  ["reason", "Reason", "minmax(0, 2fr)", (job) => html`<span title=${job.reason}>${(job.reason || "").split("\n")[0] || "–"}</span>`],
];
const FIRST = ["state", "team", "user", "ranks", "progress", "loss", "submitted"];
// On a narrow screen a row has the name and the state, and below them the chosen columns two a line; of those shown at first, these.
const BELOW = ["progress", "submitted"];
const WIDE_ROW_PX = 44;
const NARROW_ROW_PX = 62;
const BELOW_LINE_PX = 22;
const GROUPS = ["state", "team", "user", "project", "pool"];
const QUICK = [["", "All"], ["state:running", "Running"], ["state:waiting", "Waiting"], ["state:failed", "Failed"], ["state:succeeded", "Succeeded"]];

export default function Jobs({ query, who }) {
  useTitle("Jobs");
  const found = useJobs({}, EVERYTHING, MOST);
  const line = query.get("q") || "";
  const setLine = (text) => ask({ q: text });
  const order = query.get("order") || "-submitted";
  const setOrder = (next) => ask({ order: next === "-submitted" ? null : next });
  const group = GROUPS.includes(query.get("group")) ? query.get("group") : "";
  const chosenColumns = query.getAll("col").flatMap((key) => (isMore(key) ? [key] : key.split(",")));
  const asked = chosenColumns.join("\n");
  const more = useMoreColumns(chosenColumns);
  const { tags, reload } = useTags();
  const known = useMemo(() => [...COLUMNS, ...tagColumns(tags)], [tags]);
  const columns = useMemo(() => [...known.filter(([key]) => (asked ? chosenColumns : FIRST).includes(key)), ...more.columns], [asked, known, more]);
  const values = useMemo(() => ({ ...more.values, tags: (job) => wordsOf(tags.get(job.job_id)).join(" ") || undefined }), [more, tags]);
  const [chosen, setChosen] = useState(() => new Set());
  const now_ms = useClock(10000);
  const wide = useWide();
  const field = useRef(null);
  const rows = useMemo(() => sorted(keep(found.jobs || [], line, tags), order, values), [found.jobs, line, order, tags, values]);
  const picked = useMemo(() => (chosen.size ? (found.jobs || []).filter((job) => chosen.has(job.job_id)) : []), [found.jobs, chosen]);
  const lines = useMemo(() => gathered(rows, group), [rows, group]);
  const choose = (job) => setChosen((before) => {
    const next = new Set(before);
    if (!next.delete(job.job_id) && next.size < MOST_CHOSEN) next.add(job.job_id);
    return next;
  });
  const grid = { gridTemplateColumns: ["minmax(0, 2.4fr)", ...columns.map(([, , width]) => width)].join(" ") };
  const below = columns.filter(([key]) => key !== "state" && (asked || BELOW.includes(key)));
  const height_px = wide ? WIDE_ROW_PX : NARROW_ROW_PX + BELOW_LINE_PX * Math.max(0, Math.ceil(below.length / 2) - 1);
  return html`
    <div class="title"><h1>Jobs</h1><${Live} state=${found.live} />
      <span class="sub" role="status">${found.jobs ? `${number(rows.length)} of ${plural(found.jobs.length, "job")}` : ""}</span></div>
    <${Bulk} jobs=${picked} rows=${rows} who=${who} setChosen=${setChosen} tagged=${reload} />
    ${more.error && html`<p class="notice warn" role="status" style="margin-bottom:10px">Parameters and metrics are not up to date: ${more.error.message}</p>`}
    <div class="row" style="margin-bottom:10px">
      <label class="grow"><span class="hidden">Filter jobs</span><input ref=${field} data-search type="search" style="width:100%" value=${line}
        placeholder="Filter: words, state:running team:vision user:ada pool:a100 tag:paper  ( / )" onInput=${(event) => setLine(event.target.value)} /></label>
      <div class="row" role="group" aria-label="Often used filters">${QUICK.map(([text, word]) => html`
        <button aria-pressed=${line.trim() === text ? "true" : "false"} onClick=${() => setLine(text)}>${word}</button>`)}</div>
      <label class="inline">Group by<select value=${group} onChange=${(event) => ask({ group: event.target.value })}><option value="">nothing</option>
        ${GROUPS.map((name) => html`<option value=${name}>${name}</option>`)}</select></label>
      <${Columns} columns=${columns} known=${known} /><${Saved} place="jobs" fields=${FIELDS} query=${query} />
    </div>
    <${Shown} of=${found} what="jobs" empty=${(jobs) => !jobs.length && !found.more}
      nothing=${html`There is no job yet. Submit one: <code>trainhouse submit SPEC.yaml</code>, or <code>POST /v1/training-jobs</code>.`}>${() => html`
      <div class="card jobs" style="padding:0">
        <${Head} order=${order} setOrder=${setOrder} columns=${columns} grid=${grid} />
        ${rows.length ? html`<${Rows} rows=${lines} height_px=${height_px} look="jobs-body" rowLook="jobs-row" label="Jobs" keyOf=${(job) => job.job_id || `group ${job.group}`}
          open=${(job) => job.job_id && go(`/jobs/${job.job_id}`)} draw=${(job) => (job.job_id ? (wide ? row(job, columns, grid, chosen, choose, now_ms) : narrowRow(job, columns, below, chosen, choose, now_ms))
            : html`<div class="jobs-group"><b>${group === "state" ? jobWord(job.group) : job.group || "none"}</b> <span class="sub">${plural(job.count, "job")}</span></div>`)} />`
          : html`<p class="notice" style="margin:12px">No job fits “${line}”. <button onClick=${() => { setLine(""); field.current.focus(); }}>Show all</button></p>`}
      </div>
      ${found.more && html`<p class="notice warn">The newest ${number(MOST)} jobs are listed; older ones are on the <a href="/sql">SQL page</a>.</p>`}`}<//>`;
}

function Columns({ columns, known }) {
  const shown = columns.map(([key]) => key);
  const toggle = (key) => {
    const order = [...known.map(([one]) => one), ...shown.filter(isMore), ...(isMore(key) && !shown.includes(key) ? [key] : [])];
    const next = order.filter((one) => (one === key ? !shown.includes(key) : shown.includes(one)));
    ask({ col: next.join() === FIRST.join() ? null : next });
  };
  const last = shown.length === 1;
  return html`<${Menu} title="Columns" label="Columns shown">${known.map(([key, title]) => html`
    <div><label class="inline"><input type="checkbox" checked=${shown.includes(key)} disabled=${last && shown.includes(key)} onChange=${() => toggle(key)} />${title}</label></div>`)}
    <p class="sub" role="status">${last ? "One column at least is shown: choose another one before this one goes." : ""}</p>
    <${MoreColumns} shown=${shown} set=${toggle} /><//>`;
}

function Head({ order, setOrder, columns, grid }) {
  return html`<div class="jobs-head" style=${grid}>${[["name", "Job"], ...columns].map(([key, title, , , isNumber]) => {
    const down = order === `-${key}`;
    const on = down || order === key;
    return html`<button class=${isNumber ? "num" : ""} aria-label=${`Order by ${title}${on ? (down ? ", now falling" : ", now rising") : ""}`}
      onClick=${() => setOrder(on && !down ? `-${key}` : on ? key : key === "submitted" ? "-submitted" : key)}>${title}${on ? (down ? " ↓" : " ↑") : ""}</button>`;
  })}</div>`;
}

const named = (job, chosen, choose) => html`<div class="clip"><input type="checkbox" aria-label=${`Choose ${titleOf(job)} to compare`} checked=${chosen.has(job.job_id)}
    onChange=${() => choose(job)} /> <a class="name" href=${`/jobs/${job.job_id}`} tabindex="-1">${titleOf(job)}</a> ${job.name && html`<span class="id">${job.job_id}</span>`}</div>`;

// Without a head each cell below has its title, but for those that say themselves what they are.
function narrowRow(job, columns, below, chosen, choose, now_ms) {
  return html`<div class="jobs-cells">${named(job, chosen, choose)}<div>${columns.some(([key]) => key === "state") && html`<${JobState} state=${job.state} />`}</div>
    ${below.map(([key, title, , cell]) => html`<div class="clip below" key=${key}>${!BELOW.includes(key) && html`<span class="sub">${title} </span>`}${cell(job, now_ms)}</div>`)}</div>`;
}

function row(job, columns, grid, chosen, choose, now_ms) {
  return html`<div class="jobs-cells" style=${grid}>${named(job, chosen, choose)}
    ${columns.map(([key, , , cell, isNumber]) => html`<div class=${`clip${isNumber ? " num" : ""}`} key=${key}>${cell(job, now_ms)}</div>`)}</div>`;
}

function Progress({ job }) {
  const part = job.total_steps ? job.step / job.total_steps : 0;
  return html`<span class="row" style="flex-wrap:nowrap">${job.total_steps ? html`<span style="flex:1"><${Meter} part=${part} label=${`Step ${job.step || 0} of ${job.total_steps}`} /></span>
    <span class="num" style="width:5ch">${Math.floor(100 * part)} %</span>` : job.step ? `step ${number(job.step)}` : "–"}</span>`;
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

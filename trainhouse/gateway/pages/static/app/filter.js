// What a filter line means: words, and `field:value` for state, team, user, project, pool, tag. Pure.
import { jobWord } from "./states.js";
import { wordsOf } from "./tags.js";

const FIELDS = ["state", "team", "user", "project", "pool", "id", "tag"];

export function parse(line) {
  const asked = { words: [], fields: [] };
  for (const part of line.toLowerCase().split(/\s+/)) {
    const colon = part.indexOf(":");
    const name = part.slice(0, colon);
    if (colon > 0 && FIELDS.includes(name) && part.length > colon + 1) asked.fields.push([name, part.slice(colon + 1)]);
    else if (part) asked.words.push(part);
  }
  return asked;
}

const valueOf = (job, field) => (field === "state" ? `${job.state} ${jobWord(job.state)}` : field === "id" ? job.job_id : job[field] || "").toLowerCase();

// A job's text is made once: a filter over 10,000 jobs must not build 10,000 strings at each key.
const texts = new WeakMap();
function textOf(job) {
  let text = texts.get(job);
  if (text === undefined) {
    text = `${job.name} ${job.job_id} ${job.team} ${job.user} ${job.project} ${job.pool} ${job.state} ${jobWord(job.state)}`.toLowerCase();
    texts.set(job, text);
  }
  return text;
}

// tags: of jobs, by their ids.
export function keep(jobs, line, tags = new Map()) {
  const holds = (job, field, value) => (field === "tag" ? wordsOf(tags.get(job.job_id)).some((word) => word.toLowerCase().includes(value)) : valueOf(job, field).includes(value));
  const { words, fields } = parse(line);
  if (!words.length && !fields.length) return jobs;
  return jobs.filter((job) => words.every((word) => textOf(job).includes(word)) && fields.every(([field, value]) => holds(job, field, value)));
}

const KEYS = {
  name: (job) => job.name.toLowerCase(), state: (job) => job.state, team: (job) => job.team, user: (job) => job.user, ranks: (job) => job.world_size,
  progress: (job) => (job.total_steps ? job.step / job.total_steps : -1), loss: (job) => job.loss ?? Infinity,
  project: (job) => job.project, pool: (job) => job.pool, steps_per_s: (job) => job.steps_per_s ?? -1, restarts: (job) => job.restarts || 0,
  duration: (job) => job.elapsed_s ?? -1, reason: (job) => job.reason || "",
  submitted: (job) => job.submitted_at || job.updated_at,
};

// order: "submitted" or "-submitted" (the greatest first); equal ones by id, so that rows never jump. more: values of other columns by their
// keys; numbers come before words, and jobs without a value last, whichever way.
export function sorted(jobs, order, more = {}) {
  const down = order.startsWith("-");
  const name = down ? order.slice(1) : order;
  const key = more[name] || KEYS[name] || KEYS.submitted;
  const sign = down ? -1 : 1;
  const keyed = jobs.map((job) => [key(job), job]);
  const rank = (value) => (value === undefined || value === null ? 2 : typeof value === "number" ? 0 : 1);
  const compare = more[name] ? ([a, x], [b, y]) => rank(a) - rank(b) || sign * (a < b ? -1 : a > b ? 1 : x.job_id < y.job_id ? -1 : 1)
    : ([a, x], [b, y]) => sign * (a < b ? -1 : a > b ? 1 : x.job_id < y.job_id ? -1 : 1);
  keyed.sort(compare);
  return keyed.map(([, job]) => job);
}

// Jobs in their order with a line before each group {group, count}, the groups by their names.
export function gathered(jobs, field) {
  if (!field) return jobs;
  const groups = new Map();
  for (const job of jobs) {
    const name = job[field] || "";
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(job);
  }
  return [...groups].sort(([a], [b]) => (a < b ? -1 : 1)).flatMap(([group, own]) => [{ group, count: own.length }, ...own]);
}

// What a filter line means: words, and `field:value` for state, team, user, project, pool. Pure.
import { jobWord } from "./states.js";

const FIELDS = ["state", "team", "user", "project", "pool", "id"];

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

export function keep(jobs, line) {
  const { words, fields } = parse(line);
  if (!words.length && !fields.length) return jobs;
  return jobs.filter((job) => words.every((word) => textOf(job).includes(word)) && fields.every(([field, value]) => valueOf(job, field).includes(value)));
}

const KEYS = {
  name: (job) => job.name.toLowerCase(), state: (job) => job.state, team: (job) => job.team, user: (job) => job.user, ranks: (job) => job.world_size,
  progress: (job) => (job.total_steps ? job.step / job.total_steps : -1), loss: (job) => job.loss ?? Infinity,
  project: (job) => job.project, pool: (job) => job.pool, steps_per_s: (job) => job.steps_per_s ?? -1, restarts: (job) => job.restarts || 0,
  duration: (job) => job.elapsed_s ?? -1, reason: (job) => job.reason || "",
  submitted: (job) => job.submitted_at || job.updated_at,
};

// order: "submitted" or "-submitted" (the greatest first); equal ones by id, so that rows never jump.
export function sorted(jobs, order) {
  const down = order.startsWith("-");
  const key = KEYS[down ? order.slice(1) : order] || KEYS.submitted;
  const keyed = jobs.map((job) => [key(job), job]);
  keyed.sort(([a, x], [b, y]) => (a < b ? -1 : a > b ? 1 : x.job_id < y.job_id ? -1 : 1) * (down ? -1 : 1));
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

// Models in words and addresses: stages, verdicts, figures with their intervals, spans in which a version was champion. Pure.
import { number } from "./format.js";
import { url } from "./api.js";

export const DEFAULT_PROJECT = "default";
export const STAGES = { champion: "--s-running", staging: "--s-waiting", archived: "--s-closed" };
export const VERDICTS = { better: "--s-running", "not worse": "--s-done", worse: "--s-failed", "too few samples": "--s-doubt" };

// version: its ordinal, its semver or champion; absent: the newest one that matters.
export const addressOf = (project, name, version) => url(`/models/${encodeURIComponent(name)}`, { project: project === DEFAULT_PROJECT ? null : project, version });

export const pathOf = (project, name, part = "", params = {}) => url(`/v1/models/${encodeURIComponent(name)}${part}`, { project, ...params });

// What a command about a model ends with. A project's name is any text: in a shell it is one word.
export const inProject = (model) => (model.project === DEFAULT_PROJECT ? "" : ` --project ${inShell(model.project)}`);

const inShell = (text) => (/^[A-Za-z0-9._-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

// Whether a word can name a version: its ordinal, its semver, champion. In an address, dots alone would be another path.
export const isVersion = (text) => /^[A-Za-z0-9][A-Za-z0-9.+-]*$/.test(text);

export const momentOf = (at_ms) => (at_ms === null || at_ms === undefined ? null : new Date(at_ms).toISOString());

export const figureOf = (f) => `${number(f.value)}${intervalOf(f) ? ` ${intervalOf(f)}` : ""}`;

export const intervalOf = (f) => (f.low === null || f.low === undefined || f.high === null || f.high === undefined ? "" : `[${number(f.low)}, ${number(f.high)}]`);

// Of a lineage id: NAME@V, of another project than the default one PROJECT/NAME@V.
export function addressOfId(rest) {
  const found = /^(?:(.*)\/)?([^/@]+)@(\d+)$/.exec(rest);
  return found ? addressOf(found[1] || DEFAULT_PROJECT, found[2], found[3]) : null;
}

// The newest result of each suite and data that a version has, as rows by metric.
export function resultsOf(version) {
  const newest = new Map();
  for (const one of version.evaluations) {
    const key = keyOf(one);
    if (!newest.has(key) || newest.get(key).evaluated_at_ms < one.evaluated_at_ms) newest.set(key, one);
  }
  return [...newest.values()].flatMap((result) => Object.entries(result.metrics).sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([metric, figure]) => ({ key: `${keyOf(result)}\n${metric}`, result, metric, ...figure })));
}

const keyOf = (result) => `${result.suite}\n${result.dataset}\n${result.split || ""}`;

// Two versions' results side by side: {key, result, metric, ours, theirs}, where either has them on the same data.
export function besides(ours, theirs) {
  const rows = new Map(resultsOf(ours).map((row) => [row.key, { key: row.key, result: row.result, metric: row.metric, ours: row, theirs: null }]));
  for (const row of resultsOf(theirs)) {
    const known = rows.get(row.key);
    if (known) known.theirs = row;
    else rows.set(row.key, { key: row.key, result: row.result, metric: row.metric, ours: null, theirs: row });
  }
  return [...rows.values()];
}

// A card's metadata (between lines of three dashes at its beginning) and its text, without marks for programs.
export function cardParts(text) {
  const found = /^---\n([\s\S]*?)\n---\n([\s\S]*)$/.exec(text);
  return { metadata: found ? found[1] : "", text: (found ? found[2] : text).replace(/<!--[\s\S]*?-->/g, "") };
}

// The data that a version was trained on, as a name and the address of its page.
export function dataOf(text) {
  const found = /^([A-Za-z0-9][A-Za-z0-9._-]*)@(.+)$/.exec(text);
  return found ? { text: `${found[1]}@${found[2].replace(/^sha256:(.{8}).*$/, "$1…")}`, href: `${url(`/datasets/${encodeURIComponent(found[1])}`, { version: found[2].replace(/^sha256:/, "") })}` } : { text, href: null };
}

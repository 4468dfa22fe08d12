// Models in words and addresses: stages, verdicts, figures with their intervals, spans in which a version was champion. Pure.
import { number, span } from "./format.js";
import { url } from "./api.js";
import { SERIES } from "./states.js";

export const DEFAULT_PROJECT = "default";
export const STAGES = { champion: "--s-running", staging: "--s-waiting", archived: "--s-closed" };
export const VERDICTS = { better: "--s-running", "not worse": "--s-done", worse: "--s-failed", "too few samples": "--s-doubt" };

// Verdicts on a field of live predictions, and how a live figure stands to the offline one: in words, with a colour beside.
export const DRIFT = { DRIFTED: ["drifted", "--s-failed"], MISSING: ["missing", "--s-review"], TOO_FEW: ["too few values", "--s-doubt"], STABLE: ["stable", "--s-running"] };
export const AGAINST_OFFLINE = {
  "as offline": "--s-done", "better than offline": "--s-running", "worse than offline": "--s-failed", "too few labels": "--s-doubt", "no offline figure": "--s-unknown",
};

export const verdictOf = (verdict) => DRIFT[verdict] || [verdict ? String(verdict).toLowerCase() : "not in this window", "--s-unknown"];

// The colour of a version wherever time is drawn.
export const colourOf = (version) => SERIES[(version - 1) % SERIES.length];

// Colours of versions that are drawn beside each other: each its own where the first one has not taken it.
export function coloursOf(versions) {
  const found = new Map();
  for (const version of versions) {
    const taken = new Set(found.values());
    const wanted = colourOf(version);
    found.set(version, taken.has(wanted) ? SERIES.find((token) => !taken.has(token)) || wanted : wanted);
  }
  return found;
}

// Verdicts of windows, the oldest first, as a sentence.
export function verdictsInWords(verdicts) {
  const counts = Object.keys(DRIFT).map((one) => [verdictOf(one)[0], verdicts.filter((verdict) => verdict === one).length]).filter(([, count]) => count);
  const absent = verdicts.filter((verdict) => !DRIFT[verdict]).length;
  return `Verdicts of ${number(verdicts.length)} ${verdicts.length === 1 ? "window" : "windows"}: ${[...counts, ...(absent ? [["without it", absent]] : [])].map(([word, count]) => `${word} ${number(count)}`).join(", ")}; the newest: ${verdictOf(verdicts[verdicts.length - 1])[0]}`;
}

// An age in days, as people say it.
export const daysOf = (days) => (days === null || days === undefined ? "not known" : days < 1 ? span(days * 86400).replace(/ 0 (s|min)$/, "") : `${number(Math.floor(days))} d`);

// Live figures of one metric by version as curves over the ends of their windows, each with its offline figure. Pure.
export function liveCurves(rows) {
  const ends_ms = [...new Set(rows.flatMap((row) => row.series.ends_ms))].sort((a, b) => a - b);
  const colours = coloursOf(rows.map((row) => row.version));
  const placed = (row, name) => {
    const values = new Map(row.series.ends_ms.map((at_ms, i) => [at_ms, row.series[name][i]]));
    return ends_ms.map((at_ms) => values.get(at_ms) ?? null);
  };
  const series = rows.flatMap((row) => {
    const one = { label: `version ${row.version}`, token: colours.get(row.version), mean: placed(row, "live"), least: placed(row, "low"), greatest: placed(row, "high") };
    return row.offline === null ? [one] : [one, { label: `version ${row.version} offline`, token: one.token, dash: true, mean: ends_ms.map(() => row.offline) }];
  });
  return { x: ends_ms.map((at_ms) => at_ms / 1000), series };
}

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

// A text that may name data by its hash, of which the first characters are enough.
export const shortData = (text) => text.replace(/(@sha256:[0-9a-f]{8})[0-9a-f]{56}/g, "$1…");

// The data that a version was trained on, as a name and the address of its page.
export function dataOf(text) {
  const found = /^([A-Za-z0-9][A-Za-z0-9._-]*)@(.+)$/.exec(text);
  return found ? { text: `${found[1]}@${found[2].replace(/^sha256:(.{8}).*$/, "$1…")}`, href: `${url(`/datasets/${encodeURIComponent(found[1])}`, { version: found[2].replace(/^sha256:/, "") })}` } : { text, href: null };
}

// Studies and trials in words, colours and addresses; lanes of trials over time. Pure.
import { hours, number, span } from "./format.js";
import { url } from "./api.js";

export const DEFAULT_PROJECT = "default";
export const STUDY_STATES = { RUNNING: ["running", "--s-running"], PAUSED: ["paused", "--s-waiting"], DRAINING: ["its last trials run", "--s-doubt"], ENDED: ["ended", "--s-done"] };
export const TRIAL_STATES = {
  WAITING: ["waiting", "--s-waiting"], RUNNING: ["running", "--s-running"], COMPLETE: ["complete", "--c1"], STOPPED: ["stopped early", "--s-closed"],
  FAILED: ["failed", "--s-failed"], CANCELLED: ["cancelled", "--c5"],
};
const other = (state) => [String(state || "unknown").toLowerCase(), "--s-unknown"];
export const studyState = (state) => STUDY_STATES[state] || other(state);
export const trialState = (state) => TRIAL_STATES[state] || other(state);

export const addressOf = (study) => url(`/studies/${encodeURIComponent(study.study)}`, { project: study.project === DEFAULT_PROJECT ? null : study.project });
export const pathOf = (project, name, part = "", params = {}) => url(`/v1/hpo/studies/${encodeURIComponent(name)}${part}`, { project, ...params });

// What a study may take, of what it took: "12 of 80".
export const trialsOf = (study) => Object.values(study.trials).reduce((sum, count) => sum + count, 0);
export const of = (part, whole) => (whole === null || whole === undefined ? part : `${part} of ${whole}`);
// Device time: small amounts in minutes.
export const deviceTime = (seconds) => (Number(seconds) < 3600 ? span(seconds) : hours(seconds));
export const money = (amount, currency) => (amount === null || amount === undefined ? "–" : `${number(amount, 5)} ${currency}`);
// What its ended trials cost, of its budget: nothing where devices have no price.
export const costOf = (study) => (study.currency ? of(money(study.spent_cost || 0, study.currency), study.budget_cost === null || study.budget_cost === undefined ? null : money(study.budget_cost, study.currency)) : null);
export const spentOf = (study) => of(deviceTime(study.device_s), study.budget_device_s === null || study.budget_device_s === undefined ? null : deviceTime(study.budget_device_s));

// The metric of a study that the address names, else its first one.
export const metricOf = (study, query) => (study.metrics.includes(query.get("metric")) ? query.get("metric") : study.metrics[0]);

export const valueWord = (value) => (typeof value === "number" ? number(value) : typeof value === "string" ? value : JSON.stringify(value));
export const valuesOf = (trial) => Object.entries(trial.parameters).map(([name, value]) => `${name} ${valueWord(value)}`).join(" · ");

// The best value of a study's first metric in words; with several metrics how many trials are on the front.
export function bestOf(study) {
  if (!study.best.length) return "–";
  if (study.metrics.length > 1) return `${number(study.best.length)} on the front`;
  return number(study.best[0].values[study.metrics[0]]);
}

// Trials [{began_at_ms, ended_at_ms}] as bars {trial, lane, from_ms, to_ms}: each in the first lane that is free by then; trials without devices have none.
export function lanesOf(trials, now_ms) {
  const ends = [];
  return trials.filter((one) => one.began_at_ms).sort((a, b) => a.began_at_ms - b.began_at_ms || a.trial - b.trial).map((trial) => {
    const to_ms = Math.max(trial.began_at_ms, trial.ended_at_ms || now_ms);
    let lane = ends.findIndex((end_ms) => end_ms <= trial.began_at_ms);
    if (lane < 0) lane = ends.length;
    ends[lane] = to_ms;
    return { trial, lane, from_ms: trial.began_at_ms, to_ms };
  });
}

// Device time by what became of trials, and what early stopping saved.
import { html } from "../../kit.js";
import { Card, Pill } from "../../parts/bits.js";
import { Empty } from "../../parts/notice.js";
import { Table } from "../../parts/table.js";
import { number, share, span } from "../../format.js";
import { deviceTime, money, TRIAL_STATES, trialState } from "../../study_words.js";

export function Cost({ study }) {
  const order = Object.keys(TRIAL_STATES);
  const parts = [...study.cost].sort((a, b) => order.indexOf(a.state) - order.indexOf(b.state));
  const whole = parts.reduce((sum, one) => sum + one.device_s, 0);
  const spent = parts.filter((one) => one.device_s > 0);
  const saved = parts.find((one) => one.saved_device_s !== null)?.saved_device_s;
  const saved_cost = parts.find((one) => one.saved_cost !== null)?.saved_cost;
  const runs = parts.some((one) => one.state === "RUNNING");
  const priced = study.currency ? [["Cost", (one) => money(one.cost, study.currency), "num"]] : [];
  return html`<${Card} title="Cost" width="w6">${parts.length === 0 ? html`<${Empty}>No trial has begun yet.<//>` : html`
    ${whole > 0 && html`<div class="stack" role="img" aria-label=${`Device time by state of trials: ${spent.map((one) => `${trialState(one.state)[0]} ${share(one.device_s, whole)}`).join(", ")}`}>${spent.map((one) => html`
      <span style=${{ width: `${100 * one.device_s / whole}%`, background: `var(${trialState(one.state)[1]})` }} title=${`${trialState(one.state)[0]} ${span(one.device_s)}`}></span>`)}</div>`}
    <${Table} caption="Device time by state of trials" rows=${parts} keyOf=${(one) => one.state} columns=${[
      ["State", (one) => html`<${Pill} square word=${trialState(one.state)[0]} token=${trialState(one.state)[1]} />`, "short"], ["Trials", (one) => number(one.trials), "num"],
      ["Device time", (one) => (one.device_s ? deviceTime(one.device_s) : "–"), "num"], ["Share", (one) => (one.device_s ? share(one.device_s, whole) : "–"), "num"], ...priced]} />
    ${runs && html`<p class="sub">Device time of trials that run is as it was observed last.</p>`}
    ${saved !== undefined && html`<p class="sub">Early stopping saved about ${deviceTime(saved)}${saved_cost !== undefined ? `, ${money(saved_cost, study.currency)}` : ""}: what the mean complete trial took beyond those that it ended.</p>`}`}<//>`;
}

// Open alerts by cause: a row for a node, a job or a rule, and the rules that fired for it below. The gateway groups them, as the command line does.
import { html } from "../../kit.js";
import { ago, number, plural } from "../../format.js";
import { addressOf } from "../../model_words.js";

const LOOK = { CRITICAL: "bad", WARNING: "warn" };
// So many alerts of one cause are listed; the list of a rule that fired for hundreds of jobs is for SQL.
const MOST_BELOW = 50;

const Severity = ({ severity }) => html`<span class=${`severity ${LOOK[severity] || ""}`}>${String(severity).toLowerCase()}</span>`;

// Where a cause is looked at: a node's or a job's page.
function hrefOf(cause) {
  const [kind, name] = [cause.slice(0, cause.indexOf(":")), cause.slice(cause.indexOf(":") + 1)];
  return kind === "node" ? `/nodes/${encodeURIComponent(name)}` : kind === "job" ? `/jobs/${encodeURIComponent(name)}` : null;
}

// An alert about a version of a model leads to the page on which it is reviewed.
function Words({ alert }) {
  const { project, model, version } = alert.labels || {};
  const text = alert.summary || alert.rule;
  return model && project ? html`<a class="inline" href=${addressOf(project, model, version)}>${text}</a>` : text;
}

export const Alert = ({ alert, now_ms }) => html`<strong class="wrap"><${Words} alert=${alert} /></strong><br /><span class="sub"><${Severity} severity=${alert.severity} /> · ${alert.rule} · since ${ago(alert.since, now_ms)}
  ${alert.owner && ` · ${alert.owner}`}</span>`;

function Cause({ group, now_ms }) {
  const { alerts } = group;
  if (alerts.length === 1) return html`<${Alert} alert=${alerts[0]} now_ms=${now_ms} />`;
  const href = hrefOf(group.cause);
  return html`<strong class="wrap">${href ? html`<a class="inline" href=${href}>${group.title}</a>` : group.title}</strong><br />
    <span class="sub"><${Severity} severity=${group.severity} /> · ${plural(alerts.length, "alert")} since ${ago(group.since, now_ms)}: ${group.rules.slice(0, 6).join(", ")}${group.rules.length > 6 && " …"}</span>
    <details><summary>Each of them</summary><ul class="list below">${alerts.slice(0, MOST_BELOW).map((alert) => html`
      <li key=${`${alert.rule}/${alert.key}/${alert.since}`}><${Alert} alert=${alert} now_ms=${now_ms} /></li>`)}</ul>
      ${alerts.length > MOST_BELOW && html`<p class="sub">The first ${number(MOST_BELOW)} of ${number(alerts.length)}: <code>trainhouse alerts --json</code> has all.</p>`}</details>`;
}

export const Causes = ({ groups, now_ms }) => html`<ul class="list" aria-label="Open alerts by cause">${groups.map((group) => html`<li key=${group.cause}><${Cause} group=${group} now_ms=${now_ms} /></li>`)}</ul>`;

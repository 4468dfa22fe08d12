// What may be asked for about a job beside ending it: the same again, from its start or its newest checkpoint, and another priority.
import { html, useState } from "../../kit.js";
import { call, url } from "../../api.js";
import { Menu } from "../../parts/menu.js";
import { number } from "../../format.js";
import { mayWrite } from "../../roles.js";
import { ENDED } from "../../states.js";

const ASKS = 40;
const PAUSE_MS = 500;

export function Actions({ job, path, who }) {
  const [word, setWord] = useState(null);
  if (!mayWrite(who) || job.source === "tracked") return null;
  return html`${job.state !== "REJECTED" && html`<${Resubmit} job=${job} path=${path} setWord=${setWord} />`}
    ${!ENDED.has(job.state) && html`<${Priority} job=${job} path=${path} setWord=${setWord} />`}
    ${word && html`<span class=${word.bad ? "notice bad" : "sub"} role=${word.bad ? "alert" : "status"}>${word.text}</span>`}`;
}

function Resubmit({ job, path, setWord }) {
  const [busy, setBusy] = useState(false);
  const step = job.last_checkpoint_step;
  const submit = async (part, how) => {
    setBusy(true);
    try {
      const made = await call(`${path}/${part}`, { method: "POST", body: {} });
      setWord({ text: html`Submitted as <a href=${`/jobs/${encodeURIComponent(made.job_id)}`}>${made.job_id}</a>${how}.` });
    } catch (error) { setWord({ bad: true, text: error.message }); }
    setBusy(false);
  };
  return html`<${Menu} title="Resubmit" label="Submit the job again">
    <p class="sub">A new job with the same code, environment, data, seed and gang.</p>
    <div class="row"><button disabled=${busy} onClick=${() => submit("rerun", "")}>From the start</button>
      ${step !== null && step !== undefined ? html`<button disabled=${busy} onClick=${() => submit(`checkpoints/${step}/restore`, `: it resumes from step ${number(step)}`)}>Resume from step ${number(step)}</button>`
        : html`<span class="sub">It has no checkpoint to resume from.</span>`}</div>
    ${step !== null && step !== undefined && html`<p class="sub">Older checkpoints are under <b>Checkpoints</b>.</p>`}<//>`;
}

function Priority({ job, path, setWord }) {
  const [busy, setBusy] = useState(false);
  const change = async (event) => {
    event.preventDefault();
    const priority = Number(event.target.elements.priority.value);
    setBusy(true);
    setWord({ text: "Asked for; the scheduler has not answered yet." });
    try { setWord({ text: await changed(path, priority) }); } catch (error) { setWord({ bad: true, text: error.message }); }
    setBusy(false);
  };
  return html`<${Menu} title="Priority" label="Change the priority"><form class="row" onSubmit=${change}>
    <label class="inline">Priority<input key=${job.priority} name="priority" type="number" min="0" max="100" step="1" required defaultValue=${job.priority} style="width:6rem" /></label><button disabled=${busy}>Change</button></form>
    <p class="sub">0 is the highest, 100 the lowest. It is ${job.priority} now.</p><//>`;
}

// Asks for a priority and waits for the scheduler's answer, in words; throws what refuses it.
export async function changed(path, priority) {
  const sent = await call(`${path}/change`, { method: "POST", body: { priority } });
  for (let i = 0; i < ASKS; i += 1) {
    const terms = await call(url(`${path}/terms`, { event_id: sent.event_id, after: sent.after }));
    if (terms.refused) throw new Error(`Not changed: ${terms.refused}`);
    if (terms.changed || terms.answered) return `Its priority is ${(terms.changed || terms).priority}.`;
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
  return "Asked for; the scheduler has not answered yet. It counts as soon as the scheduler gets to it.";
}

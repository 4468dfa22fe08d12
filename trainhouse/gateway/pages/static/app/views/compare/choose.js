// A field that finds jobs by name or id among the newest, and adds one.
import { html, useMemo, useState } from "../../kit.js";
import { ask } from "../../router.js";
import { keep } from "../../filter.js";
import { titleOf } from "../../format.js";
import { useData } from "../../use.js";

export const MOST = 100;
const MOST_OFFERED = 12;

export function Choose({ chosen }) {
  const [word, setWord] = useState("");
  const known = useData("/v1/training-jobs?limit=1000");
  const add = (ids) => { ask({ job: [...chosen, ...ids].slice(0, MOST) }); setWord(""); };
  const all = useMemo(() => (word.trim() ? keep(known.data?.items || [], word).filter((job) => !chosen.includes(job.job_id)) : []), [known.data, word, chosen]);
  const offered = all.slice(0, MOST_OFFERED);
  return html`<div class="card" style="margin-bottom:16px"><div class="row end">
      <label class="field grow">Add runs<input data-search type="search" value=${word} placeholder="Name, id, team:vision, state:succeeded ( / )" disabled=${chosen.length >= MOST}
        onInput=${(event) => setWord(event.target.value)} onKeyDown=${(event) => { if (event.key === "Enter" && offered[0]) add([offered[0].job_id]); }} /></label>
      ${all.length > 1 && html`<button onClick=${() => add(all.map((job) => job.job_id))}>Add ${Math.min(all.length, MOST - chosen.length)} that fit</button>`}
      ${chosen.length > 0 && html`<button onClick=${() => ask({ job: null })}>Remove all</button>`}</div>
    ${chosen.length >= MOST && html`<p class="sub">A hundred are the most.</p>`}
    ${word.trim() && !offered.length && known.data && html`<p class="sub" role="status">None of the newest ${known.data.items.length} jobs fits “${word}”.</p>`}
    ${offered.length > 0 && html`<div class="row" style="margin-top:8px" role="group" aria-label="Runs that fit">${offered.map((job) => html`
      <button key=${job.job_id} onClick=${() => add([job.job_id])}>${titleOf(job)} <span class="sub">${job.job_id}</span></button>`)}</div>`}</div>`;
}

// Columns of the list of jobs that people add: parameters, last and best values of metrics, tags and the note.
import { html, useMemo, useState } from "../../kit.js";
import { url } from "../../api.js";
import { number } from "../../format.js";
import { byJob, NOTE, wordsOf } from "../../tags.js";
import { useData } from "../../use.js";
import { shown } from "../job/config.js";

const EVERY_MS = 15000;
const MOST_OFFERED = 25;
const MOST_COLUMNS = 12;
const BEST = [["last", "last", 0], ["least", "lowest", 1], ["greatest", "highest", 2]];
const PARAMETER = "param:";

// A column's key in the address: `param:lr`, `last:loss`, `least:loss`, `greatest:loss`.
const partsOf = (key) => {
  if (key.startsWith(PARAMETER)) return { parameter: key.slice(PARAMETER.length) };
  const best = BEST.find(([kind]) => key.startsWith(`${kind}:`));
  return best ? { metric: key.slice(best[0].length + 1), word: best[1], at: best[2] } : null;
};
export const isMore = (key) => partsOf(key) !== null;

const cellOf = (value) => (value === undefined || value === null ? "–" : typeof value === "number" ? number(value) : html`<span title=${shown(value)}>${shown(value)}</span>`);

// {columns, values}: the asked columns as the list draws them [key, title, width, cell, is a number], and their values for an order, by key.
export function useMoreColumns(keys) {
  const asked = keys.filter(isMore).slice(0, MOST_COLUMNS);
  const parts = asked.map(partsOf);
  const unique = (name) => [...new Set(parts.map((part) => part[name]).filter((value) => value !== undefined && value !== ""))];
  const [parameter, metric] = [unique("parameter"), unique("metric")];
  const path = parameter.length || metric.length ? url("/v1/runs/values", { parameter, metric }) : null;
  const found = useData(path, { every_ms: metric.length ? EVERY_MS : 0 });
  return useMemo(() => {
    const columns = [];
    const values = {};
    asked.forEach((key, i) => {
      const { parameter: name, metric: of, word, at } = parts[i];
      const own = (name === undefined ? found.data?.metrics[of] : found.data?.parameters[name]) || {};
      const value = (job) => (name === undefined ? own[job.job_id]?.[at] : own[job.job_id]);
      values[key] = value;
      columns.push([key, name === undefined ? `${of}, ${word}` : name, "7rem", (job) => cellOf(value(job)), name === undefined || Object.values(own).every((one) => typeof one === "number")]);
    });
    return { columns, values, error: found.error };
  }, [asked.join("\n"), found.data, found.error]);
}

const NONE = new Map();

// Tags and notes of all jobs: a map from a job's id to its tags.
export function useTags() {
  const found = useData("/v1/runs/tags", { every_ms: EVERY_MS });
  return { tags: useMemo(() => (found.data ? byJob(found.data.items) : NONE), [found.data]), reload: found.reload };
}

export const tagColumns = (tags) => [
  ["tags", "Tags", "minmax(0, 1.4fr)", (job) => {
    const words = wordsOf(tags.get(job.job_id));
    return words.length ? html`<span title=${words.join("\n")}>${words.map((word) => html`<span class="tag" key=${word}>${word}</span> `)}</span>` : "–";
  }],
  ["note", "Note", "minmax(0, 1.6fr)", (job) => {
    const note = tags.get(job.job_id)?.[NOTE] || "";
    return html`<span title=${note}>${note.split("\n")[0] || "–"}</span>`;
  }],
];

// Names are asked for when somebody looks for one.
export function MoreColumns({ shown: keys, set }) {
  const [asked, setAsked] = useState(false);
  const [word, setWord] = useState("");
  const found = useData(asked ? "/v1/runs/columns" : null);
  const own = keys.filter(isMore);
  const titles = (key) => { const part = partsOf(key); return part.parameter === undefined ? `${part.metric}, ${part.word}` : part.parameter; };
  const offered = useMemo(() => {
    const all = [...(found.data?.parameters || []).map((one) => `${PARAMETER}${one.name}`), ...(found.data?.metrics || []).flatMap((one) => BEST.map(([kind]) => `${kind}:${one.name}`))];
    return all.filter((key) => titles(key).toLowerCase().includes(word.toLowerCase().trim()) && !own.includes(key));
  }, [found.data, word, own.join("\n")]);
  const box = (key) => html`<div key=${key}><label class="inline"><input type="checkbox" checked=${own.includes(key)} disabled=${own.length >= MOST_COLUMNS && !own.includes(key)} onChange=${() => set(key)} />
    <span style="overflow-wrap:anywhere">${titles(key)}</span></label></div>`;
  return html`<h3 style="margin-top:8px">Parameters and metrics</h3>${own.map(box)}
    <label class="field">Search<input type="search" value=${word} placeholder="lr, loss …" onFocus=${() => setAsked(true)} onInput=${(event) => { setAsked(true); setWord(event.target.value); }} /></label>
    <div role="group" aria-label="Parameters and metrics that fit">${offered.slice(0, MOST_OFFERED).map(box)}</div>
    ${own.length >= MOST_COLUMNS ? html`<p class="sub" role="status">${MOST_COLUMNS} are the most.</p>`
      : asked && html`<p class="sub" role="status">${found.error ? found.error.message : !found.data ? "Loading …" : offered.length > MOST_OFFERED ? `The first ${MOST_OFFERED} of ${offered.length}; type more of a name.`
        : offered.length ? "" : word ? `None is called “${word}”.` : "No job has logged a parameter or a metric yet."}</p>`}`;
}

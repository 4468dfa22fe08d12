// The tables that can be asked, with their columns: a list to look things up in, and what the editor completes.
import { html, useMemo, useState } from "../../kit.js";
import { Failed, Loading } from "../../parts/notice.js";
import { number, plural } from "../../format.js";

export const SCHEMA_QUERY = `SELECT c.table AS table, groupArray((c.name, c.type)) AS columns
FROM (SELECT table, name, type, position FROM system.columns WHERE database = currentDatabase() ORDER BY table, position) AS c
GROUP BY table ORDER BY table`;
const MOST_SHOWN = 200;
// Rows, rollups and steps of views: they may change at any time, and what is for people is in the views over them.
const INTERNAL = /(_rows|_facts|_of_[a-z]+|_to_[a-z0-9]+)$|^(schema_migrations|catch_ups|attempt_(cuts|holds|losses|steps))/;

export const isInternal = (table) => INTERNAL.test(table);

// {table: [column, …]} for the editor: what a query should name.
export const completions = (tables) => Object.fromEntries(tables.filter(({ table }) => !isInternal(table)).map(({ table, columns }) => [table, columns.map(([name]) => name)]));

export const fitting = (tables, word) => {
  const text = word.trim().toLowerCase();
  return tables.filter(({ table, columns }) => !text || table.includes(text) || columns.some(([name]) => name.toLowerCase().includes(text)));
};

export function Schema({ found, insert }) {
  const [word, setWord] = useState("");
  const [all, setAll] = useState(false);
  const shown = useMemo(() => fitting(found.data || [], word).filter(({ table }) => all || !isInternal(table)), [found.data, word, all]);
  if (!found.data) return found.error ? html`<${Failed} error=${found.error} again=${found.reload} />` : html`<${Loading} what="the tables" />`;
  return html`<div class="row"><label class="grow"><span class="hidden">Search tables and columns</span><input type="search" style="width:100%" value=${word}
      placeholder="Search tables and columns" onInput=${(event) => setWord(event.target.value)} /></label></div>
    <p class="sub" role="status" style="margin:6px 0">${plural(shown.length, "table")}
      <label class="inline" style="margin-left:10px"><input type="checkbox" checked=${all} onChange=${() => setAll(!all)} />internal tables too</label></p>
    <div class="sql-schema" tabindex="0" role="region" aria-label="Tables and columns">${shown.slice(0, MOST_SHOWN).map(({ table, columns }) => html`
      <details key=${table}><summary><code>${table}</code> <span class="sub">${number(columns.length)}</span></summary>
        <ul class="list">${columns.map(([name, type]) => html`<li key=${name}><button class="plain" onClick=${() => insert(name)} title="Put it into the query"><code>${name}</code></button>
          <span class="sub">${type}</span></li>`)}</ul>
        <button class="plain" onClick=${() => insert(`SELECT * FROM ${table} LIMIT 100`, true)}>Look at 100 rows</button></details>`)}</div>
    ${!shown.length && html`<p class="sub">No table or column has “${word}” in its name.</p>`}`;
}

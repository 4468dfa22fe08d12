// What a job was submitted with: the spec, line by line, with a filter; and what the run told of itself.
import { html, useMemo, useState } from "../../kit.js";
import { Card } from "../../parts/bits.js";
import { Shown } from "../../parts/notice.js";
import { Table } from "../../parts/table.js";
import { useData } from "../../use.js";

export const shown = (value) => (value === null || value === undefined ? "–" : typeof value === "object" ? JSON.stringify(value) : String(value));

export function Config({ path }) {
  const found = useData(`${path}/config`);
  return html`<${Card} title="Config"><${Shown} of=${found} what="the config" empty=${(d) => !d.items.length}
    nothing="The projections hold no spec of this job.">${(d) => html`<${Lines} items=${d.items} />`}<//><//>`;
}

function Lines({ items }) {
  const [word, setWord] = useState("");
  const rows = useMemo(() => items.filter((one) => `${one.path} ${shown(one.value)}`.toLowerCase().includes(word.toLowerCase())), [items, word]);
  return html`<label class="field" style="max-width:24rem;margin-bottom:10px">Filter<input data-search type="search" value=${word} onInput=${(e) => setWord(e.target.value)} /></label>
    <${Table} caption="Config" rows=${rows} keyOf=${(one) => one.path}
      columns=${[["Field", (one) => html`<code>${one.path}</code>`], ["Value", (one) => html`<code>${shown(one.value)}</code>`, "wide"]]} />`;
}

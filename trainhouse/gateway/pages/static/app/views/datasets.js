// All datasets: the newest version of each, how many there are, how large it is, whether something is wrong with one.
import { html, useMemo, useState } from "../kit.js";
import { Card, useTitle } from "../parts/bits.js";
import { Shown } from "../parts/notice.js";
import { Table } from "../parts/table.js";
import { ago, bytes, number, plural } from "../format.js";
import { useClock } from "../use.js";
import { useAll } from "../all.js";

const EVERY_MS = 15000;

export default function Datasets() {
  useTitle("Datasets");
  const versions = useAll("/v1/datasets", EVERY_MS);
  const [word, setWord] = useState("");
  const now_ms = useClock(10000);
  const all = useMemo(() => byName(versions.data || []), [versions.data]);
  const rows = useMemo(() => all.filter((d) => textOf(d).includes(word.toLowerCase().trim())), [all, word]);
  return html`
    <div class="title"><h1>Datasets</h1><span class="sub" role="status">${versions.data ? `${number(rows.length)} of ${plural(all.length, "dataset")}` : ""}</span></div>
    <${Card} title="Newest versions" push=${html`<label><span class="hidden">Filter datasets</span><input data-search type="search" value=${word} placeholder="Filter ( / )"
        onInput=${(event) => setWord(event.target.value)} /></label>`}>
      <${Shown} of=${versions} what="datasets" empty=${(d) => !d.length}
        nothing=${html`No dataset was published yet. Publish a folder of files: <code>trainhouse data publish NAME PATH</code>`}>${() => (rows.length ? html`
        <${Table} caption="Datasets, the newest version of each" rows=${rows} keyOf=${(d) => d.newest.dataset} columns=${columns(now_ms)} />`
        : html`<p class="notice">No dataset fits “${word}”.</p>`)}<//><//>`;
}

// Versions come the newest first, so the first of a name is its newest.
function byName(versions) {
  const found = new Map();
  for (const version of versions) {
    const known = found.get(version.dataset);
    if (known) { known.count += 1; known.deprecated += version.deprecated; } else found.set(version.dataset, { newest: version, count: 1, deprecated: version.deprecated });
  }
  return [...found.values()];
}

const textOf = ({ newest: v }) => `${v.dataset} ${v.tags.join(" ")} ${v.project} ${v.created_by} ${v.licence} ${v.splits.join(" ")}`.toLowerCase();

const columns = (now_ms) => [
  ["Dataset", (d) => html`<a href=${`/datasets/${encodeURIComponent(d.newest.dataset)}`}><b>${d.newest.dataset}</b></a>`],
  ["Newest", (d) => html`${d.newest.tags.length ? d.newest.tags.join(", ") : html`<code>${d.newest.sha256.slice(0, 12)}</code>`}${d.newest.deprecated ? html` <span class="tag">deprecated</span>` : ""}`],
  ["Published", (d) => ago(d.newest.published_at, now_ms), "short"], ["By", (d) => d.newest.created_by],
  ["Versions", (d) => (d.deprecated ? `${number(d.count)}, ${number(d.deprecated)} deprecated` : number(d.count)), "num"],
  ["Rows", (d) => number(d.newest.row_count), "num"], ["Size", (d) => bytes(d.newest.bytes), "num"],
  ["Splits", (d) => d.newest.splits.join(", ")], ["Project", (d) => d.newest.project], ["Licence", (d) => d.newest.licence || "–"],
];

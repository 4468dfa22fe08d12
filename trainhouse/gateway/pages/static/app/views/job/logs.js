// The output of the ranks: the newest lines, a search over all of them by the server, by rank, attempt and level; follows while the job runs.
import { html, useEffect, useMemo, useRef, useState } from "../../kit.js";
import { call, url } from "../../api.js";
import { Card } from "../../parts/bits.js";
import { Failed, Loading } from "../../parts/notice.js";
import { Rows } from "../../parts/rows.js";
import { ask } from "../../router.js";
import { clock, number, plural } from "../../format.js";

const PAGE_LINES = 1000;
const SEARCH_MS = 350;
const FRESH_MS = 1000;
const LINE_PX = 19;
const MOST_WRAPPED = 500;

export function Logs({ job, path, pulse, query }) {
  const [rank, level] = [query.get("rank") || "", ["error", "warning"].includes(query.get("level")) ? query.get("level") : ""];
  const attempt = /^\d+$/.test(query.get("attempt") || "") ? query.get("attempt") : "";
  const wrap = query.get("wrap") === "1";
  const [search, setSearch] = useState("");
  const [word, setWord] = useState("");
  useEffect(() => {
    const timer = setTimeout(() => setWord(search.trim()), SEARCH_MS);
    return () => clearTimeout(timer);
  }, [search]);
  const { lines, older, error, more, reload } = useLines(path, { rank, attempt, level, search: word }, pulse.log);
  return html`<${Card} title="Logs" push=${lines && html`<span class="sub" role="status">${plural(lines.length, "line")}${older ? ", more before" : ""}</span>`}>
    <div class="row" style="margin-bottom:10px">
      <label class="grow"><span class="hidden">Search the logs</span><input data-search type="search" style="width:100%" value=${search}
        placeholder="Search all lines ( / )" onInput=${(event) => setSearch(event.target.value)} /></label>
      <label class="inline">Rank<select value=${rank} onChange=${(event) => ask({ rank: event.target.value })}><option value="">all</option>
        ${[...Array(Math.min(job.world_size, 4096)).keys()].map((n) => html`<option value=${n}>${n}</option>`)}</select></label>
      <label class="inline">Attempt<select value=${attempt} onChange=${(event) => ask({ attempt: event.target.value })}><option value="">all</option>
        ${[...Array(Math.min((job.attempt || 0) + 1, 1000)).keys()].reverse().map((n) => html`<option value=${n}>${n}</option>`)}</select></label>
      <label class="inline">Level<select value=${level} onChange=${(event) => ask({ level: event.target.value })}><option value="">all</option>
        <option value="warning">warnings and errors</option><option value="error">errors</option></select></label>
      <label class="inline"><input type="checkbox" checked=${wrap} onChange=${() => ask({ wrap: wrap ? null : 1 })} />wrap</label>
      ${lines?.length > 0 && html`<button onClick=${() => download(lines, job.job_id)}>Download</button>`}
      ${older && html`<button onClick=${more}>Show older lines</button>`}
    </div>
    ${error ? html`<${Failed} error=${error} again=${reload} />` : lines === null ? html`<${Loading} what="logs" />`
      : !lines.length ? html`<p class="notice">${word ? `No line contains “${word}”.` : level || attempt || rank ? "No line fits these filters." : "No line was written yet."}</p>`
      : wrap ? html`<${Wrapped} lines=${lines} word=${word} />`
      : html`<${Rows} rows=${lines} height_px=${LINE_PX} look="logs" rowLook="line" label="Lines of the logs" inner end=${!word} draw=${(line) => html`<${Line} line=${line} word=${word} />`} />`}<//>`;
}

// Lines of any height: the newest of those that are loaded.
function Wrapped({ lines, word }) {
  return html`${lines.length > MOST_WRAPPED && html`<p class="sub">The newest ${number(MOST_WRAPPED)} of these lines are wrapped; the download has all.</p>`}
    <div class="logs wrapped" tabindex="0" role="list" aria-label="Lines of the logs">${lines.slice(-MOST_WRAPPED).map((line) => html`
      <div class="line" role="listitem" key=${keyOf(line)}><${Line} line=${line} word=${word} /></div>`)}</div>`;
}

// What is loaded, as text: time, rank, stream, line.
function download(lines, name) {
  const text = lines.map((line) => `${line.time} attempt=${line.attempt} rank=${line.rank} ${line.stream} ${line.line}`).join("\n");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([`${text}\n`], { type: "text/plain" }));
  link.download = `${name}.log`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// The newest page, older ones on demand, and what came since: asked again when the stream says that there is more.
function useLines(path, params, pulse) {
  const [state, setState] = useState({ lines: null, older: null, error: null });
  const [round, setRound] = useState(0);
  const last_ms = useRef(0);
  const address = url(`${path}/logs`, { ...params, limit: PAGE_LINES });
  const ask = async (signal) => {
    try {
      const page = await call(address, { signal });
      setState((before) => {
        // A page of new lines alone does not reach what is shown: between them there may be more, and nobody must take them for neighbours.
        const kept = before.address === address && before.lines && (page.next_cursor === null || meet(before.lines, page.items));
        return { lines: joined(kept ? before.lines : null, page.items), address, error: null, older: kept ? before.older : page.next_cursor };
      });
    } catch (error) { if (error.name !== "AbortError") setState((before) => ({ ...before, error })); }
  };
  useEffect(() => {
    const ending = new AbortController();
    ask(ending.signal);
    return () => ending.abort();
  }, [address, round]);
  useEffect(() => {
    if (!pulse) return undefined;
    const timer = setTimeout(() => { last_ms.current = Date.now(); ask(); }, Math.max(0, FRESH_MS - (Date.now() - last_ms.current)));
    return () => clearTimeout(timer);
  }, [pulse, address]);
  const more = async () => {
    try {
      const page = await call(url(`${path}/logs`, { ...params, limit: PAGE_LINES, cursor: state.older }));
      setState((before) => ({ ...before, lines: joined(page.items, before.lines), older: page.next_cursor }));
    } catch (error) { setState((before) => ({ ...before, error })); }
  };
  return { ...state, lines: state.address === address ? state.lines : null, more, reload: () => setRound((n) => n + 1) };
}

const keyOf = (line) => `${line.epoch}/${line.rank}/${line.stream}/${line.offset}`;

const meet = (before, next) => before.length > 0 && next.length > 0 && next.some((line) => keyOf(line) === keyOf(before[before.length - 1]));

function joined(before, next) {
  if (!before?.length) return next;
  const known = new Set(before.map(keyOf));
  return [...before, ...next.filter((line) => !known.has(keyOf(line)))];
}

function Line({ line, word }) {
  const parts = useMemo(() => marked(line.line, word), [line.line, word]);
  return html`<span class=${line.stream === "stderr" ? "err" : ""}><span class="when">${clock(line.time)} ${number(line.rank)}</span>${parts}</span>`;
}

function marked(text, word) {
  if (!word) return text;
  const parts = [];
  const [low, wanted] = [text.toLowerCase(), word.toLowerCase()];
  let from = 0;
  for (let at = low.indexOf(wanted); at >= 0 && parts.length < 40; at = low.indexOf(wanted, from)) {
    parts.push(text.slice(from, at), html`<mark>${text.slice(at, at + wanted.length)}</mark>`);
    from = at + wanted.length;
  }
  parts.push(text.slice(from));
  return parts;
}

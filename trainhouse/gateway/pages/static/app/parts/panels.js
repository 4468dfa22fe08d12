// Curves of many metrics as people arrange them: grouped, folded, searched, pinned; one x, one range, one smoothing for all.
// Holds: all of it is in the address (x, smooth, log, from, to, m, pin, fold), so a link shows another reader the same.
import { html, useEffect, useState } from "../kit.js";
import { Card } from "./bits.js";
import { Empty } from "./notice.js";
import { number, plural } from "../format.js";
import { ask } from "../router.js";
import { Saved } from "./saved.js";
import { folded, grouped, isLoss } from "../series.js";
import { useNear } from "../use.js";

export const X_KINDS = [["step", "step"], ["relative", "relative time"], ["time", "time (UTC)"], ["samples", "samples"]];
const COUNTERS = ["samples", "samples_seen", "samples_total", "num_samples", "tokens", "tokens_seen", "tokens_total"];
const FIELDS = ["x", "smooth", "log", "from", "to", "m", "pin", "fold"];
const MOST_SMOOTH = 0.99;

// The metric that counts samples, for an x of samples.
export const counterOf = (names) => COUNTERS.find((name) => names.includes(name)) || null;

// What an address says of the panels. Pure.
export function viewOf(query, names) {
  const x = X_KINDS.some(([name]) => name === query.get("x")) ? query.get("x") : "step";
  const steps = ["from", "to"].map((name) => (/^\d+$/.test(query.get(name) || "") ? Number(query.get(name)) : null));
  return {
    x: x === "samples" && !counterOf(names) ? "step" : x, smooth: Math.min(MOST_SMOOTH, Math.max(0, Number(query.get("smooth")) || 0)),
    log: query.get("log") === "1", range: steps[0] === null || steps[1] === null ? [null, null] : steps, word: query.get("m") || "",
    pinned: query.getAll("pin").filter((name) => names.includes(name)), toggled: new Set(query.getAll("fold")),
  };
}

// names: of metrics; draw(name, view, {height, zoom}): the panel of one. place: which saved views are offered here.
// beside: fields of the address that a view has, too, of what stands beside the curves.
export function Panels({ names, query, draw, place, title = "Metrics", beside = [] }) {
  const view = viewOf(query, names);
  const shown = names.filter((name) => name.toLowerCase().includes(view.word.toLowerCase().trim()));
  const rest = shown.filter((name) => !view.pinned.includes(name));
  const groups = grouped(rest);
  const pins = view.pinned.filter((name) => shown.includes(name));
  const zoom = (from, to) => ask({ from, to });
  const fold = (group) => {
    const next = new Set(view.toggled);
    if (!next.delete(group)) next.add(group);
    ask({ fold: [...next] });
  };
  const panel = (name, large) => html`<${Panel} key=${name} name=${name} large=${large} pins=${view.pinned}>${draw(name, view, { height: large ? 340 : 240, zoom })}<//>`;
  return html`<${Card} title=${title} push=${html`<${Saved} place=${place} fields=${[...FIELDS, ...beside]} query=${query} />`}>
    <${Toolbar} view=${view} names=${names} />
    ${pins.length > 0 && html`<h3>Pinned</h3><div class="grid panels">${pins.map((name) => panel(name, pins.length === 1))}</div>`}
    ${!shown.length && html`<${Empty}>No metric fits “${view.word}”. <button onClick=${() => ask({ m: null })}>Show all</button><//>`}
    ${groups.map(({ group, names: own }) => {
      const open = view.word.trim() !== "" || folded(group) === view.toggled.has(group);
      const first = group === "" && !pins.length && (isLoss(own[0]) || own.length === 1);
      const inside = open && html`<div class="grid panels">${own.map((name, i) => panel(name, first && i === 0))}</div>`;
      if (group === "" && groups.length === 1) return inside;
      return html`<details class="metrics" key=${group} role="group" aria-label=${`Metrics ${group}`} open=${open}>
        <summary onClick=${(event) => { event.preventDefault(); fold(group); }}><b>${group || "metrics"}</b> <span class="sub">${plural(own.length, "metric")}</span></summary>${inside}</details>`;
    })}<//>`;
}

function Toolbar({ view, names }) {
  const [smooth, setSmooth] = useState(view.smooth);
  useEffect(() => { setSmooth(view.smooth); }, [view.smooth]);
  return html`<div class="row" style="margin-bottom:10px">
    <label class="grow"><span class="hidden">Search metrics</span><input type="search" style="width:100%" value=${view.word} placeholder="Search metrics" onInput=${(event) => ask({ m: event.target.value || null })} /></label>
    <label class="inline">x<select aria-label="x axis" value=${view.x} onChange=${(event) => ask({ x: event.target.value === "step" ? null : event.target.value })}>
      ${X_KINDS.filter(([name]) => name !== "samples" || counterOf(names)).map(([name, word]) => html`<option value=${name}>${word}</option>`)}</select></label>
    <label class="inline">Smoothing<input type="range" min="0" max=${MOST_SMOOTH} step="0.01" value=${smooth} onInput=${(event) => setSmooth(Number(event.target.value))}
      onChange=${(event) => ask({ smooth: Number(event.target.value) || null })} /><span class="num" style="width:4ch">${number(smooth, 2)}</span></label>
    <label class="inline"><input type="checkbox" checked=${view.log} onChange=${() => ask({ log: view.log ? null : 1 })} />log scale</label>
    ${view.range[0] !== null && html`<span class="sub">steps ${number(view.range[0])} to ${number(view.range[1])}</span><button onClick=${() => ask({ from: null, to: null })}>Show all steps</button>`}</div>`;
}

// Draws once it is near what is looked at: a job may have hundreds of metrics.
function Panel({ name, large, pins, children }) {
  const [box, near] = useNear();
  const at = pins.indexOf(name);
  const move = (to) => {
    const next = pins.filter((one) => one !== name);
    next.splice(to, 0, name);
    ask({ pin: next });
  };
  return html`<div class=${`panel ${large ? "" : "w6"}`} ref=${box}>
    <div class="pins">${at > 0 && html`<button class="plain" aria-label=${`Move ${name} before ${pins[at - 1]}`} title="Move forward" onClick=${() => move(at - 1)}>←</button>`}
      <button class="plain" aria-pressed=${at >= 0 ? "true" : "false"} aria-label=${`Pin ${name}`} title=${at >= 0 ? "Unpin" : "Pin to the top"}
        onClick=${() => ask({ pin: at >= 0 ? pins.filter((one) => one !== name) : [...pins, name] })}>${at >= 0 ? "★" : "☆"}</button></div>
    ${near ? children : html`<h3>${name}</h3><div class="chart"></div>`}</div>`;
}

// All runs as lines over parallel axes: what they differ in, then the metrics they ended with. Dragging along an axis keeps the runs
// that pass there; the fields below do the same by keys.
import { html, useState } from "../../kit.js";
import { Empty } from "../../parts/notice.js";
import { number, plural } from "../../format.js";
import { ask } from "../../router.js";
import { useWidth } from "../../use.js";
import { brushText } from "./axes.js";

const HEIGHT = 300;
const TOP = 44;
const BOTTOM = 24;
const GRIP = 30;
const LEAST_PX = 4;

export function Parallel({ runs, axes, brushes, kept, names, tokenOf, at, setAt, noun = "run" }) {
  const [box, width] = useWidth();
  const [drag, setDrag] = useState(null);
  if (runs.length < 2 || axes.length < 2) return html`<div ref=${box}><${Empty}>Choose two ${noun}s or more that differ in two values or more: each is a line here.<//></div>`;
  const wide = Math.max(width, axes.length * 96);
  const x = (i) => 54 + i * ((wide - 108) / (axes.length - 1));
  const y = (part) => HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM);
  const partAt = (event) => {
    const top = event.currentTarget.ownerSVGElement.getBoundingClientRect().top;
    return Math.min(1, Math.max(0, (HEIGHT - BOTTOM - (event.clientY - top)) / (HEIGHT - TOP - BOTTOM)));
  };
  const end = () => {
    if (!drag) return;
    const far = Math.abs(drag.to - drag.from) * (HEIGHT - TOP - BOTTOM) > LEAST_PX;
    setBrush(brushes, drag.id, far ? [Math.min(drag.from, drag.to), Math.max(drag.from, drag.to)] : null);
    setDrag(null);
  };
  const grip = (axis, i) => {
    const own = drag?.id === axis.id ? [Math.min(drag.from, drag.to), Math.max(drag.from, drag.to)] : brushes.get(axis.id);
    return html`<g class="brush">${own && html`<rect class="chosen" x=${x(i) - 8} width="16" y=${y(own[1])} height=${Math.max(2, y(own[0]) - y(own[1]))} />`}
      <rect class="grip" x=${x(i) - GRIP / 2} width=${GRIP} y=${TOP - 6} height=${HEIGHT - TOP - BOTTOM + 12}
        onPointerDown=${(event) => { event.currentTarget.setPointerCapture(event.pointerId); const part = partAt(event); setDrag({ id: axis.id, from: part, to: part }); }}
        onPointerMove=${(event) => { if (drag) setDrag({ ...drag, to: partAt(event) }); }} onPointerUp=${end} onPointerCancel=${() => setDrag(null)}><title>Drag to keep the ${noun}s between; click to keep all</title></rect></g>`;
  };
  const order = [...runs].sort((a, b) => kept.has(a.job_id) - kept.has(b.job_id));
  return html`<div class="parallel scroll-x" ref=${box} tabindex="0" role="region" aria-label="Parallel coordinates">${width > 0 && html`<svg width=${wide} height=${HEIGHT} style="max-width:none" role="img"
    aria-label=${`${runs.length} ${noun}s over ${axes.map((axis) => axis.full).join(", ")}; the table below has the numbers`}>
    ${order.map((run) => html`<path key=${run.job_id} d=${lineOf(run, axes, x, y)} fill="none" style=${{ stroke: `var(${kept.has(run.job_id) ? tokenOf(run) : "--line-strong"})` }}
      stroke-width=${at === run.job_id ? 3 : 1.4} stroke-dasharray=${kept.has(run.job_id) ? null : "2 4"}
      opacity=${!kept.has(run.job_id) ? 0.35 : at && at !== run.job_id ? 0.15 : 0.8} onMouseEnter=${() => setAt(run.job_id)} onMouseLeave=${() => setAt(null)}><title>${names[run.job_id]}</title></path>`)}
    ${axes.map((axis, i) => html`<g key=${axis.id}><line x1=${x(i)} x2=${x(i)} y1=${y(0)} y2=${y(1)} style="stroke:var(--line-strong)" />
      <text x=${x(i)} y="16" text-anchor="middle">${cut(axis.title, 16)}<title>${axis.full}</title></text>
      <text class="dim" x=${x(i)} y="34" text-anchor="middle">${axis.numbers ? number(axis.high, 3) : cut(axis.texts[axis.texts.length - 1], 14)}</text>
      <text class="dim" x=${x(i)} y=${HEIGHT - 6} text-anchor="middle">${axis.numbers ? number(axis.low, 3) : cut(axis.texts[0], 14)}</text>${grip(axis, i)}</g>`)}
  </svg>`}</div>
  <${Brushes} axes=${axes} brushes=${brushes} kept=${kept} runs=${runs} noun=${noun} />`;
}

const cut = (text, chars) => (text.length > chars ? `${text.slice(0, chars - 1)}…` : text);

function setBrush(brushes, id, range) {
  const next = new Map(brushes);
  if (range) next.set(id, range);
  else next.delete(id);
  ask({ brush: brushText(next) });
}

const ends = (axis, [low, high]) => (axis.numbers ? `${number(axis.low + low * (axis.high - axis.low))} to ${number(axis.low + high * (axis.high - axis.low))}`
  : axis.texts.filter((text) => axis.part(text) >= low - 1e-3 && axis.part(text) <= high + 1e-3).join(", ") || "none");

function Brushes({ axes, brushes, kept, runs, noun }) {
  const [id, setId] = useState("");
  const axis = axes.find((one) => one.id === id) || axes[0];
  const set = axes.filter((one) => brushes.has(one.id));
  const keep = (event) => {
    event.preventDefault();
    const given = new FormData(event.target);
    if (!axis.numbers) { setBrush(brushes, axis.id, [axis.part(given.get("value")), axis.part(given.get("value"))]); return; }
    const [from, to] = ["from", "to"].map((name, i) => (given.get(name) === "" ? [axis.low, axis.high][i] : Number(given.get(name))));
    const parts = [from, to].sort((a, b) => a - b).map((value) => Math.min(1, Math.max(0, axis.part(value))));
    setBrush(brushes, axis.id, parts);
  };
  return html`<form class="row end" style="margin-top:8px" onSubmit=${keep} aria-label=${`Keep some ${noun}s`}>
      <label class="field">Keep ${noun}s by<select value=${axis.id} onChange=${(event) => setId(event.target.value)}>${axes.map((one) => html`<option value=${one.id}>${one.full}</option>`)}</select></label>
      ${axis.numbers ? html`<label class="field">from<input name="from" type="number" step="any" placeholder=${number(axis.low)} style="width:9rem" /></label>
        <label class="field">to<input name="to" type="number" step="any" placeholder=${number(axis.high)} style="width:9rem" /></label>`
        : html`<label class="field">value<select name="value">${axis.texts.map((text) => html`<option>${text}</option>`)}</select></label>`}
      <button>Keep</button></form>
    <p class="tip" role="status">${set.length ? html`${plural(kept.size, noun)} of ${runs.length} kept by ${set.map((one) => html`<span class="tag" key=${one.id}>${one.full}: ${ends(one, brushes.get(one.id))}</span> `)}
      <button onClick=${() => ask({ brush: null })}>Keep all</button>` : `Drag along an axis to keep the ${noun}s that pass there.`}</p>`;
}

// A run's line; it breaks where the run has no value.
function lineOf(run, axes, x, y) {
  let path = "";
  let pen = "M";
  axes.forEach((axis, i) => {
    const value = axis.of(run);
    if (value === undefined || value === null) { pen = "M"; return; }
    path += `${pen}${x(i).toFixed(1)},${y(axis.part(value)).toFixed(1)}`;
    pen = "L";
  });
  return path;
}

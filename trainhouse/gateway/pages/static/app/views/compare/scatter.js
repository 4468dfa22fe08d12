// Any two of what runs have against each other, a point a run.
import { html, useState } from "../../kit.js";
import { Card } from "../../parts/bits.js";
import { Empty } from "../../parts/notice.js";
import { number, plural, tick } from "../../format.js";
import { ask } from "../../router.js";
import { useWidth } from "../../use.js";
import { shown } from "../job/config.js";
import { scaleOf, ticksOf } from "./axes.js";

const HEIGHT = 340;
const EDGE = { left: 84, right: 24, top: 16, bottom: 48 };
// So that no point lies on the edge.
const INSET = 12;
const LABEL_CHARS = 14;
const APART_PX = 60;

export function Scatter({ runs, dimensions, kept, names, tokenOf, at, setAt, query }) {
  const find = (id, other) => dimensions.find((one) => one.id === id) || other;
  const across = find(query.get("sx"), dimensions.find((one) => one.parameter && differ(runs, one)) || dimensions[0]);
  const up = find(query.get("sy"), dimensions.find((one) => one.value === "last" && one !== across) || dimensions.find((one) => one !== across));
  if (!across || !up) return html`<${Card} title="Scatter"><${Empty}>These runs have nothing to be laid out by yet: no parameter and no metric.<//><//>`;
  const logs = [query.get("sxlog") === "1", query.get("sylog") === "1"];
  const choose = (label, name, value) => html`<label class="inline">${label}<select aria-label=${`${label} of the scatter`} value=${value.id} onChange=${(event) => ask({ [name]: event.target.value })}>
    ${dimensions.map((one) => html`<option value=${one.id}>${one.full}</option>`)}</select></label>`;
  const logBox = (label, name, on) => html`<label class="inline"><input type="checkbox" checked=${on} onChange=${() => ask({ [name]: on ? null : 1 })} />${label}</label>`;
  return html`<${Card} title="Scatter"><div class="row" style="margin-bottom:8px">${choose("x", "sx", across)}${logBox("log x", "sxlog", logs[0])}${choose("y", "sy", up)}${logBox("log y", "sylog", logs[1])}</div>
    <${Plot} runs=${runs} across=${across} up=${up} logs=${logs} kept=${kept} names=${names} tokenOf=${tokenOf} at=${at} setAt=${setAt} /><//>`;
}

const differ = (runs, one) => new Set(runs.map((run) => shown(one.of(run)))).size > 1;

export function Plot({ runs, across, up, logs, kept, names, tokenOf, at, setAt, noun = "run" }) {
  const [box, width] = useWidth();
  const [over, setOver] = useState(null);
  const both = runs.filter((run) => [across, up].every((one) => one.of(run) !== undefined && one.of(run) !== null));
  const [sx, sy] = [scaleOf(both.map(across.of), logs[0]), scaleOf(both.map(up.of), logs[1])];
  const without = runs.length - both.length;
  const missing = without > 0 && html`<p class="sub">${plural(without, noun)} without both values: not on this chart.</p>`;
  if (!sx || !sy) return html`<div ref=${box}><${Empty}>${both.length ? "One of these has too many different words to be an axis; choose another one." : `No ${noun} has both ${across.full} and ${up.full}.`}<//></div>`;
  const px = (part) => EDGE.left + INSET + part * (width - EDGE.left - EDGE.right - 2 * INSET);
  const py = (part) => HEIGHT - EDGE.bottom - INSET - part * (HEIGHT - EDGE.bottom - EDGE.top - 2 * INSET);
  const refused = [logs[0] && !sx.log && across, logs[1] && !sy.log && up].filter(Boolean);
  const run = both.find((one) => one.job_id === (over || at));
  return html`<div ref=${box}>${width > 0 && html`<svg class="scatter" width=${width} height=${HEIGHT} role="img"
      aria-label=${`${up.full} over ${across.full}: ${plural(both.length, noun)}, ${across.full} ${spanOf(sx)}, ${up.full} ${spanOf(sy)}; the table below has the numbers`}>
      ${marksOf(sx, Math.max(1, Math.floor((width - EDGE.left - EDGE.right) / APART_PX))).map(([value, text]) => html`<g><line x1=${px(sx.part(value))} x2=${px(sx.part(value))} y1=${HEIGHT - EDGE.bottom} y2=${EDGE.top} />
        <text class="dim" x=${px(sx.part(value))} y=${HEIGHT - EDGE.bottom + 16} text-anchor="middle">${text}</text></g>`)}
      ${marksOf(sy, 5).map(([value, text]) => html`<g><line x1=${EDGE.left} x2=${width - EDGE.right} y1=${py(sy.part(value))} y2=${py(sy.part(value))} />
        <text class="dim" x=${EDGE.left - 8} y=${py(sy.part(value)) + 4} text-anchor="end">${text}</text></g>`)}
      <text x=${(EDGE.left + width - EDGE.right) / 2} y=${HEIGHT - 8} text-anchor="middle">${across.full}</text>
      <text transform=${`translate(14,${(HEIGHT - EDGE.bottom) / 2 + 8}) rotate(-90)`} text-anchor="middle">${up.full}</text>
      ${both.map((one) => html`<circle key=${one.job_id} cx=${px(sx.part(across.of(one))).toFixed(1)} cy=${py(sy.part(up.of(one))).toFixed(1)} r=${run === one ? 8 : 5}
        style=${{ fill: kept.has(one.job_id) ? `var(${tokenOf(one)})` : "transparent", stroke: `var(${tokenOf(one)})` }} opacity=${kept.has(one.job_id) ? 0.85 : 0.4}
        onMouseEnter=${() => { setOver(one.job_id); setAt(one.job_id); }} onMouseLeave=${() => { setOver(null); setAt(null); }}><title>${wordOf(one, names, across, up)}</title></circle>`)}
    </svg>`}
    <p class="tip">${run ? wordOf(run, names, across, up) : `Point at a ${noun} to see its values.`}</p>
    ${refused.map((one) => html`<p class="sub">${one.full} is not all above 0, so its axis is not logarithmic.</p>`)}${missing}</div>`;
}

const wordOf = (run, names, across, up) => `${names[run.job_id]}: ${across.full} ${valueWord(across.of(run))} · ${up.full} ${valueWord(up.of(run))}`;
const valueWord = (value) => (typeof value === "number" ? number(value) : shown(value));
const spanOf = (scale) => (scale.numbers ? `${number(scale.low)} to ${number(scale.high)}` : scale.texts.join(", ").slice(0, 200));
const small = (value) => (Math.abs(value) < 1e-2 && value !== 0 ? number(value, 2) : tick(value));

function marksOf(scale, count) {
  if (scale.numbers) {
    const made = ticksOf(scale.low, scale.high, scale.log, count).map((value) => [value, small(value)]);
    return made.length > count + 1 ? made.filter((_, i) => i % Math.ceil(made.length / (count + 1)) === 0) : made;
  }
  const every = Math.max(1, Math.ceil(scale.texts.length / (count + 1)));
  return scale.texts.filter((_, i) => i % every === 0).map((text) => [text, text.length > LABEL_CHARS ? `${text.slice(0, LABEL_CHARS - 1)}…` : text]);
}

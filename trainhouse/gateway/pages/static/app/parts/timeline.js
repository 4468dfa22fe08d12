// The states of a job over time, one line an attempt; and where its device time went, as one bar.
import { html, useMemo } from "../kit.js";
import { Pill } from "./bits.js";
import { clock, moment, number, share, span } from "../format.js";
import { jobColour, jobWord, TIME_KINDS } from "../states.js";
import { useWidth } from "../use.js";

const ROW_PX = 26;
const LEFT_PX = 84;

// spans: [{state, attempt, began_at, ended_at, reason}]; an open one goes on until now.
export function StateTimeline({ spans, now_ms }) {
  const [box, width] = useWidth();
  const first_ms = Math.min(...spans.map((one) => Date.parse(one.began_at)));
  const last_ms = Math.max(first_ms + 1, ...spans.map((one) => (one.ended_at ? Date.parse(one.ended_at) : one.ends ? Date.parse(one.began_at) : now_ms)));
  const attempts = useMemo(() => [...new Set(spans.map((one) => one.attempt))].sort((a, b) => a - b), [spans]);
  const x = (at_ms) => LEFT_PX + (at_ms - first_ms) / (last_ms - first_ms) * Math.max(1, width - LEFT_PX - 4);
  const ends = [0, 0.25, 0.5, 0.75, 1].filter((_, i) => width > 520 || i % 2 === 0);
  return html`<div class="timeline" ref=${box}>
    ${width > 0 && html`<svg width=${width} height=${attempts.length * ROW_PX + 24} role="img" aria-label=${told(spans)}>
      ${attempts.map((attempt, row) => html`<text class="dim" x="0" y=${row * ROW_PX + 16}>attempt ${attempt}</text>`)}
      ${spans.map((one) => {
        const from = x(Date.parse(one.began_at));
        const to = one.ended_at ? x(Date.parse(one.ended_at)) : one.ends ? from + 4 : x(last_ms);
        return html`<rect x=${from} y=${attempts.indexOf(one.attempt) * ROW_PX + 3} width=${Math.max(2, to - from)} height=${ROW_PX - 8} rx="2"
          style=${{ fill: `var(${jobColour(one.state)})` }}><title>${jobWord(one.state)} from ${moment(one.began_at)}${one.reason ? `: ${one.reason}` : ""}</title></rect>`;
      })}
      ${ends.map((part) => html`<text class="dim" x=${LEFT_PX + part * (width - LEFT_PX - 4)} y=${attempts.length * ROW_PX + 18}
        text-anchor=${part === 0 ? "start" : part === 1 ? "end" : "middle"}>${clock(new Date(first_ms + part * (last_ms - first_ms)).toISOString())}</text>`)}
    </svg>`}
    <ul class="legend">${[...new Set(spans.map((one) => one.state))].map((state) => html`<li><${Pill} word=${jobWord(state)} token=${jobColour(state)} square />
      <b> ${span(lasted(spans, state, now_ms))}</b></li>`)}</ul></div>`;
}

const lasted = (spans, state, now_ms) => spans.filter((one) => one.state === state && !(one.ends && !one.ended_at))
  .reduce((sum, one) => sum + ((one.ended_at ? Date.parse(one.ended_at) : now_ms) - Date.parse(one.began_at)) / 1000, 0);

const told = (spans) => `States in order: ${spans.slice(-30).map((one) => `${jobWord(one.state)} from ${moment(one.began_at)}`).join(", ")}`;

// parts: [{category, gpu_seconds}]
export function TimeSpent({ parts, label = "Device time by what it went into" }) {
  const whole = parts.reduce((sum, one) => sum + one.gpu_seconds, 0);
  const order = Object.keys(TIME_KINDS);
  const shown = [...parts].filter((one) => one.gpu_seconds > 0).sort((a, b) => order.indexOf(a.category) - order.indexOf(b.category));
  const words = shown.map((one) => `${kind(one.category)[0]} ${share(one.gpu_seconds, whole)}`).join(", ");
  return html`<div class="stack" role="img" aria-label=${`${label}: ${words}`}>${shown.map((one) => html`
      <span style=${{ width: `${100 * one.gpu_seconds / whole}%`, background: `var(${kind(one.category)[1]})` }} title=${`${kind(one.category)[0]} ${span(one.gpu_seconds)}`}></span>`)}</div>
    <ul class="legend">${shown.map((one) => html`<li><${Pill} word=${kind(one.category)[0]} token=${kind(one.category)[1]} square />
      <b> ${share(one.gpu_seconds, whole)}</b> ${span(one.gpu_seconds)}</li>`)}<li>all <b>${number(whole / 3600, 3)}</b> device hours</li></ul>`;
}

export const kind = (category) => TIME_KINDS[category] || [category.replaceAll("_", " "), "--s-unknown"];

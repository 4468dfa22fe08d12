// Rungs of early stopping: how many trials reached each, how many ended there, and the values of some at them.
import { html } from "../../kit.js";
import { Card, Later, Pill } from "../../parts/bits.js";
import { Shown } from "../../parts/notice.js";
import { Table } from "../../parts/table.js";
import { number, plural, share, tick } from "../../format.js";
import { scaleOf, ticksOf } from "../compare/axes.js";
import { pathOf, trialState } from "../../study_words.js";
import { useWidth } from "../../use.js";
import { usePart } from "./again.js";

const HEIGHT = 260;
const EDGE = { left: 64, right: 28, top: 12, bottom: 40 };
const SPREAD_PX = 26;

export function Rungs({ study }) {
  const found = usePart(pathOf(study.project, study.study, "/rungs", { limit: 150 }), study);
  return html`<${Card} title="Rungs"><${Shown} of=${found} what="the rungs" empty=${(d) => !d.rungs.length}
    nothing=${`No trial has reached the first rung of ${study.early_stopping} yet.`}>${(d) => html`
    <p class="sub">${study.early_stopping} judges a trial by ${d.metric} at each rung; ${d.mode === "min" ? "the least values go" : "the greatest values go"} on.${d.total > d.trials.length ? ` Drawn are ${number(d.trials.length)} of ${plural(d.total, "trial")}, as many of each height.` : ""}</p>
    <${Later}>${() => html`<${Drawn} found=${d} />`}<//>
    <${Table} caption="Rungs, the first one first" rows=${d.rungs} keyOf=${(rung) => rung.rung} columns=${[
      ["Rung", (rung) => number(rung.rung), "num"], ["Step", (rung) => number(rung.step), "num"], ["Reached", (rung) => number(rung.reached), "num"],
      ["Stopped there", (rung) => `${number(rung.stopped)} (${share(rung.stopped, rung.reached)})`, "num"], ["Went on, or still there", (rung) => number(rung.reached - rung.stopped), "num"],
      [`Best ${d.metric}`, (rung) => number(rung.best), "num"], ["Median", (rung) => number(rung.median), "num"]]} />`}<//><//>`;
}

function Drawn({ found }) {
  const [box, width] = useWidth();
  const known = found.trials.flatMap((trial) => trial.values).filter((value) => Number.isFinite(value));
  const scale = scaleOf(known);
  if (!scale) return html`<div ref=${box}></div>`;
  const steps = found.rungs.length;
  const x = (rung, trial) => EDGE.left + SPREAD_PX + (steps < 2 ? 0.5 : rung / (steps - 1)) * Math.max(1, width - EDGE.left - EDGE.right - 2 * SPREAD_PX) + aside(trial) * SPREAD_PX;
  const y = (value) => HEIGHT - EDGE.bottom - scale.part(value) * (HEIGHT - EDGE.top - EDGE.bottom);
  const words = found.rungs.map((rung) => `step ${number(rung.step)}: ${number(rung.reached)} reached it, ${number(rung.stopped)} ended there`).join("; ");
  return html`<div ref=${box}>${width > 0 && html`<svg class="scatter rungs" width=${width} height=${HEIGHT} role="img" aria-label=${`Values of ${found.metric} at the rungs; ${words}`}>
      ${ticksOf(scale.low, scale.high, false, 5).map((value) => html`<g><line x1=${EDGE.left} x2=${width - EDGE.right} y1=${y(value)} y2=${y(value)} /><text class="dim" x=${EDGE.left - 8} y=${y(value) + 4} text-anchor="end">${tick(value)}</text></g>`)}
      ${found.rungs.map((rung) => html`<text class="dim" x=${x(rung.rung, null)} y=${HEIGHT - EDGE.bottom + 16} text-anchor="middle">step ${number(rung.step)}</text>`)}
      <text x=${(EDGE.left + width - EDGE.right) / 2} y=${HEIGHT - 6} text-anchor="middle">rung</text>
      ${found.trials.map((trial) => html`<${Climb} key=${trial.trial} trial=${trial} x=${x} y=${y} />`)}
    </svg>`}
    <ul class="legend">${["STOPPED", "COMPLETE", "RUNNING", "FAILED", "CANCELLED"].filter((state) => found.trials.some((trial) => trial.state === state)).map((state) => html`
      <li><${Pill} word=${trialState(state)[0]} token=${trialState(state)[1]} /></li>`)}</ul></div>`;
}

// So that trials of one rung stand beside each other: the same place at each drawing.
const aside = (trial) => (trial === null ? 0 : (trial * 0.618034 % 1) * 1.6 - 0.8);

function Climb({ trial, x, y }) {
  const points = trial.values.map((value, rung) => (Number.isFinite(value) ? [x(rung, trial.trial), y(value)] : null)).filter(Boolean);
  if (!points.length) return null;
  const token = `var(${trialState(trial.state)[1]})`;
  const [last] = points.slice(-1);
  return html`<g><path d=${`M${points.map((point) => point.map((n) => n.toFixed(1)).join(",")).join("L")}`} fill="none" style=${{ stroke: token }} opacity="0.35" />
    ${points.map(([cx, cy]) => html`<circle cx=${cx.toFixed(1)} cy=${cy.toFixed(1)} r=${cx === last[0] ? 4 : 2.5} style=${{ fill: token }}><title>trial ${trial.trial}, ${trialState(trial.state)[0]}: ${trial.values.map((value) => number(value)).join(", ")}</title></circle>`)}</g>`;
}

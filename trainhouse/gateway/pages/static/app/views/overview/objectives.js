// The platform's objectives: what was reached, what is left of the budget, how fast it burns, or that the stack is too young to say.
import { html } from "../../kit.js";
import { Table } from "../../parts/table.js";
import { number, span } from "../../format.js";

const percentOf = (value) => (value === null ? "–" : `${number(100 * value, 5)} %`);
const MET = { true: "yes", false: "no" };

// A rate of a pair of spans. Pure.
export const burnOf = (row, pair) => (row.too_young.includes(pair) ? "too young" : row.burn_rates[pair] === null ? "–" : `${number(row.burn_rates[pair], 2)} ×`);

const COLUMNS = [
  ["Objective", (row) => html`<span title=${row.good_means}>${row.title}</span>`, "wide"], ["Target", (row) => percentOf(row.objective), "num"], ["Reached", (row) => percentOf(row.actual), "num"],
  ["Budget left", (row) => (row.budget_left === null ? "–" : `${number(Math.round(100 * row.budget_left))} %`), "num"],
  ["Burns (1 h)", (row) => burnOf(row, "5m-1h"), "num"], ["Burns (3 d)", (row) => burnOf(row, "6h-3d"), "num"], ["Met", (row) => (row.met === null ? "nothing counted" : MET[row.met]), "short"],
];

export function Objectives({ rows }) {
  const young = rows.find((row) => row.too_young.length);
  return html`${young && html`<p class="sub">${young.age_s === null ? "This stack has decided nothing yet" : `This stack is ${span(young.age_s)} old`}: a burn rate needs the whole of its longer span, and is too young to be known before.</p>`}
    <${Table} caption="Objectives of the platform" columns=${COLUMNS} rows=${rows} keyOf=${(row) => row.name} />`;
}

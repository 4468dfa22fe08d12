// A table with a caption for readers of the screen, columns as [title, cell(row), kind] (kind: "num", "short", "wide" or nothing).
import { html } from "../kit.js";

export function Table({ caption, columns, rows, keyOf }) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${caption}><table>
    <caption class="hidden">${caption}</caption>
    <thead><tr>${columns.map(([title, , kind]) => html`<th scope="col" class=${kind || null}>${title}</th>`)}</tr></thead>
    <tbody>${rows.map((row, i) => html`<tr key=${keyOf ? keyOf(row) : i}>
      ${columns.map(([, cell, kind]) => html`<td class=${kind || null}>${cell(row)}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}

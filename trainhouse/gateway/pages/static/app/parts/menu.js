// A button that opens a card below the row in which it stands, one at a time; Escape closes it.
import { html, useRef } from "../kit.js";

// label: of the card as a group, where what is in it needs one.
export function Menu({ title, label, children }) {
  const box = useRef(null);
  const pressed = (event) => {
    if (event.key !== "Escape" || !box.current.open) return;
    event.stopPropagation();
    box.current.open = false;
    box.current.querySelector("summary").focus();
  };
  return html`<details class="menu" name="menu" ref=${box} onKeyDown=${pressed}><summary class="button">${title}</summary>
    <div class="card" role=${label ? "group" : null} aria-label=${label}>${children}</div></details>`;
}

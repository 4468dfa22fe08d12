// A button that opens a card below the row in which it stands, one at a time; Escape closes it.
import { html, useRef } from "../kit.js";

// label: of the card as a group, where what is in it needs one. opened: called when it opens, for what is asked for only then.
export function Menu({ title, label, opened, children }) {
  const box = useRef(null);
  const pressed = (event) => {
    if (event.key !== "Escape" || !box.current.open) return;
    event.stopPropagation();
    box.current.open = false;
    box.current.querySelector("summary").focus();
  };
  return html`<details class="menu" name="menu" ref=${box} onKeyDown=${pressed} onToggle=${() => box.current?.open && opened?.()}><summary class="button">${title}</summary>
    <div class="card" role=${label ? "group" : null} aria-label=${label}>${children}</div></details>`;
}

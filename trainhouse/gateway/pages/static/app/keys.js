// Keys of all pages: `g j` and the like go somewhere, `/` searches, `?` helps. Never while somebody types in a field.
import { go } from "./router.js";

export const PLACES = [
  ["o", "/", "Overview"], ["j", "/jobs", "Jobs"], ["c", "/compare", "Compare"], ["y", "/studies", "Studies"], ["n", "/nodes", "Nodes"],
  ["d", "/datasets", "Datasets"], ["m", "/models", "Models"], ["u", "/utilization", "Utilization and cost"], ["s", "/sql", "SQL"],
  ["r", "/reports", "Reports"],
];
const CHORD_MS = 1200;

const typing = (element) => element?.closest?.("input, textarea, select, [contenteditable]") !== null && element?.closest !== undefined;

// help: () => …, called for `?`; theme: () => …, called for `t`. Returns a function that stops it.
export function listen({ help, theme }) {
  let chord_ms = 0;
  const pressed = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.composedPath()[0]) || document.querySelector("dialog[open]")) return;
    const place = PLACES.find(([key]) => key === event.key);
    if (Date.now() - chord_ms < CHORD_MS && place) {
      chord_ms = 0;
      event.preventDefault();
      go(place[1]);
    } else if (event.key === "g") {
      chord_ms = Date.now();
    } else if (event.key === "/") {
      const field = document.querySelector("[data-search]");
      if (field) { event.preventDefault(); field.focus(); field.select?.(); }
    } else if (event.key === "?") {
      event.preventDefault();
      help();
    } else if (event.key === "t") {
      theme();
    }
  };
  document.addEventListener("keydown", pressed);
  return () => document.removeEventListener("keydown", pressed);
}

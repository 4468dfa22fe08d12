// Light and dark: the system's wish until somebody toggles; canvases are told, since they cannot read style sheets by themselves.
const root = document.documentElement;
const listeners = new Set();
const colours = new Map();

export const isDark = () => root.dataset.theme === "dark";

export function setTheme(dark, keep = true) {
  root.dataset.theme = dark ? "dark" : "light";
  if (keep) try { localStorage.setItem("theme", root.dataset.theme); } catch { /* storage may be off */ }
  colours.clear();
  for (const listener of listeners) listener();
}

export function onTheme(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

// The value of a colour token such as "--text", for canvases.
export function colour(token) {
  if (!colours.has(token)) colours.set(token, getComputedStyle(root).getPropertyValue(token).trim());
  return colours.get(token);
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => {
  let chosen = null;
  try { chosen = localStorage.getItem("theme"); } catch { /* storage may be off */ }
  if (!chosen) setTheme(event.matches, false);
});

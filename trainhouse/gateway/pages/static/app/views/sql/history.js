// Queries that this browser ran, the newest first. Kept here only: the gateway's audit has who asked what.
const KEY = "trainhouse:sql:history";
const MOST = 50;
const MOST_CHARS = 8192;

export function ran() {
  try { return JSON.parse(localStorage.getItem(KEY)) || []; } catch { return []; }
}

// The same text once, with its newest run.
export function remembered(entries, one) {
  return [one, ...entries.filter((other) => other.text !== one.text)].slice(0, MOST);
}

export function keep(one) {
  const next = one.text.length > MOST_CHARS ? ran() : remembered(ran(), one);
  try { localStorage.setItem(KEY, JSON.stringify(next)); } catch { /* storage may be off or full: the list of this page stays */ }
  return next;
}

export function forget() {
  try { localStorage.removeItem(KEY); } catch { /* nothing was kept then */ }
  return [];
}

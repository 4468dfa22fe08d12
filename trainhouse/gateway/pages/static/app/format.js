// Figures, spans of time and moments as people read them. Pure.
export const number = (value, digits = 4) => {
  if (value === null || value === undefined || value === "") return "–";
  const n = Number(value);
  if (!Number.isFinite(n)) return String(value);
  if (Number.isInteger(n) && Math.abs(n) < 1e15) return n.toLocaleString("en-US");
  const size = Math.abs(n);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return n.toExponential(2).replace(/\.?0+e/, "e");
  return n.toLocaleString("en-US", { maximumSignificantDigits: digits });
};

// Of an axis, which has room for few characters: 2,500,000 is 2.5M.
export const tick = (value) => (Math.abs(value) < 1e5 ? number(value, 3) : value.toLocaleString("en-US", { notation: "compact", maximumSignificantDigits: 6 }));

export const share = (part, whole) => (whole ? `${(100 * part / whole).toFixed(part / whole < 0.1 ? 1 : 0)} %` : "–");

export const percent = (value) => (value === null || value === undefined ? "–" : `${Number(value).toFixed(1)} %`);

export function span(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(Number(seconds))) return "–";
  const s = Math.max(0, Number(seconds));
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  if (s < 60) return `${s < 10 ? s.toFixed(1) : Math.round(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

export const ms = (when) => (when ? Date.parse(when) : null);

export function ago(when, now_ms) {
  const at = ms(when);
  if (at === null || Number.isNaN(at)) return "–";
  const s = (now_ms - at) / 1000;
  if (s < -1) return `in ${span(-s)}`;
  if (s < 2) return "just now";
  if (s < 60) return `${Math.floor(s)} s ago`;
  if (s < 3600) return `${Math.floor(s / 60)} min ago`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ago`;
  return `${Math.floor(s / 86400)} d ago`;
}

// When something is expected. A moment that has just passed is no news; one long ago is.
export function due(when, now_ms) {
  const late_s = (now_ms - ms(when)) / 1000;
  if (late_s < 0) return `in ${span(-late_s)}`;
  return late_s < 60 ? "any moment" : `overdue since ${span(late_s).replace(/ 0 (s|min|h)$/, "")}`;
}

export function moment(when) {
  const at = ms(when);
  return at === null || Number.isNaN(at) ? "–" : new Date(at).toISOString().replace("T", " ").slice(0, 19);
}

export const clock = (when) => moment(when).slice(11);

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let n = Number(value);
  let unit = 0;
  while (n >= 1024 && unit < units.length - 1) { n /= 1024; unit += 1; }
  return `${unit && n < 10 ? n.toFixed(1) : Math.round(n)} ${units[unit]}`;
}

export const hours = (seconds) => (seconds === null || seconds === undefined ? "–" : `${number(Number(seconds) / 3600, 3)} h`);

// A refused job has no spec that could be read, so no name.
export const titleOf = (job) => job.name || job.job_id;

export const plural = (n, one, many = `${one}s`) => `${number(n)} ${n === 1 ? one : many}`;

// What a rank's end is about: the last line that it wrote; what its flight recorder says comes after that.
export function lastLine(text) {
  const lines = (text || "").split("\n").filter((line) => line.trim() && !line.startsWith("flight recorder:"));
  return lines.length ? lines[lines.length - 1] : "–";
}

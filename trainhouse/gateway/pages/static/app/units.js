// Units of metrics, by the end of their names (`_bytes`, `_pct`, `_ms`, `_s`, `_c`, `_w`): values in words and on axes. Pure.
import { bytes, number, span, tick } from "./format.js";

const BINARY = Array.from({ length: 56 }, (_, n) => 2 ** n);

const axisBytes = (value) => {
  const text = bytes(value);
  return value ? text.replace(".0 ", " ") : "0";
};

export const PLAIN = { word: number, tick, steps: null };
export const PERCENT = { word: (v) => `${number(v, 3)} %`, tick: (v) => `${tick(v)} %`, steps: null };
const UNITS = [
  [/(^|_)bytes$/, { word: bytes, tick: axisBytes, steps: BINARY }],
  [/(^|_)(pct|percent)$/, PERCENT],
  [/(^|_)ms$/, { word: (v) => (v < 1000 ? `${number(v, 3)} ms` : span(v / 1000)), tick: (v) => `${tick(v)} ms`, steps: null }],
  [/[a-z]_s$/, { word: (v) => (v < 1 ? `${number(v, 3)} s` : span(v)), tick: (v) => `${tick(v)} s`, steps: null }],
  [/(^|_)c$/, { word: (v) => `${number(v, 3)} °C`, tick: (v) => `${tick(v)} °C`, steps: null }],
  [/(^|_)w$/, { word: (v) => `${number(v, 3)} W`, tick: (v) => `${tick(v)} W`, steps: null }],
];

// {word: value → text, tick: value of an axis → text, steps: distances between ticks, or null for decimal ones}. `samples_per_s` is a rate.
export function unitOf(name) {
  const last = name.split("/").pop().toLowerCase();
  if (last.endsWith("_per_s")) return PLAIN;
  return (UNITS.find(([pattern]) => pattern.test(last)) || [null, PLAIN])[1];
}

// One figure of nodes over time: asked for the nodes in sight only, so that ten thousand cost no more than fifty.
import { html, useEffect, useRef, useState } from "../../kit.js";
import { call, url } from "../../api.js";
import { number } from "../../format.js";

export const METRICS = { utilization: ["GPU use", "%", 0, 100], memory: ["GPU memory", "%", 0, 100], temperature: ["Temperature", "°C", 20, 95] };
const PARTS = 36;
const AT_ONCE = 40;
const MOST_CHARS = 4000;
const SETTLE_MS = 120;
const STALE_MS = 60000;

// Names in portions that an address holds. Pure.
export function portions(names) {
  const found = [];
  let chars = 0;
  for (const name of names) {
    const size = encodeURIComponent(name).length + 6;
    if (!found.length || found[found.length - 1].length >= AT_ONCE || chars + size > MOST_CHARS) { found.push([]); chars = 0; }
    found[found.length - 1].push(name);
    chars += size;
  }
  return found;
}

// {valuesOf(node), starts, error}: valuesOf asks for what is not known yet; undefined until it is there.
export function useHistory(metric, hours) {
  const [state, setState] = useState({ starts: [], error: null, round: 0 });
  const kept = useRef({ key: "", values: new Map(), wanted: new Set(), timer: 0, at_ms: 0 });
  const key = `${metric}/${hours}`;
  if (kept.current.key !== key || Date.now() - kept.current.at_ms > STALE_MS) {
    clearTimeout(kept.current.timer);
    const before = kept.current.key === key ? kept.current.values : new Map();
    kept.current = { key, values: before, fresh: new Set(), wanted: new Set(), timer: 0, at_ms: Date.now() };
  }
  useEffect(() => () => clearTimeout(kept.current.timer), []);
  const ask = async (own) => {
    const names = [...own.wanted];
    own.wanted.clear();
    own.timer = 0;
    for (const node of portions(names)) {
      try {
        const found = await call(url("/v1/fleet/history", { node, metric, hours, parts: PARTS }));
        if (kept.current.key !== own.key) return;
        for (const one of found.items) own.values.set(one.node_id, one.values);
        setState((before) => ({ starts: found.starts, error: null, round: before.round + 1 }));
      } catch (error) {
        setState((before) => ({ ...before, error }));
      }
    }
  };
  const valuesOf = (name) => {
    const own = kept.current;
    if (!own.fresh.has(name)) {
      own.fresh.add(name);
      own.wanted.add(name);
      if (!own.timer) own.timer = setTimeout(() => ask(own), SETTLE_MS);
    }
    return own.values.get(name);
  };
  return { valuesOf, starts: state.starts, error: state.error };
}

const known = (values) => values.filter((value) => value !== null);

// A node's figure as cells from the oldest to the newest. A part that was not reported is a line, not a box.
export function Strip({ values, metric }) {
  if (values === undefined) return html`<span class="sub">…</span>`;
  const [word, unit, low, high] = METRICS[metric];
  const all = known(values);
  if (!all.length) return html`<span class="sub">not reported</span>`;
  const label = `${word}: least ${number(Math.min(...all), 3)} ${unit}, greatest ${number(Math.max(...all), 3)} ${unit}, newest ${number(all[all.length - 1], 3)} ${unit}`;
  return html`<svg class="strip" viewBox=${`0 0 ${values.length} 10`} preserveAspectRatio="none" role="img" aria-label=${label}><title>${label}</title>
    ${values.map((value, i) => (value === null ? html`<rect class="none" x=${i} y="4.6" width="1" height="0.8" />`
      : html`<rect x=${i} y="0" width="0.92" height="10" style=${{ fill: `color-mix(in srgb, var(--heat-1) ${Math.round(100 * Math.min(1, Math.max(0, (value - low) / (high - low))))}%, var(--heat-0))` }} />`))}</svg>`;
}

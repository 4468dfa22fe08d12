// A graph of what came from what, with arrows from cause to outcome. It fits into its box, and can be enlarged.
import { html, useEffect, useMemo, useState } from "../kit.js";
import { number } from "../format.js";
import { jobWord } from "../states.js";
import { useWidth } from "../use.js";
import { Failed, Loading } from "./notice.js";
import { folded, manyOf, nameOf, shownId } from "./graph_things.js";

export { nameOf, shownId };
const WIDTH = 196;
const NARROW_PX = 640;
const LARGEST = 2;

// The plan of a graph, from a worker of its own; null until it is there.
function usePlan(graph, down) {
  const [found, setFound] = useState({ graph: null, plan: null, error: null });
  useEffect(() => {
    const worker = new Worker("/static/app/parts/graph_layout.js", { type: "module" });
    worker.onmessage = ({ data }) => { setFound({ graph, plan: data.plan || null, error: data.error ? new Error(`The graph could not be laid out: ${data.error}`) : null }); worker.terminate(); };
    worker.onerror = () => setFound({ graph, plan: null, error: new Error("The graph could not be laid out: the gateway does not answer.") });
    worker.postMessage({ nodes: graph.boxes.map(({ id, width, height }) => ({ id, width, height })), edges: graph.edges, down });
    return () => worker.terminate();
  }, [graph, down]);
  return found;
}

function boxOf(id, members, things) {
  const ids = members.get(id);
  if (ids) {
    const { count, kind, least, greatest } = manyOf(ids, things);
    const steps = least === null ? "" : least === greatest ? `step ${number(least)}` : `steps ${number(least)} to ${number(greatest)}`;
    return { id, lines: [`${number(count)} × ${kind}`, steps || "same origin and outcome"], title: ids.slice(0, 40).join("\n"), href: null };
  }
  const thing = things[id];
  const { kind, text, href } = nameOf(id, thing);
  const known = [thing?.step !== null && thing?.step !== undefined && `step ${number(thing.step)}`, thing?.loss !== null && thing?.loss !== undefined && `loss ${number(thing.loss)}`].filter(Boolean).join(" · ");
  const state = thing?.state && id.startsWith("job:") ? ` · ${jobWord(thing.state)}` : "";
  return { id, lines: [`${kind}${state}`, text, known].filter(Boolean), title: `${id}${known ? `\n${known}` : ""}`, href };
}

// edges: {from_id, to_id, kind}; things: {id: {name, state, step, loss}}.
export function Graph({ edges, self, things = {} }) {
  const [all, setAll] = useState(false);
  const [zoom, setZoom] = useState(0);
  const [box, width] = useWidth();
  const down = width > 0 && width < NARROW_PX;
  const graph = useMemo(() => {
    const { edges: lines, ids, members } = folded(edges, self, all);
    const boxes = ids.map((id) => { const one = boxOf(id, members, things); return { ...one, width: WIDTH, height: 12 + 16 * one.lines.length }; });
    return { boxes, edges: lines, many: members.size };
  }, [edges, self, all, things]);
  const { plan, error, graph: of } = usePlan(graph, down);
  const fit = plan && width ? Math.min(1, (width - 4) / plan.width) : 1;
  const scale = Math.min(LARGEST, fit * 1.25 ** zoom);
  return html`<div ref=${box}>
    <div class="row" style="margin-bottom:8px" role="group" aria-label="Size of the graph">
      <button onClick=${() => setZoom(zoom + 1)} disabled=${scale >= LARGEST} aria-label="Enlarge the graph">+</button>
      <button onClick=${() => setZoom(zoom - 1)} disabled=${zoom <= 0} aria-label="Shrink the graph">−</button>
      <button onClick=${() => setZoom(0)} disabled=${zoom === 0}>Fit</button>
      ${(graph.many > 0 || all) && html`<button aria-pressed=${all ? "true" : "false"} onClick=${() => setAll(!all)}>Show each</button>`}
      <span class="sub" role="status">${number(graph.boxes.length)} boxes, ${number(graph.edges.length)} arrows</span></div>
    ${error ? html`<${Failed} error=${error} />` : !plan || of !== graph || !width ? html`<${Loading} what="the graph" />` : html`
      <div class="graph" tabindex="0" role="region" aria-label="Lineage graph">
        <svg viewBox=${`0 0 ${plan.width} ${plan.height}`} width=${plan.width * scale} height=${plan.height * scale} style="max-width:none">
          <defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse"><path class="head" d="M0,0 L8,4 L0,8 z" /></marker></defs>
          ${plan.lines.map(({ points }) => html`<path d=${`M${points.map((p) => `${p.x},${p.y}`).join("L")}`} marker-end="url(#arrow)" />`)}
          ${plan.lines.map(({ label, x, y }) => label && html`<text class="dim label" x=${x} y=${y + 4} text-anchor="middle">${label}</text>`)}
          ${plan.nodes.map(({ id, x, y }, i) => html`<${Box} key=${id} box=${graph.boxes[i]} x=${x} y=${y} self=${id === self} />`)}</svg></div>`}</div>`;
}

function Box({ box, x, y, self }) {
  const inside = html`<title>${box.title}</title><rect width=${box.width} height=${box.height} rx="5" />
    ${box.lines.map((line, i) => html`<text class=${i === 1 ? "" : "dim"} x="10" y=${18 + 16 * i}>${line}</text>`)}`;
  return html`<g class=${self ? "self" : box.id.startsWith("many:") ? "many" : ""} transform=${`translate(${x - box.width / 2},${y - box.height / 2})`}>
    ${box.href && !self ? html`<a href=${box.href}>${inside}</a>` : inside}</g>`;
}

// A graph of what came from what, in layers from left to right.
import { html, useMemo } from "../kit.js";
import dagre from "../../vendor/dagre/dagre.js";

const NODE = { width: 190, height: 44 };
const MOST = 300;
const KINDS = { job: "job", attempt: "attempt", checkpoint: "checkpoint", code: "code", environment: "environment", data: "data", artifact: "artifact" };

// Ids are kind:rest. Pure: a title and a second line for a person.
export function nameOf(id) {
  const colon = id.indexOf(":");
  const [kind, rest] = [id.slice(0, colon), id.slice(colon + 1)];
  // The id names the fence of an attempt, which is one more than its number.
  const attempt = kind === "attempt" && rest.match(/^(.*)\/(\d+)$/);
  if (attempt) return { kind: `attempt ${attempt[2] - 1}`, text: shortened(attempt[1]), href: null };
  const long = kind === "code" || kind === "environment" ? rest.slice(0, 12) : rest;
  return { kind: KINDS[kind] || kind, text: shortened(long), href: kind === "job" ? `/jobs/${encodeURIComponent(rest)}` : null };
}

const shortened = (text) => (text.length > 25 ? `…${text.slice(-24)}` : text);

// An id as a table shows it.
export const shownId = (id) => (id.startsWith("attempt:") ? `${nameOf(id).kind} of ${id.slice(8, id.lastIndexOf("/"))}` : id);

export function laid(edges) {
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({ rankdir: "LR", nodesep: 14, ranksep: 44, marginx: 10, marginy: 10 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const id of new Set(edges.flatMap((edge) => [edge.from_id, edge.to_id]))) graph.setNode(id, { ...NODE, id });
  for (const edge of edges) graph.setEdge(edge.from_id, edge.to_id);
  dagre.layout(graph);
  return { nodes: graph.nodes().map((id) => graph.node(id)), lines: graph.edges().map((edge) => graph.edge(edge).points), ...graph.graph() };
}

export function Graph({ edges, self }) {
  const shown = edges.slice(0, MOST);
  const plan = useMemo(() => laid(shown), [edges]);
  return html`${edges.length > MOST && html`<p class="sub">The first ${MOST} of ${edges.length} edges are drawn; the table below has all.</p>`}
    <div class="graph" tabindex="0" role="region" aria-label="Lineage graph"><svg width=${plan.width} height=${plan.height} style="max-width:none">
      ${plan.lines.map((points) => html`<path d=${`M${points.map((p) => `${p.x},${p.y}`).join("L")}`} />`)}
      ${plan.nodes.map((node) => html`<${Box} node=${node} self=${node.id === self} />`)}</svg></div>`;
}

function Box({ node, self }) {
  const { kind, text, href } = nameOf(node.id);
  const inside = html`<title>${node.id}</title><rect width=${NODE.width} height=${NODE.height} rx="5" />
    <text class="dim" x="10" y="17">${kind}</text><text x="10" y="34">${text}</text>`;
  return html`<g class=${self ? "self" : ""} transform=${`translate(${node.x - NODE.width / 2},${node.y - NODE.height / 2})`}>
    ${href && !self ? html`<a href=${href}>${inside}</a>` : inside}</g>`;
}

// Where the boxes of a graph stand, worked out beside the page: layers of hundreds of things take longer than a page may stand still.
import dagre from "../../vendor/dagre/dagre.js";

// {nodes: [{id, width, height}], edges: [{from, to, label}], down} to {nodes: [{id, x, y}], lines: [{points, label, x, y}], width, height}.
function laid({ nodes, edges, down }) {
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({ rankdir: down ? "TB" : "LR", nodesep: 16, ranksep: down ? 26 : 34, edgesep: 8, marginx: 8, marginy: 8 });
  for (const { id, width, height } of nodes) graph.setNode(id, { width, height });
  for (const { from, to, label } of edges) graph.setEdge(from, to, { label, width: label ? 6.2 * label.length + 6 : 0, height: label ? 14 : 0, labelpos: "c" });
  dagre.layout(graph);
  const { width, height } = graph.graph();
  return {
    nodes: graph.nodes().map((id) => ({ id, x: graph.node(id).x, y: graph.node(id).y })),
    lines: graph.edges().map((edge) => graph.edge(edge)).map(({ points, label, x, y }) => ({ points, label, x, y })),
    width, height,
  };
}

addEventListener("message", ({ data }) => {
  try { postMessage({ plan: laid(data) }); } catch (error) { postMessage({ error: String(error) }); }
});

// Every device of the fleet as a square of its state's colour, node by node, pool by pool; on a canvas, since there may be ten thousand.
// Keys: arrows choose a node, Enter opens it; what is chosen is also told in words.
import { html, useEffect, useMemo, useRef, useState } from "../kit.js";
import { go } from "../router.js";
import { DEVICE_STATES } from "../states.js";
import { colour } from "../theme.js";
import { useTheme, useWidth } from "../use.js";
import { plural } from "../format.js";

const LABEL_PX = 22;

// Where each node stands. Pure: nodes in order of pools, a width in pixels -> {cells, height, size, perRow}.
export function layout(nodes, width) {
  const devices = nodes.reduce((sum, node) => sum + node.letters.length, 0);
  const size = devices > 4000 ? (width < 600 ? 4 : 6) : devices > 600 ? 8 : devices > 64 ? 12 : 16;
  const most = Math.max(1, ...nodes.map((node) => node.letters.length));
  const across = most <= 4 ? most : most <= 16 ? Math.ceil(most / 2) : 8;
  const block = { w: across * (size + 1) + 4, h: Math.ceil(most / across) * (size + 1) + 4 };
  const perRow = Math.max(1, Math.floor(width / block.w));
  const cells = [];
  const labels = [];
  let y = 0;
  let column = 0;
  let pool = null;
  for (const node of nodes) {
    if (node.pool !== pool) {
      if (pool !== null) y += block.h + 6;
      pool = node.pool;
      column = 0;
      labels.push({ pool, y });
      y += LABEL_PX;
    } else if (column === perRow) { column = 0; y += block.h; }
    cells.push({ node, x: column * block.w, y });
    column += 1;
  }
  return { cells, labels, size, across, block, perRow, height: nodes.length ? y + block.h : 0 };
}

function draw(canvas, plan, width, chosen) {
  const ratio = devicePixelRatio || 1;
  canvas.width = width * ratio;
  canvas.height = plan.height * ratio;
  canvas.style.height = `${plan.height}px`;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.font = "600 13px system-ui, sans-serif";
  pen.fillStyle = colour("--text");
  for (const { pool, y } of plan.labels) pen.fillText(pool, 0, y + 14);
  // One colour after the other: setting fillStyle is what costs.
  for (const [letter, [, token]] of Object.entries(DEVICE_STATES)) {
    pen.fillStyle = colour(token);
    for (const { node, x, y } of plan.cells) {
      for (let i = 0; i < node.letters.length; i += 1) {
        if (node.letters[i] !== letter) continue;
        pen.fillRect(x + (i % plan.across) * (plan.size + 1), y + Math.floor(i / plan.across) * (plan.size + 1), plan.size, plan.size);
      }
    }
  }
  if (chosen !== null && plan.cells[chosen]) {
    const { x, y } = plan.cells[chosen];
    pen.strokeStyle = colour("--text");
    pen.lineWidth = 2;
    pen.strokeRect(x - 1, y - 1, plan.block.w - 2, plan.block.h - 2);
  }
}

export const wordsOf = (node) => {
  const counts = {};
  for (const letter of node.letters) counts[letter] = (counts[letter] || 0) + 1;
  const parts = Object.entries(counts).map(([letter, n]) => `${n} ${DEVICE_STATES[letter][0]}`);
  return `${node.node_id}, pool ${node.pool}: ${parts.join(", ") || "no devices"}`;
};

export function FleetMap({ nodes }) {
  const canvas = useRef(null);
  const [box, width] = useWidth();
  const [chosen, setChosen] = useState(null);
  const theme = useTheme();
  const plan = useMemo(() => layout(nodes, width || 300), [nodes, width]);
  useEffect(() => { if (width) draw(canvas.current, plan, width, chosen); }, [plan, width, chosen, theme]);
  const under = (event) => {
    const { left, top } = canvas.current.getBoundingClientRect();
    const [x, y] = [event.clientX - left, event.clientY - top];
    const found = plan.cells.findIndex((cell) => x >= cell.x && x < cell.x + plan.block.w && y >= cell.y && y < cell.y + plan.block.h);
    return found < 0 ? null : found;
  };
  const pressed = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: plan.perRow, ArrowUp: -plan.perRow }[event.key];
    if (step) {
      event.preventDefault();
      setChosen((at) => Math.max(0, Math.min(plan.cells.length - 1, at === null ? 0 : at + step)));
    } else if (event.key === "Enter" && chosen !== null) go(`/nodes/${encodeURIComponent(plan.cells[chosen].node.node_id)}`);
  };
  const open = (event) => {
    const found = under(event);
    if (found !== null) go(`/nodes/${encodeURIComponent(plan.cells[found].node.node_id)}`);
  };
  const devices = nodes.reduce((sum, node) => sum + node.letters.length, 0);
  return html`<div ref=${box}>
    <div class="map-scroll"><canvas class="map" ref=${canvas} tabindex="0" role="application" aria-roledescription="map of devices"
      aria-label=${`${plural(devices, "device")} on ${plural(nodes.length, "node")}. Arrows choose a node, Enter opens it.`}
      onMouseMove=${(event) => setChosen(under(event))} onMouseLeave=${() => setChosen(null)} onClick=${open} onKeyDown=${pressed}></canvas></div>
    <p class="tip" role="status">${chosen !== null && plan.cells[chosen] ? wordsOf(plan.cells[chosen].node) : "Point at a node, or use the arrow keys, to see what is on it."}</p>
  </div>`;
}

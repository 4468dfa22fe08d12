// A list of any length of which only the rows in sight are in the document. Keys: arrows, page, home, end; Enter opens.
// It scrolls with the page, or (`inner`, as logs that stay at their end) in a box of its own.
import { html, useEffect, useRef, useState } from "../kit.js";

const SPARE_ROWS = 8;
// The page's head and the names of columns stay above what scrolls.
const COVERED_PX = 100;

// rows: what to show; height_px of one row; draw(row, index) its content; open(row). `end`: stays at the end as rows come (until scrolled up).
export function Rows({ rows, height_px, draw, open, label, look = "", rowLook = "", end = false, inner = false, keyOf }) {
  const box = useRef(null);
  const [top, setTop] = useState(0);
  const [size, setSize] = useState(800);
  const [at, setAt] = useState(-1);
  const follows = useRef(end);
  useEffect(() => {
    if (inner) return undefined;
    let frame = 0;
    const moved = () => {
      if (!frame) frame = requestAnimationFrame(() => {
        frame = 0;
        if (!box.current) return;
        setTop(Math.max(0, -box.current.getBoundingClientRect().top));
        setSize(innerHeight);
      });
    };
    moved();
    addEventListener("scroll", moved, { passive: true });
    addEventListener("resize", moved);
    return () => { cancelAnimationFrame(frame); removeEventListener("scroll", moved); removeEventListener("resize", moved); };
  }, [inner]);
  useEffect(() => {
    if (!inner) return undefined;
    const watcher = new ResizeObserver(([entry]) => setSize(entry.contentRect.height));
    watcher.observe(box.current);
    return () => watcher.disconnect();
  }, [inner]);
  useEffect(() => {
    if (end && follows.current) box.current.scrollTop = box.current.scrollHeight;
  }, [rows.length, end]);
  const scrolled = () => {
    if (!inner) return;
    const element = box.current;
    follows.current = element.scrollTop + element.clientHeight >= element.scrollHeight - height_px;
    setTop(element.scrollTop);
  };
  const move = (to) => {
    const next = Math.max(0, Math.min(rows.length - 1, to));
    setAt(next);
    const [low, high] = [next * height_px, (next + 1) * height_px];
    if (!inner) {
      const begin = box.current.getBoundingClientRect().top;
      if (begin + low < COVERED_PX) scrollBy(0, begin + low - COVERED_PX);
      else if (begin + high > innerHeight) scrollBy(0, begin + high - innerHeight);
      return;
    }
    if (low < box.current.scrollTop) box.current.scrollTop = low;
    else if (high > box.current.scrollTop + box.current.clientHeight) box.current.scrollTop = high - box.current.clientHeight;
  };
  const pressed = (event) => {
    if (event.target !== box.current && event.key !== "Escape") return;
    const page = Math.max(1, Math.floor(size / height_px) - 1);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + page, PageUp: at - page, Home: 0, End: rows.length - 1 }[event.key];
    if (to !== undefined) { event.preventDefault(); move(to); }
    else if (event.key === "Enter" && open && rows[at]) open(rows[at]);
  };
  const first = Math.max(0, Math.floor(top / height_px) - SPARE_ROWS);
  const last = Math.min(rows.length, Math.ceil((top + size) / height_px) + SPARE_ROWS);
  const sight = [];
  for (let i = first; i < last; i += 1) {
    sight.push(html`<div key=${keyOf ? keyOf(rows[i]) : i} class=${`${rowLook}${i === at ? " at" : ""}`} role="listitem" aria-posinset=${i + 1}
      aria-setsize=${rows.length} style=${{ position: "absolute", top: `${i * height_px}px`, left: 0, right: 0, height: `${height_px}px` }}>${draw(rows[i], i)}</div>`);
  }
  return html`<div ref=${box} class=${look} tabindex="0" role="list" aria-label=${label} onScroll=${scrolled} onKeyDown=${pressed}>
    <div role="presentation" style=${{ height: `${rows.length * height_px}px`, position: "relative" }}>${sight}</div></div>`;
}

// Hooks: data of a route (asked again on a clock while the page is looked at), a live stream, a time that goes on.
import { useCallback, useEffect, useRef, useState } from "./kit.js";
import { call } from "./api.js";
import { follow } from "./live.js";
import { onTheme } from "./theme.js";

const BEHIND_MS = 2000;
const AHEAD_PX = "400px";

// {data, error, reload}: data stays on screen while it is asked again; path null asks nothing. asks: (path, signal) => a promise of the data.
export function useAsked(path, asks, { every_ms = 0 } = {}) {
  const [state, setState] = useState({ data: null, error: null, path: null });
  const again = useRef(() => {});
  useEffect(() => {
    if (!path) return undefined;
    const ending = new AbortController();
    let timer = 0;
    let busy = false;
    let anew = false;
    const ask = async () => {
      busy = true;
      anew = false;
      try {
        if (!document.hidden || !timer) setState({ data: await asks(path, ending.signal), error: null, path });
      } catch (error) {
        if (error.name === "AbortError") return;
        setState((before) => ({ data: before.path === path ? before.data : null, error, path }));
      }
      busy = false;
      if (ending.signal.aborted) return;
      if (anew) ask();
      else if (every_ms) timer = setTimeout(ask, every_ms);
    };
    // An answer that is under way is waited for: to cancel it and ask at once would cost the gateway two.
    again.current = () => {
      clearTimeout(timer);
      if (busy) anew = true;
      else ask();
    };
    ask();
    return () => { ending.abort(); clearTimeout(timer); again.current = () => {}; };
  }, [path, every_ms]);
  const reload = useCallback(() => again.current(), []);
  return { data: state.path === path ? state.data : null, error: state.path === path ? state.error : null, reload };
}

export const useData = (path, options) => useAsked(path, (at, signal) => call(at, { signal }), options);

// Asks again when the stream brought something new (`what` changed): at once, and once more when the tables have had the time to take it in.
export function useAnew(found, what) {
  const first = useRef(true);
  useEffect(() => {
    if (!first.current) found.reload();
    first.current = false;
    const timer = setTimeout(found.reload, BEHIND_MS);
    return () => clearTimeout(timer);
  }, what);
}

// Follows a stream for as long as the component lives; returns its state in a word.
export function useLive(path, on) {
  const [state, setState] = useState("waiting");
  const handlers = useRef(on);
  handlers.current = on;
  useEffect(() => {
    if (!path) return undefined;
    const names = Object.keys(handlers.current);
    return follow(path, Object.fromEntries(names.map((name) => [name, (data) => handlers.current[name](data)])), setState);
  }, [path]);
  return state;
}

// Counts up once in `every_ms`, so that "3 minutes ago" stays true.
export function useClock(every_ms = 1000) {
  const [now_ms, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => { if (!document.hidden) setNow(Date.now()); }, every_ms);
    return () => clearInterval(timer);
  }, [every_ms]);
  return now_ms;
}

export function useTheme() {
  const [round, setRound] = useState(0);
  useEffect(() => onTheme(() => setRound((n) => n + 1)), []);
  return round;
}

// The width of an element in CSS pixels, as it changes.
export function useWidth() {
  const ref = useRef(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    if (!ref.current) return undefined;
    const watcher = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    watcher.observe(ref.current);
    return () => watcher.disconnect();
  }, []);
  return [ref, width];
}

// Whether an element is near what is looked at, or was once: what is far below is neither asked for nor drawn.
export function useNear() {
  const ref = useRef(null);
  const [near, setNear] = useState(false);
  useEffect(() => {
    if (near) return undefined;
    const watcher = new IntersectionObserver((seen) => { if (seen.some((one) => one.isIntersecting)) setNear(true); }, { rootMargin: AHEAD_PX });
    watcher.observe(ref.current);
    return () => watcher.disconnect();
  }, [near]);
  return [ref, near];
}

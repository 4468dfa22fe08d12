// Which view an address shows; links move without loading the page anew.
import { useEffect, useState } from "./kit.js";

const ROUTES = [
  [/^\/$/, "overview"], [/^\/jobs$/, "jobs"], [/^\/jobs\/([^/]+)$/, "job"], [/^\/compare$/, "compare"], [/^\/nodes$/, "nodes"],
  [/^\/nodes\/([^/]+)$/, "node"], [/^\/datasets$/, "datasets"], [/^\/datasets\/([^/]+)$/, "dataset"], [/^\/models$/, "models"], [/^\/models\/([^/]+)$/, "model"],
  [/^\/studies$/, "studies"], [/^\/studies\/([^/]+)$/, "study"],
  [/^\/utilization$/, "utilization"], [/^\/sql$/, "sql"],
  [/^\/reports$/, "reports"], [/^\/reports\/([^/]+\/[^/]+)$/, "report"], [/^\/shared$/, "shared"],
];

export function match(pathname) {
  for (const [pattern, name] of ROUTES) {
    const found = pattern.exec(pathname);
    if (found) return { name, id: found[1] === undefined ? null : decoded(found[1]) };
  }
  return { name: "missing", id: null };
}

// What somebody typed may be no escape of anything: it is the name as it stands then.
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

// The links that MLflow's client prints for its runs and experiments, as addresses of these pages.
export function fromMlflow() {
  const found = /^#\/experiments(?:\/[^/]+(?:\/runs\/([^/?]+))?)?/.exec(location.hash);
  if (location.pathname === "/" && found) go(found[1] ? `/jobs/${found[1]}` : "/jobs", { replace: true });
}

const here = () => ({ ...match(location.pathname), path: location.pathname, query: new URLSearchParams(location.search) });

export function go(address, { replace = false } = {}) {
  if (address === location.pathname + location.search) return;
  history[replace ? "replaceState" : "pushState"](null, "", address);
  dispatchEvent(new Event("trainhouse:moved"));
}

// Changes the query of the page in place: {name: value or null}.
export function ask(changes) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    query.delete(name);
    for (const one of Array.isArray(value) ? value : [value]) if (one !== null && one !== undefined && one !== "") query.append(name, one);
  }
  const text = query.toString();
  go(location.pathname + (text ? `?${text}` : ""), { replace: true });
}

export function useRoute() {
  const [route, setRoute] = useState(here);
  useEffect(() => {
    const moved = () => setRoute(here());
    const clicked = (event) => {
      const link = event.target.closest?.("a[href]");
      if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
      if (link.target || link.origin !== location.origin || link.hasAttribute("download") || match(link.pathname).name === "missing") return;
      if (link.hash && link.pathname === location.pathname) return;
      event.preventDefault();
      go(link.pathname + link.search);
    };
    addEventListener("trainhouse:moved", moved);
    addEventListener("popstate", moved);
    document.addEventListener("click", clicked);
    return () => {
      removeEventListener("trainhouse:moved", moved);
      removeEventListener("popstate", moved);
      document.removeEventListener("click", clicked);
    };
  }, []);
  return route;
}

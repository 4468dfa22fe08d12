// The frame of every page: navigation, who is signed in, theme, help, the view of the address.
import { html, useCallback, useEffect, useRef, useState } from "./kit.js";
import { call, onUnauthorized } from "./api.js";
import { listen, PLACES } from "./keys.js";
import { useRoute } from "./router.js";
import { isDark, setTheme } from "./theme.js";
import { useTheme } from "./use.js";
import { SignIn } from "./signin.js";
import { Empty, Failed, Loading } from "./parts/notice.js";

const SECTION = { job: "jobs", node: "nodes", dataset: "datasets", model: "models", study: "studies", report: "reports" };

export function Frame() {
  const route = useRoute();
  const [who, setWho] = useState(undefined);
  const [failed, setFailed] = useState(null);
  const help = useRef(null);
  useTheme();
  const enter = useCallback(async () => {
    setFailed(null);
    try {
      setWho(await call("/v1/whoami"));
    } catch (error) {
      if (error.status === 401) setWho(null);
      else setFailed(error);
    }
  }, []);
  useEffect(() => { enter(); return onUnauthorized(() => setWho(null)); }, []);
  useEffect(() => listen({ help: () => help.current?.showModal(), theme: () => setTheme(!isDark()) }), []);
  const leave = async () => {
    try { await call("/v1/session", { method: "DELETE" }); } catch { /* the cookie is gone or the gateway is; both need a new sign-in */ }
    setWho(null);
  };
  return html`
    <a class="skip" href="#main" onClick=${skip}>Skip to the content</a>
    <header class="head">
      <a class="brand" href="/"><img src="/static/icon.svg" alt="" />Trainhouse</a>
      ${!who?.run && html`<${Navigation} name=${SECTION[route.name] || route.name} />`}
      <div class="tools">
        ${who && html`<span class="who" title=${who.run ? `Shared by ${who.sub}` : `Signed in as ${who.sub}`}>${who.run ? `shared by ${who.sub}` : who.sub}</span>`}
        <button class="plain" onClick=${() => setTheme(!isDark())} aria-label=${isDark() ? "Use light colours" : "Use dark colours"}
          title="Light or dark (t)">${isDark() ? "☀" : "☾"}</button>
        <button class="plain" onClick=${() => help.current.showModal()} aria-label="Help: keys" title="Keys (?)">?</button>
        ${who && html`<button class="plain" onClick=${leave}>${who.run ? "Close" : "Sign out"}</button>`}
      </div>
    </header>
    <main id="main" tabindex="-1">
      ${failed ? html`<${Failed} error=${failed} again=${enter} />`
        : who === undefined ? html`<${Loading} what="your session" />`
        : route.name === "shared" ? html`<${View} route=${route} who=${who} />`
        : who === null ? html`<${SignIn} entered=${enter} />`
        : who.run && (route.name !== "job" || route.id !== who.run) ? html`<${Empty}>This link opens one run, and nothing else. <a href=${`/jobs/${encodeURIComponent(who.run)}`}>Open the run</a><//>`
        : html`<${View} route=${route} who=${who} />`}
    </main>
    <${Help} dialog=${help} />`;
}

function skip(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

function Navigation({ name }) {
  return html`<nav class="nav" aria-label="Pages">${PLACES.map(([, path, title]) => html`
    <a href=${path} aria-current=${(path.slice(1) || "overview") === name ? "page" : null}>${title}</a>`)}</nav>`;
}

// The module at a path. Tries again when it cannot be fetched: a change of the machine's networks ends all requests that are under way.
async function loaded(path) {
  for (const pauseMs of [200, 1000, 3000]) {
    try {
      return await import(path);
    } catch {
      await new Promise((goOn) => setTimeout(goOn, pauseMs));
    }
  }
  return import(path);
}

// Loads a view's module when it is first shown; moves the reader to the top of it.
function View({ route, who }) {
  const [module, setModule] = useState({ name: null, view: null, error: null });
  useEffect(() => {
    let wanted = true;
    loaded(`./views/${route.name}.js`).then(
      (found) => wanted && setModule({ name: route.name, view: found.default, error: null }),
      () => wanted && setModule({ name: route.name, view: null, error: new Error("This page could not be loaded: the gateway does not answer.") }),
    );
    return () => { wanted = false; };
  }, [route.name]);
  useEffect(() => { scrollTo(0, 0); }, [route.path]);
  if (module.error && module.name === route.name) return html`<${Failed} error=${module.error} again=${() => location.reload()} />`;
  if (module.name !== route.name) return html`<${Loading} what="the page" />`;
  return html`<${module.view} key=${route.path} id=${route.id} query=${route.query} who=${who} />`;
}

function Help({ dialog }) {
  return html`<dialog ref=${dialog} aria-labelledby="help-title">
    <h2 id="help-title">Keys</h2>
    <dl class="keys">
      ${PLACES.map(([key, , title]) => html`<dt><kbd>g</kbd> <kbd>${key}</kbd></dt><dd>${title}</dd>`)}
      <dt><kbd>/</kbd></dt><dd>Search or filter on this page</dd>
      <dt><kbd>↑</kbd> <kbd>↓</kbd> <kbd>Enter</kbd></dt><dd>Move in a list or map, open what is chosen</dd>
      <dt><kbd>t</kbd></dt><dd>Light or dark</dd>
      <dt><kbd>?</kbd></dt><dd>This help</dd>
      <dt><kbd>Esc</kbd></dt><dd>Close</dd>
    </dl>
    <form method="dialog" style="margin-top:14px"><button class="main">Close</button></form>
  </dialog>`;
}

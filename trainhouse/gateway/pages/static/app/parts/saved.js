// Views of a page by name: what its address says in some fields, kept by this browser; a link carries one to others.
import { html, useState } from "../kit.js";
import { Menu } from "./menu.js";
import { go } from "../router.js";

const KEY = (place) => `trainhouse:views:${place}`;
function stored(place) {
  try { return JSON.parse(localStorage.getItem(KEY(place))) || []; } catch { return []; }
}

export function Saved({ place, fields, query }) {
  const [views, setViews] = useState(() => stored(place));
  const [copied, setCopied] = useState(false);
  const keep = (next) => {
    setViews(next);
    try { localStorage.setItem(KEY(place), JSON.stringify(next)); } catch { /* storage may be off: the address has the view all the same */ }
  };
  const own = () => fields.flatMap((field) => query.getAll(field).map((value) => [field, value]));
  const show = (chosen) => {
    const next = new URLSearchParams([...query].filter(([field]) => !fields.includes(field)).concat(chosen));
    go(`${location.pathname}${next.size ? `?${next}` : ""}`, { replace: true });
  };
  const save = (event) => {
    event.preventDefault();
    const name = event.target.elements.name.value.trim();
    if (name) keep([...views.filter((one) => one.name !== name), { name, fields: own() }].sort((a, b) => (a.name < b.name ? -1 : 1)));
    event.target.reset();
  };
  const copy = async () => {
    try { await navigator.clipboard.writeText(location.href); setCopied(true); } catch { setCopied(false); }
  };
  return html`<${Menu} title="Views">
    ${views.length ? html`<ul class="list">${views.map((one) => html`<li class="row" key=${one.name}><button class="plain" onClick=${() => show(one.fields)}>${one.name}</button>
      <button class="plain" aria-label=${`Remove the view ${one.name}`} onClick=${() => keep(views.filter((other) => other !== one))}>Remove</button></li>`)}</ul>`
      : html`<p class="sub">No view is saved in this browser yet.</p>`}
    <form class="row" onSubmit=${save}><label class="grow"><span class="hidden">Name of the view</span><input name="name" placeholder="Name" maxlength="60" style="width:100%" /></label><button>Save this view</button></form>
    <div class="row" style="margin-top:8px"><button onClick=${copy}>Copy link</button><button onClick=${() => show([])}>Default view</button>
      <span class="sub" role="status">${copied ? "Copied." : ""}</span></div><//>`;
}

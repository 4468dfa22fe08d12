// Views of a page by name: what its address says in some fields. Kept by this browser, or by a project, where all its members have them; a link
// carries one to others too. Views of before, which a browser keeps, are offered to a project.
import { html, useState } from "../kit.js";
import { call, url } from "../api.js";
import { Menu } from "./menu.js";
import { go } from "../router.js";
import { useAsked } from "../use.js";
import { useAll } from "../all.js";

const KEY = (place) => `trainhouse:views:${place}`;
const MOST_NAME = 60;
function stored(place) {
  try { return JSON.parse(localStorage.getItem(KEY(place))) || []; } catch { return []; }
}

// A project has one name for a view of each page, so that names of two pages do not meet.
export const nameOf = (place, name) => `${place}: ${name}`;

// Views of one page among those of projects: [{name, fields, project, version, by}]. What is no such view is passed over. Pure.
export function ofPlace(items, place, fields) {
  return items.flatMap((item) => {
    if (!item.name.startsWith(`${place}: `)) return [];
    let content;
    try { content = JSON.parse(item.content); } catch { return []; }
    if (!content || !Array.isArray(content.fields)) return [];
    const own = content.fields.filter((pair) => Array.isArray(pair) && pair.length === 2 && fields.includes(pair[0]) && typeof pair[1] === "string");
    return [{ name: item.name.slice(place.length + 2), fields: own, project: item.project, version: item.version, by: item.saved_by }];
  }).sort((a, b) => (a.project === b.project ? (a.name < b.name ? -1 : 1) : a.project < b.project ? -1 : 1));
}

async function projectsOf(_, signal) {
  const who = await call("/v1/whoami", { signal });
  if (who.run || !who.roles.some((role) => role !== "viewer")) return [];
  if (!who.projects.includes("*")) return who.projects;
  const declared = await call("/v1/projects", { signal }).then((found) => found.items.map((one) => one.name || one.project?.name), () => []);
  return [...new Set(["default", ...declared.filter((name) => name && name !== "*")])];
}

export function Saved({ place, fields, query }) {
  const [views, setViews] = useState(() => stored(place));
  const [open, setOpen] = useState(false);
  const [word, setWord] = useState("");
  const shared = useAll(open ? "/v1/views" : null);
  const projects = useAsked(open ? "projects" : null, projectsOf).data || [];
  const ofProjects = ofPlace(shared.data || [], place, fields);
  const keep = (next) => {
    setViews(next);
    try { localStorage.setItem(KEY(place), JSON.stringify(next)); } catch { /* storage may be off: the address has the view all the same */ }
  };
  const own = () => fields.flatMap((field) => query.getAll(field).map((value) => [field, value]));
  const show = (chosen) => {
    const next = new URLSearchParams([...query].filter(([field]) => !fields.includes(field)).concat(chosen));
    go(`${location.pathname}${next.size ? `?${next}` : ""}`, { replace: true });
  };
  const pathOf = (project, name) => `/v1/views/${encodeURIComponent(project)}/${encodeURIComponent(nameOf(place, name))}`;
  const done = async (does, said) => {
    setWord("Saving …");
    try { await does(); setWord(said); } catch (error) { setWord(error.message); }
    shared.reload();
  };
  const share = (project, name, chosen) => {
    const known = ofProjects.find((one) => one.project === project && one.name === name);
    return done(() => call(pathOf(project, name), { method: "PUT", body: { content: JSON.stringify({ place, fields: chosen }), replaces: known ? known.version : 0 } }), `Saved in project ${project}.`);
  };
  const remove = (one) => done(() => call(url(pathOf(one.project, one.name), { replaces: one.version }), { method: "DELETE" }), `Removed from project ${one.project}.`);
  const save = (event) => {
    event.preventDefault();
    const { name: field, where } = event.target.elements;
    const name = field.value.trim().normalize("NFC");
    if (!name) return;
    if (where?.value) share(where.value, name, own());
    else keep([...views.filter((one) => one.name !== name), { name, fields: own() }].sort((a, b) => (a.name < b.name ? -1 : 1)));
    field.value = "";
  };
  const copy = async () => {
    try { await navigator.clipboard.writeText(location.href); setWord("Copied."); } catch { setWord(""); }
  };
  return html`<${Menu} title="Views" opened=${() => setOpen(true)}>
    ${views.length ? html`<ul class="list">${views.map((one) => html`<li class="row" key=${one.name}><button class="plain" onClick=${() => show(one.fields)}>${one.name}</button>
      ${projects.length > 0 && html`<button class="plain" aria-label=${`Share the view ${one.name} with project ${projects[0]}`} title=${`Save it in project ${projects[0]}`} onClick=${() => share(projects[0], one.name, one.fields)}>Share</button>`}
      <button class="plain" aria-label=${`Remove the view ${one.name}`} onClick=${() => keep(views.filter((other) => other !== one))}>Remove</button></li>`)}</ul>`
      : html`<p class="sub">No view is saved in this browser yet.</p>`}
    ${ofProjects.length > 0 && html`<h3>Of projects</h3><ul class="list">${ofProjects.map((one) => html`<li class="row" key=${`${one.project} ${one.name}`}><button class="plain" title=${`Saved by ${one.by}`} onClick=${() => show(one.fields)}>${one.name}</button>
      <span class="tag">${one.project}</span>${projects.includes(one.project) && html`<button class="plain" aria-label=${`Remove the view ${one.name} of project ${one.project}`} onClick=${() => remove(one)}>Remove</button>`}</li>`)}</ul>`}
    ${shared.error && html`<p class="sub">Views of projects: ${shared.error.message}</p>`}
    <form class="row" onSubmit=${save}><label class="grow"><span class="hidden">Name of the view</span><input name="name" placeholder="Name" maxlength=${MOST_NAME} style="width:100%" /></label>
      ${projects.length > 0 && html`<label class="inline">in<select name="where" aria-label="Where the view is saved"><option value="">this browser</option>${projects.map((name) => html`<option value=${name}>project ${name}</option>`)}</select></label>`}
      <button>Save this view</button></form>
    <div class="row" style="margin-top:8px"><button onClick=${copy}>Copy link</button><button onClick=${() => show([])}>Default view</button>
      <span class="sub" role="status">${word}</span></div><//>`;
}

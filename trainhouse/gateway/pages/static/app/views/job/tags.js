// Tags and note of a job, and a form to change them. What is written shows at once; the tables have it a moment later.
import { html, useEffect, useState } from "../../kit.js";
import { call, url } from "../../api.js";
import { isShown, MOST_KEY_CHARS, MOST_VALUE_CHARS, NOTE, parseTag, tagWord } from "../../tags.js";
import { mayWrite } from "../../roles.js";
import { useData } from "../../use.js";

export function Tags({ path, who }) {
  const found = useData(`${path}/tags`);
  // The answer that came last: of the page's own write, or of the tables.
  const [tags, setTags] = useState(null);
  const [open, setOpen] = useState("");
  const [word, setWord] = useState("");
  const [busy, setBusy] = useState(false);
  useEffect(() => { if (found.data) setTags(Object.fromEntries(found.data.items.map((tag) => [tag.key, tag.value]))); }, [found.data]);
  const send = async (set, remove = []) => {
    setBusy(true);
    try {
      const made = await call(`${path}/tags`, { method: "POST", body: { set, remove } });
      setTags((before) => Object.fromEntries(Object.entries({ ...before, ...set }).filter(([key]) => !remove.includes(key))));
      setWord("");
      setOpen("");
      call(url(`${path}/tags`, { after: made.after })).then((d) => setTags(Object.fromEntries(d.items.map((tag) => [tag.key, tag.value]))), () => {});
    } catch (error) { setWord(error.message); }
    setBusy(false);
  };
  if (!tags) return found.error ? html`<p class="sub" role="status">Tags: ${found.error.message}</p>` : html`<div class="tags-line"></div>`;
  const shown = Object.keys(tags).filter(isShown).sort();
  const may = mayWrite(who);
  const note = tags[NOTE] || "";
  return html`<div class="tags-line" role="group" aria-label="Tags">${shown.map((key) => html`<span class="tag" key=${key}>${tagWord(key, tags[key])}${may && html`
      <button class="plain" disabled=${busy} aria-label=${`Remove the tag ${key}`} title="Remove" onClick=${() => send({}, [key])}>×</button>`}</span>`)}
      ${may && html`<button class="plain" aria-expanded=${open === "tag" ? "true" : "false"} onClick=${() => setOpen(open === "tag" ? "" : "tag")}>Add a tag</button>
        <button class="plain" aria-expanded=${open === "note" ? "true" : "false"} onClick=${() => setOpen(open === "note" ? "" : "note")}>${note ? "Edit the note" : "Write a note"}</button>`}</div>
    ${open === "tag" && html`<${NewTag} send=${send} busy=${busy} setWord=${setWord} />`}
    ${open === "note" ? html`<${Note} note=${note} send=${send} busy=${busy} close=${() => setOpen("")} />` : note && html`<p class="note">${note}</p>`}
    ${word && html`<p class="notice bad" role="alert" style="margin-bottom:10px">${word}</p>`}`;
}

function NewTag({ send, busy, setWord }) {
  const add = (event) => {
    event.preventDefault();
    const tag = parseTag(event.target.elements.tag.value);
    if (!tag) setWord("A tag has a name: write key=value, or key.");
    else send({ [tag[0]]: tag[1] });
  };
  return html`<form class="row" style="margin-bottom:10px" onSubmit=${add}><label class="inline">Tag<input name="tag" placeholder="key=value" required maxlength=${MOST_KEY_CHARS + MOST_VALUE_CHARS} autofocus /></label>
    <button disabled=${busy}>Add</button></form>`;
}

function Note({ note, send, busy, close }) {
  const keep = (event) => {
    event.preventDefault();
    const text = event.target.elements.note.value.trim();
    if (text) send({ [NOTE]: text });
    else if (note) send({}, [NOTE]);
    else close();
  };
  return html`<form style="margin-bottom:10px" onSubmit=${keep}><label class="field">Note<textarea name="note" rows="4" maxlength=${MOST_VALUE_CHARS}>${note}</textarea></label>
    <div class="row" style="margin-top:6px"><button class="main" disabled=${busy}>Save</button><button type="button" onClick=${close}>Leave it</button></div></form>`;
}

// Links to this run's page for people without an account: make one, see those that count, revoke them.
import { html, useState } from "../../kit.js";
import { call } from "../../api.js";
import { Menu } from "../../parts/menu.js";
import { Shown } from "../../parts/notice.js";
import { moment } from "../../format.js";
import { useAnew, useData } from "../../use.js";

const DAYS = [[1, "1 day"], [7, "7 days"], [30, "30 days"]];

export function Share({ job, path, who }) {
  const [open, setOpen] = useState(false);
  const [made, setMade] = useState(null);
  const [word, setWord] = useState("");
  const [round, setRound] = useState(0);
  const found = useData(open ? `${path}/links` : null);
  useAnew(found, [round]);
  if (who.run || !who.roles.some((role) => role !== "viewer")) return null;
  const done = async (does) => {
    setWord("");
    try { await does(); setRound((n) => n + 1); } catch (error) { setWord(error.message); }
  };
  const make = (event) => {
    event.preventDefault();
    const days = Number(event.target.elements.days.value);
    done(async () => setMade(await call(`${path}/links`, { method: "POST", body: { days } })));
  };
  const revoke = (id) => done(async () => {
    await call(`${path}/links/${id}`, { method: "DELETE" });
    if (made?.link_id === id) setMade(null);
  });
  const copy = async () => {
    try { await navigator.clipboard.writeText(made.url); setWord("Copied."); } catch { setWord("Select the link and copy it."); }
  };
  return html`<${Menu} title="Share" opened=${() => setOpen(true)} label="Links to this run">
    <p class="sub">A link opens this run's page to read, without an account: its metrics, logs and config, and nothing else.</p>
    <form class="row" onSubmit=${make}><label class="inline">Ends after<select name="days">${DAYS.map(([days, name]) => html`<option value=${days} selected=${days === 7}>${name}</option>`)}</select></label><button>Make a link</button></form>
    ${made && html`<div class="share-link"><input readonly aria-label="The link" value=${made.url} onFocus=${(event) => event.target.select()} /><button onClick=${copy}>Copy</button></div>
      <p class="sub">Shown once. Give it only to those who may read this run. It ends with this session at the latest; <code>trainhouse report link</code> makes one that ends with your token.</p>`}
    <p class="sub" role="status">${word}</p>
    ${open && html`<${Shown} of=${found} what="links" empty=${(d) => !d.items.length} nothing="No link to this run counts.">${(d) => html`<ul class="list">${d.items.map((one) => html`<li key=${one.link_id} class="row">
      <span>by ${one.sub}, until ${moment(one.expires_at)}</span><button class="danger" aria-label=${`Revoke the link of ${one.sub} until ${moment(one.expires_at)}`} onClick=${() => revoke(one.link_id)}>Revoke</button></li>`)}</ul>`}<//>`}<//>`;
}

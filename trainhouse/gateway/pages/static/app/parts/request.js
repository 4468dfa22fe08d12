// A request that asks once more before it is sent, with a reason. The gateway says which of them the reader may make.
import { html, useEffect, useRef, useState } from "../kit.js";

const MOST_REASON_CHARS = 1024;

// yes: word of the button that sends. send(reason): a promise of what happened, in words. What is asked and sent is that of the moment at which the form opened: what
// the page learns while it is open (another champion, other evidence) was not looked at, and the registry refuses it.
export function Request({ title, question, yes, danger = false, needsReason = false, send }) {
  const [open, setOpen] = useState(false);
  const [busy, setBusy] = useState(false);
  const [word, setWord] = useState(null);
  const first = useRef(null);
  const opener = useRef(null);
  const was = useRef(false);
  const asked = useRef(null);
  useEffect(() => {
    if (open) first.current?.focus();
    else if (was.current) opener.current?.focus();
    was.current = open;
  }, [open]);
  const sent = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      setWord({ text: await asked.current.send(event.target.elements.reason.value.trim()) });
      setOpen(false);
    } catch (error) { setWord({ bad: true, text: error.message }); }
    setBusy(false);
  };
  return html`<span class="request">
    ${!open && html`<button ref=${opener} class=${danger ? "danger" : ""} onClick=${() => { asked.current = { question, send }; setWord(null); setOpen(true); }}>${title}</button>`}
    ${open && html`<form class="row end" aria-label=${asked.current.question} onSubmit=${sent} onKeyDown=${(event) => event.key === "Escape" && setOpen(false)}>
      <label class="field grow">${asked.current.question} Reason${needsReason ? "" : " (optional)"}<input ref=${first} name="reason" required=${needsReason} maxlength=${MOST_REASON_CHARS} /></label>
      <button class=${danger ? "danger" : "main"} disabled=${busy}>${yes}</button><button type="button" onClick=${() => setOpen(false)}>Leave it</button></form>`}
    ${word && html`<span class=${word.bad ? "notice bad" : "sub"} role=${word.bad ? "alert" : "status"}>${word.text}</span>`}</span>`;
}

// Requests about a model: each asks once more before it is sent, with a reason where one is needed. The gateway says which of them the reader may make.
import { html, useEffect, useRef, useState } from "../../kit.js";
import { call } from "../../api.js";
import { inProject, pathOf } from "../../model_words.js";

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

const post = (model, part, body) => call(pathOf(model.project, model.name, `/${part}`), { method: "POST", body });
const may = (model, word) => model.may.includes(word);

// All requests about one version. evidence: hash of what the reader looks at, which an approval rests on; absent while it is not known: there is nothing to approve.
export function VersionRequests({ model, version, evidence, changed }) {
  const name = `version ${version.version}`;
  const send = (part, body, done) => async (reason) => {
    const decided = await post(model, part, { version: String(version.version), reason, ...body });
    changed();
    return done(decided);
  };
  const against = { champion: model.champion?.version || 0 };
  const isChampion = version.stage === "champion";
  const goes = version.stage === "staging";
  const back = version.was_champion && !version.withdrawn && !isChampion && model.champion;
  return html`<div class="requests">
    ${may(model, "approve") && !version.withdrawn && html`
      ${evidence && html`<${Request} title="Approve" question=${`Approve ${name} on the evidence shown here?`} yes="Yes, approve it" send=${send("approve", { evidence }, (d) => `Approved by ${d.user}.`)} />`}
      <${Request} title="Reject" question=${`Reject ${name}?`} yes="Yes, reject it" danger send=${send("reject", {}, (d) => `Rejected by ${d.user}.`)} />`}
    ${may(model, "promote") && goes && html`<${Request} title="Promote" question=${`Make ${name} champion?`} yes="Yes, promote it" send=${send("promote", against, () => "It is champion now.")} />`}
    ${may(model, "emergency") && goes && html`<${Request} title="Promote as an emergency" question=${`Make ${name} champion without approvals? It raises an alert until another person reviews it.`} yes="Yes, promote it"
      danger needsReason send=${send("promote", { ...against, emergency: true }, () => "It is champion now, and waits for another person's review.")} />`}
    ${may(model, "rollback") && back && html`<${Request} title="Roll back to it" question=${`Make ${name} champion again?`} yes="Yes, roll back" danger needsReason
      send=${async (reason) => { await post(model, "rollback", { to: String(version.version), reason, ...against }); changed(); return "It is champion again."; }} />`}
    ${may(model, "archive") && goes && html`<${Request} title="Archive" question=${`Archive ${name}? Its approvals end, and it is not promoted any more.`} yes="Yes, archive it" danger send=${send("archive", {}, () => "It is archived.")} />`}
  </div>`;
}

export function RollBack({ model, changed }) {
  if (!may(model, "rollback") || !model.champion) return null;
  const send = async (reason) => {
    const decided = await post(model, "rollback", { reason, champion: model.champion.version });
    changed();
    return `Version ${decided.version} is champion again.`;
  };
  return html`<${Request} title="Roll back" question=${`Make the champion before version ${model.champion.version} champion again?`} yes="Yes, roll back" danger needsReason send=${send} />`;
}

// Promotions that skipped approvals, until another person has reviewed them.
export function Emergencies({ model, changed }) {
  return model.emergencies.map((one) => html`<div class="notice warn" style="margin-bottom:14px" key=${one.version}>
    <strong>Version ${one.version} (${one.semver}) was promoted as an emergency by ${one.promoted_by || "unknown"}, without approvals.</strong> Another person reviews it${may(model, "review") ? "." : html`: <code>trainhouse models review ${model.name} ${one.version}${inProject(model)}</code>`}
    ${may(model, "review") && html`<div style="margin-top:8px"><${Request} title="Review" question=${`Was the emergency promotion of version ${one.version} right?`} yes="It is reviewed"
      send=${async (reason) => { await post(model, "review", { version: String(one.version), reason }); changed(); return "Reviewed."; }} /></div>`}</div>`);
}

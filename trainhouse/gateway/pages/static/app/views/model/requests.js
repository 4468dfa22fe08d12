// Requests about a model. The gateway says which of them the reader may make.
import { html } from "../../kit.js";
import { call } from "../../api.js";
import { Request } from "../../parts/request.js";
import { inProject, pathOf } from "../../model_words.js";

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

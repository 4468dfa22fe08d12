// What is asked of a study as a whole: pause, resume, stop. The gateway says which of them the reader may ask for.
import { html } from "../../kit.js";
import { call } from "../../api.js";
import { Request } from "../../parts/request.js";
import { pathOf, studyState } from "../../study_words.js";

const ASKED = [
  ["pause", "Pause", "Pause the study? No more trials begin, and those that run go on.", "Yes, pause it", ["RUNNING"]],
  ["resume", "Resume", "Let the study go on?", "Yes, resume it", ["PAUSED"]],
  ["stop", "Stop", "Stop the study for good? Trials that run are cancelled.", "Yes, stop it", ["RUNNING", "PAUSED", "DRAINING"]],
];

export function Requests({ study, changed }) {
  const offered = ASKED.filter(([word, , , , states]) => study.may.includes(word) && states.includes(study.state));
  if (!offered.length) return null;
  const send = (word) => async (reason) => {
    const decided = await call(pathOf(study.project, study.study, `/${word}`), { method: "POST", body: { reason } });
    changed();
    return decided.state === "DRAINING" ? "It ends as soon as its last trials have ended." : `It is ${studyState(decided.state)[0]}.`;
  };
  return html`<div class="requests" style="margin:0 0 14px">${offered.map(([word, title, question, yes]) => html`
    <${Request} key=${word} title=${title} question=${question} yes=${yes} danger=${word === "stop"} send=${send(word)} />`)}</div>`;
}

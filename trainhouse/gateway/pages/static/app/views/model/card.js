// Text of people as Markdown, and a version's card, which is asked for when it is opened.
import { html, useMemo, useState } from "../../kit.js";
import { Card } from "../../parts/bits.js";
import { Markdown, tokensOf } from "../../parts/markdown.js";
import { Shown } from "../../parts/notice.js";
import { cardParts } from "../../model_words.js";
import { useData } from "../../use.js";

export function Notes({ text }) {
  const tokens = useMemo(() => tokensOf(text), [text]);
  return html`<${Markdown} tokens=${tokens} />`;
}

export function ModelCard({ path, version }) {
  const [open, setOpen] = useState(false);
  const found = useData(open ? path : null);
  return html`<${Card} title=${`Card of version ${version.version}`} push=${!open && html`<button onClick=${() => setOpen(true)}>Show the card</button>`}>
    ${open ? html`<${Shown} of=${found} what="the card">${(d) => html`<${Text} card=${d.card} />`}<//>` : html`<p class="sub" style="margin:0">From facts, in Hugging Face's format; <code>trainhouse models card</code> writes it to a file and keeps people's text.</p>`}<//>`;
}

function Text({ card }) {
  const { metadata, text } = cardParts(card);
  return html`${metadata && html`<details style="margin-bottom:10px"><summary>Metadata</summary><pre class="text" tabindex="0">${metadata}</pre></details>`}<${Notes} text=${text} />`;
}

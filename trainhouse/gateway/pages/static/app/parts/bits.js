// Small things of many pages: a state, a figure, a meter, the name of a live connection, a card.
import { html, useEffect, useState } from "../kit.js";
import { jobColour, jobWord, NODE_STATES } from "../states.js";

export const Pill = ({ word, token, square }) => html`<span class=${`pill${square ? " square" : ""}`} style=${{ "--dot": `var(${token})` }}>${word}</span>`;

export const JobState = ({ state }) => html`<${Pill} word=${jobWord(state)} token=${jobColour(state)} />`;

export function NodeState({ state, restriction }) {
  const [word, token] = NODE_STATES[state] || [String(state).toLowerCase(), "--s-unknown"];
  const closed = restriction && restriction !== "NONE";
  return html`<${Pill} word=${closed ? `${word}, ${restriction.toLowerCase()}` : word} token=${closed && state === "ALIVE" ? "--s-closed" : token} />`;
}

export const Meter = ({ part, label }) => html`<div class="meter" role="img" aria-label=${label}>
  <span style=${{ width: `${100 * Math.min(1, Math.max(0, part))}%` }}></span></div>`;

const LIVE = { live: ["on", "live"], waiting: ["off", "reconnecting"], refused: ["off", "not live"] };

export function Live({ state }) {
  const [look, word] = LIVE[state] || LIVE.waiting;
  return html`<span class=${`live ${look}`} role="status">${word}</span>`;
}

export const Figures = ({ items }) => html`<dl class="figures">${items.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;

export function Card({ title, width, push, children }) {
  return html`<section class=${`card ${width || ""}`}><div class="bar"><h2>${title}</h2>${push && html`<div class="push">${push}</div>`}</div>${children}</section>`;
}

// Draws what is large in a task of its own, after what stands before it.
export function Later({ children }) {
  const [on, setOn] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setOn(true));
    return () => clearTimeout(timer);
  }, []);
  return on ? children() : null;
}

export function useTitle(title) {
  useEffect(() => { document.title = `${title} · Trainhouse`; }, [title]);
}

// Markdown as text that people wrote, and nothing more: marked makes HTML of it, DOMPurify takes out what is no text.
// Holds: HTML in the text is shown as it was typed; no script, form, frame, style, id or name; an image is drawn only where its bytes are in the text (data:), every other one is a link
// to it; a link to another host says nothing of where it was followed from; a link to no address is its text; text that cannot be read as Markdown is shown as it is,
// and never keeps a page from being drawn. The page's Content-Security-Policy stays the second wall.
import { html, useEffect, useMemo, useRef } from "../kit.js";
import { Marked } from "../../vendor/marked/marked.js";
import purify from "../../vendor/dompurify/purify.js";

const TAGS = ["a", "b", "blockquote", "br", "code", "del", "dd", "dl", "dt", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "i", "img", "ins", "kbd", "li", "ol", "p", "pre",
  "s", "strong", "sub", "sup", "table", "tbody", "td", "th", "thead", "tr", "ul"];
const ATTRIBUTES = ["alt", "align", "href", "src", "start", "title"];
const LINKS = /^(?:https?:|mailto:|\/(?!\/)|#|\?|data:image\/(?:png|jpeg|gif|webp);base64,)/i;
const PICTURE = /^data:image\/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=\s]+$/i;

const MARKS = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
const escaped = (text) => text.replace(/[&<>"']/g, (mark) => MARKS[mark]);
const marked = new Marked({ gfm: true, async: false, renderer: {
  checkbox: ({ checked }) => (checked ? "☑ " : "☐ "), html: ({ text, block }) => (block ? `<p>${escaped(text)}</p>` : escaped(text)),
} });

// A token of ours, of text that is shown as it is.
const PLAIN = "plain";

// Tokens of a text without panels. marked goes down by recursion: text that is nested too deep for it is one token, of the text as it is. Pure.
export function tokensOf(text) {
  try {
    return marked.lexer(text);
  } catch {
    return Object.assign([{ type: PLAIN, raw: text }], { links: {} });
  }
}

// A report as parts in their order: {panel: text of a fence "panel"} and {tokens: Markdown between them}. Pure.
export function partsOf(text) {
  const parts = [];
  const tokens = tokensOf(text);
  for (const token of tokens) {
    if (token.type === "code" && (token.lang || "").trim().split(/\s/)[0] === "panel") parts.push({ panel: token.text });
    else if (parts.length && parts[parts.length - 1].tokens) parts[parts.length - 1].tokens.push(token);
    else parts.push({ tokens: Object.assign([token], { links: tokens.links }) });
  }
  return parts;
}

// Nodes of Markdown's tokens, safe to put into the page. Never throws: what cannot be drawn is there as it was typed.
export function nodesOf(tokens) {
  if (tokens.some((token) => token.type === PLAIN)) return asItIs(tokens);
  try {
    return drawn(tokens);
  } catch {
    return asItIs(tokens);
  }
}

function asItIs(tokens) {
  const text = Object.assign(document.createElement("pre"), { className: "text", tabIndex: 0, textContent: tokens.map((token) => token.raw).join("") });
  const nodes = document.createDocumentFragment();
  nodes.append(text);
  return nodes;
}

function drawn(tokens) {
  const found = purify.sanitize(marked.parser(tokens), {
    ALLOWED_TAGS: TAGS, ALLOWED_ATTR: ATTRIBUTES, ALLOWED_URI_REGEXP: LINKS, ADD_URI_SAFE_ATTR: ["align", "start"], ALLOW_DATA_ATTR: false, ALLOW_ARIA_ATTR: false, RETURN_DOM_FRAGMENT: true,
  });
  for (const image of found.querySelectorAll("img")) if (!PICTURE.test(image.getAttribute("src") || "")) image.replaceWith(...linked(image));
  for (const image of found.querySelectorAll("img:not([alt])")) image.setAttribute("alt", "");
  for (const link of found.querySelectorAll("a")) toOther(link);
  for (const heading of found.querySelectorAll("h1, h2, h3, h4, h5")) lower(heading);
  for (const table of found.querySelectorAll("table")) framed(table);
  for (const code of found.querySelectorAll("pre")) code.setAttribute("tabindex", "0");
  for (const column of found.querySelectorAll("th:empty")) column.replaceWith(Object.assign(document.createElement("td")));
  return found;
}

function linked(image) {
  const src = image.getAttribute("src") || "";
  const word = image.getAttribute("alt") || "image";
  if (!/^(https?:|\/(?!\/))/i.test(src) || !URL.canParse(src, location.href)) return [document.createTextNode(`[${word}]`)];
  const link = document.createElement("a");
  link.href = src;
  link.textContent = `${word} (image at ${new URL(src, location.href).host})`;
  // An image inside a link: a link in a link is none.
  return image.closest("a") ? [document.createTextNode(link.textContent)] : [link];
}

function toOther(link) {
  const href = link.getAttribute("href");
  if (!href || /^data:/i.test(href) || !URL.canParse(href, location.href)) return link.replaceWith(...link.childNodes);
  if (new URL(href, location.href).origin === location.origin) return undefined;
  link.setAttribute("rel", "noopener noreferrer nofollow");
  link.setAttribute("target", "_blank");
  return undefined;
}

// The page's own heading is the first: those of the text are below it.
function lower(heading) {
  const made = document.createElement(`h${Number(heading.tagName[1]) + 1}`);
  made.append(...heading.childNodes);
  heading.replaceWith(made);
}

function framed(table) {
  const frame = Object.assign(document.createElement("div"), { className: "scroll", tabIndex: 0 });
  frame.setAttribute("role", "region");
  frame.setAttribute("aria-label", "Table");
  table.replaceWith(frame);
  frame.append(table);
}

export function Markdown({ tokens }) {
  const box = useRef(null);
  const nodes = useMemo(() => nodesOf(tokens), [tokens]);
  useEffect(() => { box.current.replaceChildren(nodes); }, [nodes]);
  return html`<div class="markdown" ref=${box}></div>`;
}

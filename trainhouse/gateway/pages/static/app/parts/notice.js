// What stands where nothing can be shown: loading, empty, failed. Sentences that say what and what to do.
import { html } from "../kit.js";

export const Loading = ({ what }) => html`<p class="notice" role="status">Loading ${what} …</p>`;

export const Empty = ({ children }) => html`<p class="notice">${children}</p>`;

export function Failed({ error, again }) {
  return html`<p class="notice bad" role="alert">${error.message}${again && html`<button onClick=${again}>Try again</button>`}</p>`;
}

// Shows children(data), or why not yet. `empty` is asked whether data has nothing, and says so by `nothing`. Data of before stays with a word on the failure.
export function Shown({ of, what, empty, nothing, children }) {
  const { data, error, reload } = of;
  if (data === null) return error ? html`<${Failed} error=${error} again=${reload} />` : html`<${Loading} what=${what} />`;
  return html`${error && html`<p class="notice warn" role="status">Not up to date: ${error.message}<button onClick=${reload}>Try again</button></p>`}
    ${empty && empty(data) ? html`<${Empty}>${nothing}<//>` : children(data)}`;
}

// An address that names no page.
import { html } from "../kit.js";
import { useTitle } from "../parts/bits.js";

export default function Missing() {
  useTitle("No such page");
  return html`<h1>There is no such page</h1><p>${location.pathname} names none. <a href="/">Overview</a> · <a href="/jobs">Jobs</a></p>`;
}

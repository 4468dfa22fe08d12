// Starts the pages.
import { html, render } from "./kit.js";
import { Frame } from "./frame.js";
import { fromMlflow } from "./router.js";
import { takeLink } from "./link.js";

takeLink();
fromMlflow();
const place = document.getElementById("app");
place.textContent = "";
render(html`<${Frame} />`, place);
addEventListener("hashchange", fromMlflow);

// Starts the pages.
import { html, render } from "./kit.js";
import { Frame } from "./frame.js";
import { fromMlflow } from "./router.js";
import { fromFragment } from "./signin.js";

await fromFragment();
fromMlflow();
const place = document.getElementById("app");
place.textContent = "";
render(html`<${Frame} />`, place);
addEventListener("hashchange", async () => {
  if (await fromFragment()) location.reload();
  else fromMlflow();
});

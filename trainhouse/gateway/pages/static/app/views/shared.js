// A link to one run: taken out of the address at once, given to the gateway for a cookie, and the run's page opens.
import { html, useEffect, useState } from "../kit.js";
import { call } from "../api.js";
import { taken } from "../link.js";
import { useTitle } from "../parts/bits.js";
import { Empty, Failed, Loading } from "../parts/notice.js";

// who: of a session that this browser has already, or null.
export default function Shared({ who }) {
  const [error, setError] = useState(null);
  const [agreed, setAgreed] = useState(false);
  const own = who && !who.run;
  useTitle("Shared run");
  const open = async () => {
    setError(null);
    try {
      const { run } = await call("/v1/link-session", { method: "POST", body: { link: taken.link } });
      taken.link = "";
      location.replace(`/jobs/${encodeURIComponent(run)}`);
    } catch (problem) { setError(problem); }
  };
  useEffect(() => { if (taken.link && (!own || agreed)) open(); }, [own, agreed]);
  if (!taken.link) return html`<${Empty}>This page opens a link to one run, and the address has none: open the whole link that you were given.<//>`;
  if (error) return html`<${Failed} error=${error} again=${error.status === 401 ? null : open} />`;
  if (own && !agreed) return html`<section class="card signin"><h1>A link to one run</h1><p class="sub">You are signed in as ${who.sub}. The link shows one run only, and replaces your session in this browser until you sign in again.</p>
    <div class="row"><button class="main" onClick=${() => setAgreed(true)}>Open the run</button><a class="button" href="/">Stay signed in</a></div></section>`;
  return html`<${Loading} what="the run" />`;
}

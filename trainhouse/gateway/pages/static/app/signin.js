// A token for a session: typed here, or in the fragment of the address that `trainhouse open` prints (a fragment is never sent to a server).
import { html, useEffect, useRef, useState } from "./kit.js";
import { call } from "./api.js";

// A gateway that starts does not know yet which tokens were revoked, and says so by 503.
const STARTING_TRIES = 10;
const AGAIN_MS = 1000;

const enter = (token) => call("/v1/session", { method: "POST", body: { token } });

// Takes a token out of the address, if there is one; true if a session was made of it.
export async function fromFragment() {
  const found = /^#token=(.+)$/.exec(location.hash);
  if (!found) return false;
  history.replaceState(null, "", location.pathname + location.search);
  for (let left = STARTING_TRIES; left > 0; left -= 1) {
    try {
      await enter(decodeURIComponent(found[1]));
      return true;
    } catch (error) {
      if (error.status !== 503) return false;
      await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    }
  }
  return false;
}

export function SignIn({ entered }) {
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const field = useRef(null);
  useEffect(() => { document.title = "Sign in · Trainhouse"; field.current.focus(); }, []);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await enter(field.current.value.trim());
      entered();
    } catch (problem) {
      setError(problem);
      field.current.select();
    }
    setBusy(false);
  };
  return html`<section class="card signin">
    <h1>Sign in</h1>
    <p class="sub">These pages need a token. <code>trainhouse open</code> opens them with yours; <code>trainhouse env</code> prints it
      as <code>TRAINHOUSE_GATEWAY_TOKEN</code>.</p>
    <form onSubmit=${submit}>
      <label class="field">Token<input ref=${field} type="password" name="token" autocomplete="current-password" required
        aria-describedby=${error ? "signin-error" : null} /></label>
      ${error && html`<p id="signin-error" class="notice bad" role="alert">${error.message}</p>`}
      <div><button class="main" disabled=${busy}>${busy ? "Signing in …" : "Sign in"}</button></div>
    </form>
  </section>`;
}

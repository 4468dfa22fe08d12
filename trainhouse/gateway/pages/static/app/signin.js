// A token for a session, typed here. `trainhouse open` needs no page of ours: its code goes to the gateway's /login.
import { html, useEffect, useRef, useState } from "./kit.js";
import { call } from "./api.js";

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
      await call("/v1/session", { method: "POST", body: { token: field.current.value.trim() } });
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

// The link to one run that this browser was opened with, for the page that gives it to the gateway.
export const taken = { link: "" };

// Before anything else is asked or drawn: what follows # must not stay in the address, or in the browser's history.
export function takeLink() {
  if (location.pathname !== "/shared" || location.hash.length < 2) return;
  try { taken.link = decodeURIComponent(location.hash.slice(1)); } catch { taken.link = ""; }
  history.replaceState(null, "", location.pathname);
}

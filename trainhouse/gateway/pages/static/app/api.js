// Requests to the gateway. Errors are `Problem`s in words for people; a missing session is told to whoever listens (the frame).
// Never: names another host.
// A page of ours proves by this header that no other site sent the request (a cookie alone writes nothing).
const PAGE_HEADER = "X-Trainhouse-Page";
const unauthorized = new Set();

export function onUnauthorized(listener) {
  unauthorized.add(listener);
  return () => unauthorized.delete(listener);
}

export class Problem extends Error {
  constructor(status, title, detail) {
    super(detail ? `${title}: ${detail}` : title);
    this.status = status;
    this.title = title;
    this.detail = detail || "";
  }
}

export const url = (path, params = {}) => {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    for (const one of Array.isArray(value) ? value : [value]) if (one !== undefined && one !== null && one !== "") query.append(name, one);
  }
  const text = query.toString();
  return text ? `${path}${path.includes("?") ? "&" : "?"}${text}` : path;
};

export async function call(path, options) {
  const response = await send(path, options);
  return response.status === 204 ? null : response.json();
}

// The response itself, for an answer that is read piece by piece. Throws a Problem where it is a refusal.
export async function send(path, { method = "GET", body, signal, headers = {} } = {}) {
  const options = { method, signal, credentials: "same-origin", headers: { Accept: "application/json", [PAGE_HEADER]: "1", ...headers } };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let response;
  // A change of the machine's networks ends all requests that are under way: what only asks is sent again, once.
  for (let left = method === "GET" ? 1 : 0; !response; left -= 1) {
    try {
      response = await fetch(path, options);
    } catch (error) {
      if (error.name === "AbortError") throw error;
      if (left === 0) throw new Problem(0, "The gateway does not answer", "check that the stack is up (trainhouse status), then try again");
      await new Promise((goOn) => setTimeout(goOn, 300));
    }
  }
  if (!response.ok) throw await problemOf(response);
  return response;
}

export async function problemOf(response) {
  if (response.status === 401) for (const listener of unauthorized) listener();
  try {
    const told = await response.json();
    return new Problem(response.status, told.title || `Error ${response.status}`, told.detail);
  } catch {
    return new Problem(response.status, `The gateway answered ${response.status}`, response.statusText);
  }
}

// All pages of a listing, told page by page, at most `most` items. Returns whether there was more.
export async function eachPage(path, params, { most, limit = 1000, signal }, took) {
  let cursor = null;
  let count = 0;
  do {
    const page = await call(url(path, { ...params, limit: Math.min(limit, most - count), cursor }), { signal });
    count += page.items.length;
    took(page.items);
    cursor = page.next_cursor;
    if (!page.items.length) break;
  } while (cursor && count < most);
  return Boolean(cursor);
}

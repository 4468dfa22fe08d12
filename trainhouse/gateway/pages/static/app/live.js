// A stream of server-sent events that comes back: after a break it goes on behind the last event it saw (Last-Event-ID).
// fetch rather than EventSource: that one gives up on an HTTP error and cannot be started behind an id.
import { problemOf } from "./api.js";

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 15000;
const UNSEEN_MS = 10000;

// on: {event name: (data) => …}; told: (state) => …, state is "live", "waiting" or "refused". Returns a function that ends it.
// on.begins is called once the stream tells what comes from then on, if it did not begin behind an id: what was asked for before is to be
// asked for again, since nobody tells what came in between.
export function follow(path, on, told = () => {}) {
  const ending = new AbortController();
  let reading = null;
  let lastId = null;
  let retryMs = FIRST_WAIT_MS;
  let waitMs = FIRST_WAIT_MS;
  let begun = false;

  const take = (event) => {
    if (event.comment) return;
    if (!begun) on.begins?.();
    begun = true;
    if (event.id !== null) lastId = event.id;
    if (event.retry) retryMs = Math.min(event.retry, LONGEST_WAIT_MS);
    const handler = on[event.name];
    if (handler && event.data) handler(JSON.parse(event.data));
  };

  const once = async () => {
    const headers = { Accept: "text/event-stream" };
    if (lastId !== null) headers["Last-Event-ID"] = lastId;
    begun = lastId !== null;
    reading = new AbortController();
    const response = await fetch(path, { headers, credentials: "same-origin", signal: reading.signal, cache: "no-store" });
    if (!response.ok) throw await problemOf(response);
    waitMs = retryMs;
    told("live");
    await readEvents(response.body, take);
  };

  const run = async () => {
    while (!ending.signal.aborted) {
      try {
        await seen(ending.signal);
        await once();
      } catch (error) {
        if (ending.signal.aborted) return;
        if (error.status >= 400 && error.status < 500 && error.status !== 429) return told("refused");
      }
      told("waiting");
      await new Promise((resolve) => setTimeout(resolve, waitMs * (0.75 + Math.random() / 2)));
      waitMs = Math.min(waitMs * 2, LONGEST_WAIT_MS);
    }
  };
  // A browser has six connections to a host: tabs that nobody looks at must not hold them all.
  let unseen = 0;
  const looked = () => {
    clearTimeout(unseen);
    if (document.hidden) unseen = setTimeout(() => reading?.abort(), UNSEEN_MS);
  };
  document.addEventListener("visibilitychange", looked);
  run();
  return () => {
    ending.abort();
    reading?.abort();
    clearTimeout(unseen);
    document.removeEventListener("visibilitychange", looked);
  };
}

// Waits until somebody looks at the page.
function seen(signal) {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => {
    const look = () => { if (!document.hidden) { document.removeEventListener("visibilitychange", look); resolve(); } };
    document.addEventListener("visibilitychange", look);
    signal.addEventListener("abort", () => { document.removeEventListener("visibilitychange", look); resolve(); });
  });
}

async function readEvents(body, take) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const blocks = text.split(/\r?\n\r?\n/);
    text = blocks.pop();
    for (const block of blocks) take(parse(block));
  }
}

// A block of comments alone says that the connection lives, and nothing of what the stream tells.
export function parse(block) {
  const event = { name: "message", id: null, data: "", retry: 0, comment: true };
  for (const line of block.split(/\r?\n/)) {
    const colon = line.indexOf(":");
    if (colon === 0) continue;
    event.comment = false;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "event") event.name = value;
    else if (field === "id") event.id = value;
    else if (field === "data") event.data += (event.data ? "\n" : "") + value;
    else if (field === "retry") event.retry = Number(value) || 0;
  }
  return event;
}

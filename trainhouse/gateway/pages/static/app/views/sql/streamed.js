// An answer in rows, read as it comes: a million rows at once would hold the page for seconds.
const SLICE_MS = 20;

// Other work of the page goes first.
const yielded = () => new Promise((resume) => { const { port1, port2 } = new MessageChannel(); port1.onmessage = resume; port2.postMessage(0); });

// {names, types, rows} of a response in JSONCompactEachRowWithNamesAndTypes; read: (rows so far) => …, called now and then.
export async function readRows(response, read = () => {}) {
  const lines = [];
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  let began = performance.now();
  const take = async (text) => {
    for (let from = 0; from < text.length;) {
      const to = Math.min(text.length, ending(text, from + PART));
      // A line is one array, and no text in it has a bare line end.
      lines.push(...JSON.parse(`[${text.slice(from, to).trimEnd().replaceAll("\n", ",")}]`));
      from = to;
      if (performance.now() - began > SLICE_MS) { read(Math.max(0, lines.length - 2)); await yielded(); began = performance.now(); }
    }
  };
  for (;;) {
    const { done, value } = await reader.read();
    began = Math.max(began, performance.now() - SLICE_MS);
    rest += done ? decoder.decode() : decoder.decode(value, { stream: true });
    const end = done ? rest.length : rest.lastIndexOf("\n") + 1;
    if (rest.slice(0, end).trim()) await take(rest.slice(0, end));
    rest = rest.slice(end);
    if (done) break;
  }
  return { names: lines[0] || [], types: lines[1] || [], rows: lines.slice(2) };
}

const PART = 32768;
// Behind the line end that follows a place.
const ending = (text, at) => { const found = text.indexOf("\n", at); return found < 0 ? text.length : found + 1; };

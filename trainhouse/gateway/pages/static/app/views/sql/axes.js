// Which columns of an answer can be drawn, and how. Pure.
const MOST_POINTS = 4000;
const LOOKED_AT = 200;

const isNumber = (value) => typeof value === "number" || (typeof value === "string" && value !== "" && Number.isFinite(Number(value)));
const isTime = (value) => typeof value === "string" && /^\d{4}-\d\d-\d\d([T ]\d\d:\d\d|$)/.test(value);

// kinds: of each column "number", "time", "word" or "none"; first: the column to draw over; values: columns of numbers.
export function axes(answer) {
  const kinds = answer.names.map((_, i) => {
    const values = answer.rows.slice(0, LOOKED_AT).map((row) => row[i]).filter((value) => value !== null && value !== undefined);
    if (!values.length) return "none";
    return values.every(isNumber) ? "number" : values.every(isTime) ? "time" : "word";
  });
  return { kinds, first: kinds.findIndex((kind) => kind !== "none"), values: kinds.map((kind, i) => (kind === "number" ? i : -1)).filter((i) => i >= 0) };
}

// A column of words is bars; one of numbers or times is what people choose, lines first.
export const kindsOf = (kind, rows) => (kind === "word" ? ["bars"] : rows <= 60 ? ["lines", "steps", "points", "bars"] : ["lines", "steps", "points"]);

const secondsOf = (text) => Date.parse(text.length === 10 ? `${text}T00:00Z` : text.replace(" ", "T").replace(/(:\d\d(\.\d+)?)$/, "$1Z")) / 1000;

// x and columns of numbers over it, in its order; of more rows than can be drawn every nth.
export function linesOf(rows, by, of, time) {
  const every = Math.ceil(rows.length / MOST_POINTS);
  const at = (row) => (time ? secondsOf(row[by]) : Number(row[by]));
  const kept = [];
  for (let i = 0; i < rows.length; i += every) if (rows[i][by] !== null) kept.push([at(rows[i]), rows[i]]);
  kept.sort((a, b) => a[0] - b[0]);
  return { every, x: kept.map(([x]) => x), columns: of.map((i) => kept.map(([, row]) => (row[i] === null ? null : Number(row[i])))) };
}

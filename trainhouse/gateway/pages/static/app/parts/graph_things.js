// What a lineage is drawn of: things by their ids, and those that stand in the same place as one. Pure.
import { addressOfId } from "../model_words.js";

const KINDS = { job: "job", attempt: "attempt", checkpoint: "checkpoint", code: "code", environment: "environment", data: "data", artifact: "artifact", model: "model" };
const MANY = 3;

const shortened = (text) => (text.length > 26 ? `…${text.slice(-24)}` : text);

// Ids are kind:rest. A title and a second line for a person.
export function nameOf(id, thing) {
  const colon = id.indexOf(":");
  const [kind, rest] = [id.slice(0, colon), id.slice(colon + 1)];
  // The id names the fence of an attempt, which is one more than its number.
  const attempt = kind === "attempt" && rest.match(/^(.*)\/(\d+)$/);
  if (attempt) return { kind: `attempt ${attempt[2] - 1}`, text: shortened(attempt[1]), href: `/jobs/${encodeURIComponent(attempt[1])}?tab=ranks` };
  const commit = kind === "checkpoint" && rest.match(/^(.*)@(\d+)$/);
  if (commit) return { kind: "checkpoint", text: shortened(rest), href: `/jobs/${encodeURIComponent(commit[1])}?tab=checkpoints` };
  if (kind === "model") return { kind, text: shortened(rest), href: addressOfId(rest) };
  const long = kind === "code" || kind === "environment" ? rest.slice(0, 12) : rest.replace(/@sha256:(.{8}).*$/, "@$1").replace(/^s3:.*\/(?=.)/, "");
  return { kind: KINDS[kind] || kind, text: shortened((kind === "job" && thing?.name) || long), href: kind === "job" ? `/jobs/${encodeURIComponent(rest)}` : null };
}

// An id as a table shows it.
export const shownId = (id) => (id.startsWith("attempt:") ? `${nameOf(id).kind} of ${id.slice(8, id.lastIndexOf("/"))}` : id);

// Things of one kind that came from the same and led to the same are one, where they are many: {edges: [{from, to, label}], members: Map(id → ids)}.
export function folded(edges, self, all) {
  const plain = new Map();
  for (const edge of edges) {
    const key = `${edge.from_id}\n${edge.to_id}`;
    const kinds = plain.get(key)?.kinds || new Set();
    plain.set(key, { from: edge.from_id, to: edge.to_id, kinds: kinds.add(edge.kind) });
  }
  const ends = new Map();
  const at = (id) => { if (!ends.has(id)) ends.set(id, { from: [], to: [] }); return ends.get(id); };
  for (const { from, to } of plain.values()) { at(from).to.push(to); at(to).from.push(from); }
  const alike = new Map();
  for (const [id, { from, to }] of ends) {
    const key = id === self || all ? id : `${id.slice(0, id.indexOf(":"))}|${[...from].sort().join("\n")}|${[...to].sort().join("\n")}`;
    if (!alike.has(key)) alike.set(key, []);
    alike.get(key).push(id);
  }
  const place = new Map();
  const members = new Map();
  for (const ids of alike.values()) {
    const group = ids.length > MANY ? `many:${ids[0]}` : null;
    if (group) members.set(group, ids);
    for (const id of ids) place.set(id, group || id);
  }
  const lines = new Map();
  for (const { from, to, kinds } of plain.values()) {
    const [a, b] = [place.get(from), place.get(to)];
    lines.set(`${a}\n${b}`, { from: a, to: b, label: [...kinds].sort().join(", ").replaceAll("_", " ") });
  }
  return { edges: [...lines.values()], ids: [...new Set(place.values())], members };
}

// Of many: how many, of what, and the span of their steps.
export function manyOf(ids, things) {
  const kind = ids[0].slice(0, ids[0].indexOf(":"));
  const steps = ids.map((id) => things[id]?.step).filter((step) => step !== null && step !== undefined);
  return { count: ids.length, kind, least: steps.length ? Math.min(...steps) : null, greatest: steps.length ? Math.max(...steps) : null };
}

// Tags and notes of jobs: those that MLflow's client sets and reads, too. Its own `mlflow.` tags are not shown; the note is one of them.
export const NOTE = "mlflow.note.content";
export const isShown = (key) => !key.startsWith("mlflow.");
export const tagWord = (key, value) => (value === "" ? key : `${key}=${value}`);
export const MOST_KEY_CHARS = 250;
export const MOST_VALUE_CHARS = 8000;

// `key=value` or `key` as a person types it, as [key, value]; null where there is no key.
export function parseTag(text) {
  const at = text.indexOf("=");
  const key = (at < 0 ? text : text.slice(0, at)).trim();
  return key ? [key, at < 0 ? "" : text.slice(at + 1).trim()] : null;
}

// Items {job_id, key, value} as a map from each job to its tags.
export function byJob(items) {
  const found = new Map();
  for (const { job_id, key, value } of items) {
    if (!found.has(job_id)) found.set(job_id, {});
    found.get(job_id)[key] = value;
  }
  return found;
}

// The tags of one job that are shown, as texts in their order.
export const wordsOf = (tags) => Object.entries(tags || {}).filter(([key]) => isShown(key)).map(([key, value]) => tagWord(key, value)).sort();

// Many jobs kept up to date: pages of the listing, then the fleet's stream of statuses, taken in together a few times a second.
import { useEffect, useRef, useState } from "./kit.js";
import { eachPage } from "./api.js";
import { useLive } from "./use.js";

const PATH = "/v1/training-jobs";
const SETTLE_MS = 400;
// A stream that begins tells once more what was told within this time before: a list that is not older has missed nothing.
const RECENT_MS = 3000;

// {jobs, data, error, reload, live, more}: jobs that `params` ask for and `belongs` (a function of a job) keeps; null until the first page is in.
// What is asked for stays as it is first said.
export function useJobs(params, belongs, most) {
  const [shown, setShown] = useState({ jobs: null, error: null, more: false });
  const [round, setRound] = useState(0);
  const known = useRef(new Map());
  const timer = useRef(0);
  const asked = useRef({ at_ms: 0, paged: false, whole: false });
  const settle = () => {
    clearTimeout(timer.current);
    timer.current = 0;
    setShown((before) => ({ ...before, jobs: [...known.current.values()].filter(belongs) }));
  };
  const take = (job) => {
    const before = known.current.get(job.job_id);
    if (before && before.status_seq > job.status_seq) return;
    // While pages come, one that does not belong is known too: a page that was asked for before may still show it as it was.
    if (belongs(job) || !asked.current.whole) known.current.set(job.job_id, before ? { ...before, ...job } : job);
    else if (before) known.current.delete(job.job_id);
    else return;
    // Before the first page is in, the stream alone knows a few jobs: a list of those would look whole.
    if (asked.current.paged && !timer.current) timer.current = setTimeout(settle, SETTLE_MS);
  };
  useEffect(() => {
    const ending = new AbortController();
    known.current = new Map();
    const own = { at_ms: Date.now(), paged: false, whole: false };
    asked.current = own;
    eachPage(PATH, params, { most, signal: ending.signal }, (items) => {
      for (const job of items) take(job);  // the stream may have told something newer meanwhile
      own.paged = true;
      settle();
    }).then((more) => setShown((before) => ({ ...before, more, error: null })),
      (error) => { if (error.name !== "AbortError") setShown((before) => ({ ...before, error })); })
      .finally(() => {
        own.whole = true;
        if (!ending.signal.aborted) for (const [id, job] of known.current) if (!belongs(job)) known.current.delete(id);
      });
    return () => { ending.abort(); clearTimeout(timer.current); timer.current = 0; };
  }, [most, round]);
  const reload = () => setRound((n) => n + 1);
  const live = useLive("/v1/stream", { status: take, begins: () => { if (Date.now() - asked.current.at_ms > RECENT_MS) reload(); } });
  return { ...shown, data: shown.jobs, live, reload };
}

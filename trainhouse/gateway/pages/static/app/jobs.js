// Many jobs kept up to date: pages of the listing, then the fleet's stream of statuses, taken in together a few times a second.
import { useEffect, useRef, useState } from "./kit.js";
import { eachPage } from "./api.js";
import { useLive } from "./use.js";

const PATH = "/v1/training-jobs";
const SETTLE_MS = 400;

// {jobs, data, error, reload, live, more}: jobs that `params` ask for and `belongs` (a function of a job) keeps; null until the first page is in.
// What is asked for stays as it is first said.
export function useJobs(params, belongs, most) {
  const [shown, setShown] = useState({ jobs: null, error: null, more: false });
  const [round, setRound] = useState(0);
  const known = useRef(new Map());
  const timer = useRef(0);
  const settle = () => {
    clearTimeout(timer.current);
    timer.current = 0;
    setShown((before) => ({ ...before, jobs: [...known.current.values()] }));
  };
  const take = (job) => {
    const before = known.current.get(job.job_id);
    if (before && before.status_seq > job.status_seq) return;
    if (belongs(job)) known.current.set(job.job_id, before ? { ...before, ...job } : job);
    else if (before) known.current.delete(job.job_id);
    else return;
    if (!timer.current) timer.current = setTimeout(settle, SETTLE_MS);
  };
  useEffect(() => {
    const ending = new AbortController();
    known.current = new Map();
    eachPage(PATH, params, { most, signal: ending.signal }, (items) => {
      for (const job of items) take(job);  // the stream may have told something newer meanwhile
      settle();
    }).then((more) => setShown((before) => ({ ...before, jobs: before.jobs || [], more, error: null })),
      (error) => { if (error.name !== "AbortError") setShown((before) => ({ ...before, error })); });
    return () => { ending.abort(); clearTimeout(timer.current); timer.current = 0; };
  }, [most, round]);
  const live = useLive("/v1/stream", { status: take });
  return { ...shown, data: shown.jobs, live, reload: () => setRound((n) => n + 1) };
}

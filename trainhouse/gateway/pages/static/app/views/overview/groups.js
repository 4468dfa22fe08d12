// Jobs in groups: those that run by team, those that wait by pool and reason. Pure.

// [{key, jobs, ranks}], the one with the most ranks first; in a group the largest jobs first.
export function byTeam(jobs) {
  return grouped(jobs, (job) => job.team || "no team", (a, b) => b.world_size - a.world_size || (a.job_id < b.job_id ? -1 : 1));
}

// What stands in a job's way, for a heading.
export const obstacleOf = (job) => (job.obstacle ? job.obstacle.toLowerCase().replaceAll("_", " ") : "not decided yet");

export function byReason(jobs) {
  return grouped(jobs, (job) => `${job.pool || "no pool"}: ${obstacleOf(job)}`);
}

function grouped(jobs, keyOf, order = null) {
  const groups = new Map();
  for (const job of jobs) {
    const key = keyOf(job);
    if (!groups.has(key)) groups.set(key, { key, jobs: [], ranks: 0 });
    const group = groups.get(key);
    group.jobs.push(job);
    group.ranks += job.world_size;
  }
  if (order) for (const group of groups.values()) group.jobs.sort(order);
  return [...groups.values()].sort((a, b) => b.ranks - a.ranks || (a.key < b.key ? -1 : 1));
}

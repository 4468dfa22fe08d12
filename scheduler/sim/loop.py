"""The event loop: virtual time in whole seconds, and one scheduling cycle an instant.

At one instant: gangs that are done leave, gangs that were asked to leave and have saved leave, faults and repairs happen, running gangs
save, jobs arrive; then one cycle of the core. If a gang is to leave at once, or a gang has no work, the instant goes on with another.

Holds: the core is driven by its book and `run_cycle` alone, as the journal's machine does it; the same input gives the same result.
Never: decides who runs.
"""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from heapq import heapify, heappop, heappush
from time import perf_counter

from trainhouse.events.model.policy import RunTimes, SchedulingPolicy
from trainhouse.scheduler.core.cycle.cycle import run_cycle
from trainhouse.scheduler.core.queue.entries import Action, Evict, Eviction, Start
from trainhouse.scheduler.sim.admission import Admission
from trainhouse.scheduler.sim.types import Fault, JobRow, Options, SimNode, SimResult, TraceJob
from trainhouse.scheduler.sim.virtual_fleet import SimJob, World

DONE, LEFT, DOWN, UP, SAVED = range(5)
"""Kinds of events, in their order within an instant."""

LOOK_EVERY_S = 60
"""Where time alone can change a decision, the core looks this often while jobs wait."""

PROGRESS_EVERY = 2000
NEVER_S = 1 << 62

Event = tuple[int, int, int, str, int]
"""(time, kind, number, job id or "", attempt of the job or index of the node)"""


def simulate(
    jobs: Sequence[TraceJob],
    nodes: Sequence[SimNode],
    policy: SchedulingPolicy,
    *,
    faults: Sequence[Fault] = (),
    run_times: RunTimes | None = None,
    options: Options | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> SimResult:
    """Runs a trace under a policy. `run_times`: instead of the policy's own. `progress(jobs that ended or were refused, jobs)`.

    ValueError: a fault of a node that there is not, a node or job that is named twice.
    """
    if run_times is not None:
        policy = policy.model_copy(update={"run_times": run_times})
    with _uncollected():
        return Loop(jobs, nodes, policy, faults, options or Options(), progress).run()


@contextmanager
def _uncollected() -> Iterator[None]:
    """Nothing that a simulation makes refers to itself in a circle: a search for such would find nothing, at a twentieth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class Loop:
    """One simulation."""

    def __init__(
        self,
        jobs: Sequence[TraceJob],
        nodes: Sequence[SimNode],
        policy: SchedulingPolicy,
        faults: Sequence[Fault],
        options: Options,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        _unique("job", [job.job_id for job in jobs])
        _unique("node", [node.node_id for node in nodes])
        self._began_s = perf_counter()
        self._options, self._progress = options, progress
        self._jobs = sorted(jobs, key=lambda job: job.submit_s)
        first_s = self._jobs[0].submit_s if self._jobs else 0
        self._first_s = self._last_s = first_s
        self._world = World(list(nodes), policy, options, first_s)
        self._admission = Admission(self._world.book, options.one_pool)
        self._rows = {job.job_id: _row(job) for job in jobs}
        self._order = [job.job_id for job in jobs]
        self._saves = policy.preemption.enabled or policy.defragmentation.enabled
        self._events: list[Event] = _faults(faults, nodes)
        self._count, self._next, self._ended, self._cycles = len(self._events), 0, 0, 0
        self._moves = self._resizes = 0

    def run(self) -> SimResult:
        """To the end of the trace and of all of its jobs, or to `until_s`."""
        now_s = self._instant()
        while now_s is not None and (self._options.until_s is None or now_s < self._options.until_s):
            self._world.meter.to(now_s)
            self._happen(now_s)
            self._cycle(now_s)
            now_s = self._instant(now_s)
        if self._options.until_s is not None and self._ended < len(self._rows):
            self._world.meter.to(self._options.until_s)
            self._last_s = max(self._last_s, self._options.until_s)
        return self._result()

    def _instant(self, now_s: int | None = None) -> int | None:
        """The next time at which anything happens; None: everything has ended, or nothing ever will."""
        if self._ended == len(self._rows):
            return None
        soonest = self._events[0][0] if self._events else NEVER_S
        if self._next < len(self._jobs):
            soonest = min(soonest, self._jobs[self._next].submit_s)
        if now_s is not None:
            book = self._world.book
            if self._world.restless and book.running and len(book.lanes):
                soonest = min(soonest, now_s + LOOK_EVERY_S)
            if book.reservations:
                # When a held start comes, its gang starts or gets another one; expected ends that passed unnoticed make no event.
                held_s = min([-(-r.start_ms // 1000) for r in book.reservations.values()])
                soonest = min(soonest, max(held_s, now_s + 1))
        return soonest if soonest < NEVER_S else None

    def _happen(self, now_s: int) -> None:
        events, world = self._events, self._world
        while events and events[0][0] == now_s:
            _, kind, _, job_id, number = heappop(events)
            if kind == DOWN:
                world.down(number, now_s)
            elif kind == UP:
                world.up(number)
            else:
                job = world.jobs[job_id]
                if job.attempt == number and job.placement:
                    self._of_job(kind, job, now_s)
        jobs = self._jobs
        while self._next < len(jobs) and jobs[self._next].submit_s == now_s:
            self._arrive(jobs[self._next], now_s)
            self._next += 1

    def _of_job(self, kind: int, job: SimJob, now_s: int) -> None:
        if kind == DONE:
            self._world.finish(job, now_s)
            self._last_s = now_s
            self._end_one()
        elif kind == LEFT:
            self._world.yield_devices(job, now_s)
        else:
            self._world.save(job, now_s)
            self._plan_save(job, now_s)

    def _arrive(self, trace: TraceJob, now_s: int) -> None:
        row = self._rows[trace.job_id]
        shape, row.refused = self._admission.judge(trace)
        if shape is None:
            self._end_one()
            return
        self._world.arrive(SimJob(trace, self._next, shape, row, max(0, trace.duration_s) * trace.gpus, now_s), now_s)

    def _end_one(self) -> None:
        self._ended += 1
        if self._progress is not None and (self._ended % PROGRESS_EVERY == 0 or self._ended == len(self._rows)):
            self._progress(self._ended, len(self._rows))

    def _cycle(self, now_s: int) -> None:
        self._cycles += 1
        for action in run_cycle(self._world.book, now_s * 1000):
            self._obey(action, now_s)

    def _obey(self, action: Action, now_s: int) -> None:
        if isinstance(action, Start):
            job = self._world.jobs[action.job_id]
            done_s = self._world.start(job, action.placement, now_s)
            self._plan(done_s, DONE, action.job_id, job.attempt)
            self._plan_save(job, now_s)
        elif isinstance(action, Evict):
            job = self._world.jobs[action.job_id]
            self._moves += action.why is Eviction.MOVED
            self._resizes += action.why is Eviction.RESIZED
            self._plan(min(now_s + self._options.save_s, -(-action.deadline_ms // 1000)), LEFT, action.job_id, job.attempt)

    def _plan(self, at_s: int, kind: int, job_id: str, number: int) -> None:
        self._count += 1
        heappush(self._events, (at_s, kind, self._count, job_id, number))

    def _plan_save(self, job: SimJob, now_s: int) -> None:
        """The next checkpoint, where the policy asks how much would be lost."""
        every_s = self._options.checkpoint_s
        if self._saves and job.left > every_s * job.ranks:
            worked_s = now_s - job.started_s - job.restart_s
            self._plan(job.started_s + job.restart_s + (max(0, worked_s) // every_s + 1) * every_s, SAVED, job.trace.job_id, job.attempt)

    def _result(self) -> SimResult:
        world = self._world
        rows = [self._rows[job_id] for job_id in self._order]
        return SimResult(
            policy=world.policy.name,
            rows=rows,
            segments=world.segments,
            timeline=world.meter.points(),
            nodes=tuple(node.node_id for node in world.nodes),
            first_s=self._first_s,
            last_s=self._last_s,
            busy_gpu_s=world.meter.busy_gpu_s,
            open_gpu_s=world.meter.open_gpu_s,
            preemptions=world.preemptions - self._moves - self._resizes,
            moves=self._moves,
            resizes=self._resizes,
            lost_gpu_s=world.lost_gpu_s,
            lost_to_faults_gpu_s=world.lost_to_faults_gpu_s,
            cycles=self._cycles,
            wall_s=perf_counter() - self._began_s,
        )


def _unique(what: str, names: list[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{what} {name} is there twice; give each {what} a name of its own")
        seen.add(name)


def _row(job: TraceJob) -> JobRow:
    return JobRow(job.job_id, job.tenant, job.user, job.gpus, job.submit_s, job.duration_s)


def _faults(faults: Sequence[Fault], nodes: Sequence[SimNode]) -> list[Event]:
    """Faults and repairs as events."""
    index = {node.node_id: i for i, node in enumerate(nodes)}
    events: list[Event] = []
    for fault in faults:
        if fault.node_id not in index:
            raise ValueError(f"fault at {fault.time_s} s: there is no node {fault.node_id}; map the fault's nodes onto the simulated ones")
        at = index[fault.node_id]
        events.append((fault.time_s, DOWN, len(events), "", at))
        if fault.repaired_s is not None:
            events.append((max(fault.repaired_s, fault.time_s + 1), UP, len(events), "", at))
    heapify(events)
    return events

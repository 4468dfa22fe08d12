"""The simulated fleet: a book, and how far each job has come.

A job is so many device-seconds of work; a gang of any size does its size of it each second. A gang that must leave saves first and loses
nothing; one that has no time for that, or whose node fails, falls back to its last save. Every start after the first costs a restart
before work goes on.

Holds: the book's devices are those of running gangs; work is whole device-seconds; nothing here chooses (the cycle does).
"""

from dataclasses import dataclass, field, replace

from trainhouse.events.model.policy import RunTimes, SchedulingPolicy
from trainhouse.scheduler.core.cluster.shape import Placement, Shape, ranks_of
from trainhouse.scheduler.core.cycle.book import Book
from trainhouse.scheduler.core.queue.entries import Waiting
from trainhouse.scheduler.sim.build import slots_of
from trainhouse.scheduler.sim.types import JobRow, Options, Segment, SimNode, TraceJob
from trainhouse.scheduler.sim.utilization import Meter


@dataclass(slots=True)
class SimJob:
    """A job that has been submitted. `left`: device-seconds of work; `attempt` numbers its starts, so that old plans are known as such.

    `failed`: a node that failed, not another job, was what stopped it last: its next restart is laid to that.
    """

    trace: TraceJob
    number: int
    shape: Shape
    row: JobRow
    left: int
    queued_s: int
    attempt: int = 0
    started_s: int = 0
    restart_s: int = 0
    placement: Placement = ()
    ranks: int = 0
    failed: bool = False
    kin: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.kin = self.trace.kin or (self.trace.tenant, self.trace.user, str(self.trace.gpus))


class World:
    """Jobs, nodes and the book, at a time that the loop gives."""

    def __init__(self, nodes: list[SimNode], policy: SchedulingPolicy, options: Options, first_s: int) -> None:
        self.book, self.policy, self.options = Book(), policy, options
        self.nodes = nodes
        self.jobs: dict[str, SimJob] = {}
        self.segments: list[Segment] = []
        self.meter = Meter(first_s, options.timeline_points)
        self.lost_gpu_s = self.lost_to_faults_gpu_s = self.preemptions = 0
        self._down: dict[int, int] = {}
        self.restless = policy.preemption.enabled or policy.defragmentation.enabled
        """Whether time alone can change what the core decides: protections end, moves are allowed again, elastic gangs grow."""
        self._learns = policy.run_times is RunTimes.HISTORY
        for index, node in enumerate(nodes):
            slots = slots_of(index, node, options.one_pool)
            self.book.put_node(slots)
            self.book.set_policy(slots.pool, policy, 0)
            self.meter.served += 1000 * node.gpus

    # ---- jobs come, start, end

    def arrive(self, job: SimJob, now_s: int) -> None:
        """A job is submitted."""
        self.jobs[job.trace.job_id] = job
        self.restless |= self.policy.elastic.enabled and job.shape.min_ranks > 0
        self._wait(job, now_s)

    def _wait(self, job: SimJob, now_s: int) -> None:
        trace = job.trace
        waiting = Waiting(
            job_id=trace.job_id,
            number=job.number,
            team=trace.tenant or "default",
            priority=trace.priority,
            shape=job.shape,
            submitted_ms=trace.submit_s * 1000,
            since_ms=now_s * 1000,
            run_ms=self._expected_ms(job),
            ran_ms=job.row.run_s * 1000,
            preemptible=trace.preemptible,
            kin=job.kin,
        )
        job.queued_s = now_s
        self.book.put_waiting(waiting)
        self.meter.waiting += 1
        self.meter.asked += trace.gpus * job.shape.milli

    def _expected_ms(self, job: SimJob) -> int | None:
        """The expected run time from now on the whole gang, the restart included."""
        restart_ms = self.options.restart_s * 1000 if job.attempt else 0
        trace = job.trace
        done_s = trace.duration_s - -(-job.left // trace.gpus)
        if self.policy.run_times is RunTimes.TRUE:
            return restart_ms + 1000 * -(-job.left // trace.gpus)
        limit_ms = None if trace.limit_s is None else 1000 * max(1, trace.limit_s - done_s)
        learned = self.book.estimates.expected(job.kin, done_s * 1000) if self.policy.run_times is RunTimes.HISTORY else None
        # As in the machine: what is left within its limit, or what history says, whichever is less.
        known = [ms for ms in (limit_ms, learned) if ms is not None]
        return restart_ms + min(known) if known else None

    def start(self, job: SimJob, placement: Placement, now_s: int) -> int:
        """The core gave a job its devices. The answer: when its work will be done."""
        row = job.row
        if row.first_start_s is None:
            row.first_start_s = now_s
        row.wait_s += now_s - job.queued_s
        job.restart_s = self.options.restart_s if job.attempt else 0
        job.attempt += 1
        row.attempts = job.attempt
        job.placement, job.started_s = placement, now_s
        job.ranks = ranks_of(placement)
        meter = self.meter
        meter.waiting -= 1
        meter.asked -= job.trace.gpus * job.shape.milli
        meter.busy += job.ranks * job.shape.milli
        return now_s + job.restart_s + -(-job.left // job.ranks)

    def finish(self, job: SimJob, now_s: int) -> None:
        """A job's work is done."""
        self._leave(job, now_s)
        job.left = 0
        job.row.end_s, job.row.jct_s = now_s, now_s - job.trace.submit_s
        if self._learns:
            self.book.estimates.learn(job.kin, max(1, job.trace.duration_s) * 1000)

    def yield_devices(self, job: SimJob, now_s: int) -> None:
        """A gang that was asked to leave waits again. It has saved all its work, unless its policy gives it less time than that takes."""
        worked_s = kept_s = max(0, now_s - job.started_s - job.restart_s)
        self._leave(job, now_s)
        job.failed = False
        if self.options.save_s > self.policy.preemption.checkpoint_deadline_s:
            kept_s -= worked_s % self.options.checkpoint_s
            self._lose(job, (worked_s - kept_s) * job.ranks)
        job.left -= min(job.left - 1, kept_s * job.ranks)
        job.row.preemptions += 1
        self.preemptions += 1
        self._wait(job, now_s)

    def _fail(self, job: SimJob, now_s: int) -> None:
        """A node of a gang failed: its work since the last save is lost, and it waits again."""
        worked_s = max(0, now_s - job.started_s - job.restart_s)
        kept_s = worked_s - worked_s % self.options.checkpoint_s
        self._leave(job, now_s)
        job.failed = True
        job.left -= kept_s * job.ranks
        self._lose(job, (worked_s - kept_s) * job.ranks)
        job.row.faults += 1
        self._wait(job, now_s)

    def _leave(self, job: SimJob, now_s: int) -> None:
        """Its devices come free."""
        row = job.row
        row.run_s += now_s - job.started_s
        if job.restart_s:
            self._lose(job, min(job.restart_s, now_s - job.started_s) * job.ranks)
        self.meter.busy -= job.ranks * job.shape.milli
        row.nodes = "+".join([self.nodes[part.node].node_id for part in job.placement])
        if self.options.segments and now_s > job.started_s:
            for part in job.placement:
                self.segments.append(Segment(row.job_id, self.nodes[part.node].node_id, part.devices, job.started_s, now_s))
        self.book.cluster.give(job.placement, job.shape)
        self.book.remove(row.job_id, now_s * 1000)
        job.placement = ()

    def _lose(self, job: SimJob, gpu_s: int) -> None:
        job.row.lost_gpu_s += gpu_s
        self.lost_gpu_s += gpu_s
        if job.failed:
            self.lost_to_faults_gpu_s += gpu_s

    def save(self, job: SimJob, now_s: int) -> None:
        """A running gang made a checkpoint: from here on less would be lost."""
        self.book.saved(job.trace.job_id, now_s * 1000)

    # ---- nodes fail and come back

    def down(self, index: int, now_s: int) -> None:
        """A fault opens at a node; gangs there are lost with the first."""
        self._down[index] = self._down.get(index, 0) + 1
        if self._down[index] == 1:
            self._open(index, False)
            for job_id in sorted(self.book.running):
                if any(part.node == index for part in self.jobs[job_id].placement):
                    self._fail(self.jobs[job_id], now_s)

    def up(self, index: int) -> None:
        """A fault of a node is repaired; with the last one it is back."""
        self._down[index] -= 1
        if not self._down[index]:
            self._open(index, True)

    def _open(self, index: int, is_open: bool) -> None:
        slots = self.book.cluster.layout.slots[index]
        assert slots is not None, f"node {index} was put at the start"
        self.book.put_node(replace(slots, open=is_open))
        self.meter.served += (1000 if is_open else -1000) * len(slots.types)

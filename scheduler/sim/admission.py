"""Refuses at submission what could never run, with the numbers: judged on the fleet with every node open and idle.

Holds: a shape is judged once. Never: looks at what is free now.
"""

from trainhouse.scheduler.core.cluster.place import place
from trainhouse.scheduler.core.cluster.shape import Shape
from trainhouse.scheduler.core.cycle.book import Book
from trainhouse.scheduler.core.queue.resources import amounts_least
from trainhouse.scheduler.sim.build import Shapes
from trainhouse.scheduler.sim.types import TraceJob


class Admission:
    """Made while the fleet is idle and whole."""

    def __init__(self, book: Book, one_pool: bool) -> None:
        self._book, self._idle = book, book.cluster.fork()
        self._shapes = Shapes(one_pool, lambda pool: book.policy(pool).topology.prefer or "")
        self._judged: dict[tuple[str, Shape], str] = {}

    def judge(self, job: TraceJob) -> tuple[Shape | None, str]:
        """The job's shape; or None and why it is refused."""
        if job.gpus < 1:
            return None, f"asks for {job.gpus} devices; a gang has at least one"
        if not 0 < job.gpu_milli <= 1000 or (job.gpu_milli < 1000 and job.gpus > 1):
            return None, f"asks for {job.gpu_milli} thousandths on {job.gpus} devices; a share is 1..1000 of one device"
        shape = self._shapes.of(job)
        key = (job.tenant, shape)
        if key not in self._judged:
            self._judged[key] = self._refusal(job, shape)
        why = self._judged[key]
        return (None, why) if why else (shape, "")

    def _refusal(self, job: TraceJob, shape: Shape) -> str:
        pool, least = shape.pool, shape.least_ranks
        total = self._idle.free(pool)
        if not total:
            return f"pool {pool} has no devices"
        over = self._book.usage.quotas(pool).limited(job.tenant or "default", amounts_least(shape))
        if over is not None:
            return over.text()
        if place(self._idle, shape, self._book.policy(pool).packing, ranks=least) is None:
            what = f"{least} devices of type {job.gpu_type}" if job.gpu_type else f"{least} devices"
            return f"asks for {what}; pool {pool} has {total} in all and could not hold it even idle"
        return ""

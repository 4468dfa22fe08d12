"""From the rows of a trace to what the core knows: nodes with slots, gangs with shapes.

Holds: equal needs give one and the same shape object; a node's index is its place in the file.
Never: changes a book.
"""

from collections.abc import Callable
from dataclasses import replace

from trainhouse.scheduler.core.cluster.node_slots import NodeSlots
from trainhouse.scheduler.core.cluster.shape import GIB, Block, Shape
from trainhouse.scheduler.sim.types import ANY_TYPE, SimNode, TraceJob

ONE_POOL = "all"
MIB = 1 << 20


def pool_of_node(node: SimNode, one_pool: bool) -> str:
    """The pool that a node is in."""
    return ONE_POOL if one_pool else node.pool


def pool_of_job(job: TraceJob, one_pool: bool) -> str:
    """The pool that a job runs in."""
    return ONE_POOL if one_pool else job.tenant


def slots_of(index: int, node: SimNode, one_pool: bool) -> NodeSlots:
    """A node as the core sees it, open and idle."""
    if node.slots is not None:
        return replace(node.slots, index=index)
    levels = (("switch", node.switch), ("rack", node.rack), ("pod", node.pod))
    return NodeSlots(
        index=index,
        node_id=node.node_id,
        pool=pool_of_node(node, one_pool),
        types=(node.gpu_type or ANY_TYPE,) * node.gpus,
        memory_bytes=(node.memory_gib * GIB,) * node.gpus if node.memory_gib else (),
        domains=tuple((level, domain) for level, domain in levels if domain),
        spot=node.spot,
        cpus=node.cpu_milli / 1000,
        memory=node.memory_mib * MIB,
    )


class Shapes:
    """Shapes of jobs, each made once. A job's cpus and memory are shared out among its ranks."""

    def __init__(self, one_pool: bool, prefer_of: Callable[[str], str] = lambda pool: "") -> None:
        self._one_pool, self._prefer_of = one_pool, prefer_of
        self._made: dict[tuple[str, int, str, int, int, int, int], Shape] = {}

    def of(self, job: TraceJob) -> Shape:
        """Returns the shape of a job. It asks for at least one device."""
        if job.shape is not None:
            return replace(job.shape, prefer=job.shape.prefer or self._prefer_of(job.shape.pool))
        pool = pool_of_job(job, self._one_pool)
        key = (pool, job.gpus, job.gpu_type, job.gpu_milli, job.cpu_milli, job.memory_mib, job.min_gpus)
        found = self._made.get(key)
        if found is None:
            types = tuple(job.gpu_type.split("|")) if job.gpu_type else ()
            cpus, memory = job.cpu_milli / 1000 / job.gpus, job.memory_mib * MIB // job.gpus
            milli = min(1000, job.gpu_milli) if job.gpus == 1 else 1000
            blocks = (Block(job.gpus, types, cpus=cpus, memory_bytes=memory),)
            min_ranks = job.min_gpus if job.min_gpus < job.gpus else 0
            found = self._made[key] = Shape(pool, blocks, milli=milli, prefer=self._prefer_of(pool), min_ranks=min_ranks)
        return found

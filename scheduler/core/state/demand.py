"""Demand of a job, in the form in which placement and the queue compare it: its spec as a shape, and the keys of its run time estimate.

Holds: a function of the spec alone; equal needs give equal shapes, whatever a spec is called.
Never: knows nodes.
"""

from trainhouse.events import JobSpec, Resources
from trainhouse.scheduler.core.cluster.node_filters import ISOLATED_LABEL
from trainhouse.scheduler.core.cluster.shape import ANY, GIB, WHOLE, Block, Shape

ISOLATED = {ISOLATED_LABEL: "true"}
"""What a node that confines jobs has among its labels for placement; its own label of that name does not count."""


def shape_of(spec: JobSpec, prefer: str = "", isolated: bool = False) -> Shape:
    """The needs of a spec's gang; blocks in the order of ranks, one for each role. `prefer`: the level that it prefers if it names none.

    `isolated`: its pool's policy asks for nodes that confine jobs.
    """
    gang = spec.gang
    blocks = tuple(_block(r.ranks, r.resources or spec.resources, r.name) for r in gang.roles)
    return Shape(
        pool=str(spec.pool),
        blocks=blocks or (_block(gang.ranks, spec.resources, ""),),
        milli=device_share(spec),
        require=gang.require or "",
        prefer=gang.prefer or prefer,
        group=spec.group_ranks,
        labels=tuple(sorted((spec.placement.node_labels | (ISOLATED if isolated else {})).items())),
        spot=spec.placement.spot,
        min_ranks=gang.min_ranks if gang.min_ranks is not None and gang.min_ranks < gang.ranks else 0,
        replica=spec.parallelism.replica_ranks if spec.parallelism is not None else 1,
        batch=spec.ranks_of_batch if gang.least_ranks < gang.ranks else 0,
    )


def device_share(spec: JobSpec) -> int:
    """Thousandths of a device for each rank."""
    share = spec.resources.device_share
    return WHOLE if share is None else share


def host_needs(spec: JobSpec, first_rank: int, ranks: int) -> tuple[float, int]:
    """The cpus and bytes of memory that these ranks take beside their devices; a role's ranks take what the role says."""
    cpus, memory_bytes, begin = 0.0, 0, 0
    parts = [(r.ranks, r.resources or spec.resources) for r in spec.gang.roles] or [(first_rank + ranks, spec.resources)]
    for count, per in parts:
        here = min(first_rank + ranks, begin + count) - max(first_rank, begin)
        if here > 0:
            cpus += here * (per.cpus_per_device or 0)
            memory_bytes += here * _bytes(per.memory_gib_per_device)
        begin += count
    return cpus, memory_bytes


def kin_of(spec: JobSpec) -> tuple[str, ...]:
    """From the general to the particular: whose jobs, and which, have run times like this one's."""
    return (spec.team, spec.user, spec.name, str(spec.gang.ranks))


def _block(ranks: int, per: Resources, role: str) -> Block:
    return Block(
        ranks=ranks,
        types=() if per.device_type == ANY else (per.device_type,),
        device_memory_bytes=_bytes(per.device_memory_gib),
        cpus=per.cpus_per_device or 0,
        memory_bytes=_bytes(per.memory_gib_per_device),
        role=role,
    )


def _bytes(gib: float | None) -> int:
    return 0 if gib is None else round(gib * GIB)

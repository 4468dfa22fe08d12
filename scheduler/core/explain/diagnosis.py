"""Obstacles that keep one kind of job (a team's gangs of one shape) from starting now, as typed refusals.

Holds: the same checks in the same order as a cycle makes them: quota, nodes and topology, held start times, the order.
Never: changes the book.
"""

from dataclasses import dataclass, field
from itertools import islice

from trainhouse.events.model.explanation import Obstacle, Refusal
from trainhouse.scheduler.core.cluster.capacity import bits_of
from trainhouse.scheduler.core.cluster.describe import devices, needs
from trainhouse.scheduler.core.cluster.place import place
from trainhouse.scheduler.core.cluster.shape import Shape
from trainhouse.scheduler.core.cluster.unschedulable import FilterResult, Refusals, refusals
from trainhouse.scheduler.core.cycle.book import Book
from trainhouse.scheduler.core.cycle.device_variants import variants
from trainhouse.scheduler.core.cycle.what_if_cluster import pledged
from trainhouse.scheduler.core.queue.entries import Waiting
from trainhouse.scheduler.core.queue.quotas import QuotaRefusal, QuotaRule, shown
from trainhouse.scheduler.core.queue.resources import amounts_least

MOST_EXAMPLES = 4
"""So many nodes are named with each refusal; `nodes_asked` names all."""

FILTER_OBSTACLES: dict[FilterResult, tuple[Obstacle, str]] = {
    FilterResult.CLOSED: (Obstacle.NODES_CLOSED, "closed (cordoned, draining, quarantined or lost)"),
    FilterResult.OTHER_TYPE: (Obstacle.DEVICE_TYPE, "of another device type"),
    FilterResult.DEVICE_MEMORY: (Obstacle.DEVICE_MEMORY, "with devices of too little memory"),
    FilterResult.LABEL: (Obstacle.LABELS, "without the labels that it asks for"),
    FilterResult.ISOLATION: (Obstacle.ISOLATION, "that do not confine jobs, which the pool's policy asks for"),
    FilterResult.SPOT: (Obstacle.SPOT, "spot nodes, which it does not take"),
    FilterResult.FULL: (Obstacle.NO_ROOM, "with no free device"),
    FilterResult.CLAIMED: (Obstacle.CLAIMED, "whose free devices are kept for a job that others leave for"),
    FilterResult.CPUS: (Obstacle.CPUS, "with too few free cpus beside their free devices"),
    FilterResult.MEMORY: (Obstacle.MEMORY, "with too little free memory beside their free devices"),
    FilterResult.GROUP: (Obstacle.TOPOLOGY, "without enough free devices in one NVLink domain"),
    FilterResult.ROOM: (Obstacle.NO_ROOM, "with some room"),
}


@dataclass(slots=True)
class Diagnosis:
    """The main obstacle in a sentence, all refusals, and what would remove them."""

    obstacle: Obstacle
    text: str
    refusals: list[Refusal] = field(default_factory=list)
    unblock: list[str] = field(default_factory=list)


def by_quota(refusal: QuotaRefusal) -> Diagnosis:
    """A team's quota refuses."""
    asked, held, bound = refusal.asked_milli // 1000, refusal.held_milli // 1000, refusal.bound_milli // 1000
    answer = Refusal(obstacle=Obstacle.QUOTA, by=refusal.at or "pool", asked=asked, available=max(0, bound - held), text=refusal.text())
    if refusal.rule is QuotaRule.LIMIT:
        over = shown(max(0, refusal.held_milli + refusal.asked_milli - refusal.bound_milli))
        ways = [f"{over} devices of team {refusal.at} come free", f"a policy with a higher limit for team {refusal.at}"]
    else:
        ways = [f"team {team} uses or lends what it keeps ({shown(milli)})" for team, milli in refusal.reserved_for]
    return Diagnosis(Obstacle.QUOTA, refusal.text(), [answer], ways)


def by_unlisted(team: str, pool: str) -> Diagnosis:
    """The pool's policy lists no such team and refuses those."""
    text = f"quota: team {team} has none in pool {pool}, whose policy refuses teams that it does not list"
    refusal = Refusal(obstacle=Obstacle.QUOTA, by=team, text=text)
    return Diagnosis(Obstacle.QUOTA, text, [refusal], [f"a policy that lists team {team}: `trainhouse policy apply {pool} FILE`"])


def by_project(book: Book, job: Waiting) -> Diagnosis:
    """As many jobs of its project have devices as may."""
    bound, held = book.bounds.of(job.project), book.held_by_project(job)
    most = bound.running if bound is not None else None
    where = f"project {job.project}"
    jobs = "1 job" if held == 1 else f"{held} jobs"
    text = f"{where} has {jobs} with devices of pool {job.shape.pool}, and its limits.running is {most}"
    refusal = Refusal(obstacle=Obstacle.QUOTA, by=where, count=held, text=text)
    return Diagnosis(Obstacle.QUOTA, text, [refusal], [f"the end of a job of {where}", f"a higher limits.running of {where}"])


def quota_refusal(book: Book, shape: Shape, team: str) -> QuotaRefusal | None:
    """Whether a team may hold one more gang of a shape (an elastic one at its least size), where it would go now, whatever its type there.

    What others of the team wait for on claims counts as held.
    """
    least, pool = shape.least_ranks, shape.pool
    quotas = book.usage.quotas(pool)
    if not quotas.tree.types:
        return None
    ledgers = (quotas, pledged(book, pool)) if book.claims else (quotas,)
    refusals = [q.may_start(team, amounts_least(shape)) for q in ledgers]
    refusal = next((r for r in refusals if r is not None), None)
    if refusal is not None:
        return refusal
    for variant in (shape, *variants(book, shape)):
        placement = place(book.cluster, variant, book.policy(pool).packing, ranks=least)
        if placement is None:
            continue
        refusals = [q.may_start(team, book.amounts(shape, placement)) for q in ledgers]
        refused = next((r for r in refusals if r is not None), None)
        if refused is None:
            return None
        refusal = refusal or refused
    return refusal


def fits(book: Book, shape: Shape, avoid: int = 0) -> bool:
    """Whether devices for the gang are free now, on other nodes than `avoid`."""
    return place(book.cluster, shape, book.policy(shape.pool).packing, ranks=shape.least_ranks, avoid=avoid) is not None


def by_nodes(book: Book, shape: Shape) -> Diagnosis:
    """Nodes or a topology level refuse. Asks every node of the pool."""
    refused = refusals(book.cluster, shape, book.policy(shape.pool).packing)
    if not refused.counts:
        return Diagnosis(Obstacle.NO_NODES, f"pool {shape.pool} has no node", [], [f"a node that joins pool {shape.pool}"])
    reasons = [_refusal_of(book, kind, nodes, refused.needs) for kind, nodes in refused.nodes if kind is not FilterResult.ROOM]
    wanted = shape.least_ranks
    if shape.require and refused.room >= wanted:
        text = f"no {shape.require} has {devices(wanted)} free for it: the roomiest has {refused.largest}"
        reasons.insert(0, Refusal(obstacle=Obstacle.TOPOLOGY, by=shape.require, asked=wanted, available=refused.largest, text=text))
        return Diagnosis(Obstacle.TOPOLOGY, text, reasons, _ways(shape, refused, wanted - refused.largest, f" in one {shape.require}"))
    if refused.room >= wanted:
        text = f"it needs {needs(shape)}; {refused.room} such places are free, but not together as it needs them"
        return Diagnosis(Obstacle.TOPOLOGY, text, reasons, _ways(shape, refused, 1, " near those that are free"))
    text = f"it needs {needs(shape)}; {refused.room} such {'place is' if refused.room == 1 else 'places are'} free now"
    main = Obstacle.NO_ROOM if refused.room or not reasons else _worst(refused)
    return Diagnosis(main, text, reasons, _ways(shape, refused, wanted - refused.room, ""))


def _worst(refused: Refusals) -> Obstacle:
    """Returns the main obstacle if no node has any room: FULL counts before permanent ones, since waiting helps there."""
    kinds = {kind for kind, _ in refused.counts}
    for kind in (FilterResult.FULL, FilterResult.CLAIMED, FilterResult.CPUS, FilterResult.MEMORY, FilterResult.GROUP, FilterResult.CLOSED):
        if kind in kinds:
            return FILTER_OBSTACLES[kind][0]
    return FILTER_OBSTACLES[refused.counts[0][0]][0]


def _refusal_of(book: Book, kind: FilterResult, nodes: int, asked: int) -> Refusal:
    obstacle, words = FILTER_OBSTACLES[kind]
    count, known = nodes.bit_count(), book.cluster.layout.slots
    text = f"{count} node{'' if count == 1 else 's'} {words}"
    few = (known[node] for node in islice(bits_of(nodes), MOST_EXAMPLES))
    examples = tuple(slots.node_id for slots in few if slots is not None)
    return Refusal(obstacle=obstacle, by="nodes", count=count, asked=asked, available=0, examples=examples, text=text)


def _ways(shape: Shape, refused: Refusals, missing: int, where: str) -> list[str]:
    types = {t for b in shape.blocks for t in b.types}
    of_type = f" of type {' or '.join(sorted(types))}" if types else ""
    ways = [f"{max(1, missing)} more free {'device' if missing <= 1 else 'devices'}{of_type}{where}"]
    closed = dict(refused.counts).get(FilterResult.CLOSED, 0)
    if closed:
        ways.append(f"opening closed nodes: {closed} are cordoned, draining, quarantined or lost (`trainhouse nodes`)")
    if shape.require and where:
        ways.append(f"`prefer: {shape.require}` instead of `require` in its spec")
    return ways

"""A partition's state as plain rows for people and programs: pools, nodes and what holds them, gangs, the queue in its order, promises.

Holds: pure; rows come in a stated order and hold text, numbers, lists and dicts alone; times are milliseconds since 1970.
Never: changes the state.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from trainhouse.events import Restriction
from trainhouse.events.model.phases import Pending
from trainhouse.scheduler.core.cluster.shape import WHOLE
from trainhouse.scheduler.core.queue.order import in_order
from trainhouse.scheduler.core.state.records import Job, Node, NodeHealth
from trainhouse.scheduler.core.state.state import ScheduleState
from trainhouse.scheduler.core.state.supply import free_of, is_open, shut_of
from trainhouse.scheduler.core.state.transitions import state_of

Row = dict[str, Any]
KINDS: Final = ("pools", "nodes", "running", "queue", "teams", "policies", "reservations", "claims")


def cluster(states: Iterable[ScheduleState], now_ms: int) -> dict[str, list[Row]]:
    """All rows of some partitions by kind (see KINDS), as of `now_ms`."""
    found: dict[str, list[Row]] = {kind: [] for kind in KINDS}
    for state in sorted(states, key=lambda s: s.partition):
        makers = (
            pools(state),
            nodes(state),
            running(state),
            queue(state, now_ms),
            teams(state, now_ms),
            policies(state),
            reservations(state),
            claims(state),
        )
        for kind, rows in zip(KINDS, makers, strict=True):
            found[kind] += rows
    return found


def pools(state: ScheduleState) -> Iterator[Row]:
    """Every pool, by name: its devices by type, topology levels, policy, and how many jobs wait and run."""
    names = sorted({*state.pools, *state.nodes_of_pool})
    for name in names:
        inside = list(state.in_pool(name))
        yield {
            "pool": name,
            "partition": state.partition,
            "nodes": len(inside),
            "nodes_open": sum(is_open(n) for n in inside),
            "nodes_lost": sum(n.health is NodeHealth.LOST for n in inside),
            "nodes_closed": sum(n.restriction is not Restriction.NONE for n in inside),
            "devices": _by_type(inside),
            "levels": sorted(state.book.cluster.levels(name)),
            "policy": state.book.policy(name).name,
            "policy_version": state.pool(name).policy_version,
            "waiting": len(state.book.lanes.jobs(name)),
            "running": len([j for j in state.active if state.jobs[j].pool == name]),
        }


def nodes(state: ScheduleState) -> Iterator[Row]:
    """Every node, by pool and id: its devices by type (total, held, free, closed), who holds which, and what is held against it."""
    for node in sorted(state.nodes.values(), key=lambda n: (n.pool, n.node_id)):
        yield {
            "node_id": str(node.node_id),
            "pool": str(node.pool),
            "health": node.health.value,
            "restriction": node.restriction.value,
            "restricted_by": node.restricted_by,
            "restricted_for": node.restricted_for,
            "goes_away_at_ms": node.notice.deadline_ms if node.notice is not None else None,
            "closed_devices": [str(d) for d in node.trust.closed_devices],
            "blames": [b.model_dump(mode="json") for b in node.trust.blames],
            "labels": dict(sorted(node.labels.items())),
            "devices": _by_type([node]),
            "holds": [
                {"job_id": str(h.job_id), "epoch": int(h.epoch), "devices": [str(d) for d in h.devices], "device_share": h.device_share}
                for h in node.holds
            ],
        }


def running(state: ScheduleState) -> Iterator[Row]:
    """Every gang that has devices, by job id, with its ranks on each node."""
    for job_id in sorted(state.active):
        job = state.jobs[job_id]
        if job.allotment is None:
            continue
        on = [{"node_id": str(p.node_id), "ranks": len(p.devices)} for p in job.allotment.placements]
        ranks = sum(len(p.devices) for p in job.allotment.placements)
        attempt = {"attempt": int(job.attempt), "epoch": int(job.epoch), "since_ms": job.allotment.allocated_at_ms}
        yield _about(job) | {"ranks": ranks, "nodes": on} | attempt


def queue(state: ScheduleState, now_ms: int) -> Iterator[Row]:
    """Waiting jobs in the order in which their pool's policy looks at them; those that rest after a failed attempt come last."""
    book = state.book.fork()
    for pool in book.lanes.pools():
        ordered, turn = [], in_order(book.lanes, book.usage, pool, book.policy(pool), now_ms)
        while (head := turn.head()) is not None:
            ordered.append(head.job_id)
            turn.skip()
        known = set(ordered)
        resting = [w.job_id for w in book.lanes.jobs(pool) if w.job_id not in known]
        for place, job_id in enumerate([*ordered, *resting], 1):
            job = state.jobs[job_id]
            not_before_ms = job.phase.not_before_ms if isinstance(job.phase, Pending) else 0
            times = {"waits_since_ms": job.waits_since_ms, "rests_until_ms": not_before_ms if not_before_ms > now_ms else None}
            yield {"place": place} | _about(job) | {"ranks": job.spec.gang.ranks} | times


def teams(state: ScheduleState, now_ms: int) -> Iterator[Row]:
    """Every team that a policy names, runs or waits, by pool: devices held, quotas, its share of the pool and the fair one."""
    book = state.book.fork()
    for pool in sorted({*state.pools, *state.nodes_of_pool}):
        usage, policy = book.usage.of(pool), book.policy(pool)
        waiting = [w.team for w in book.lanes.jobs(pool)]
        fair = usage.fair_shares(waiting)
        named = {t.name: t for t in policy.teams}
        for team in sorted({*named, *usage.running(), *waiting}):
            quota = named.get(team)
            yield {
                "pool": pool,
                "team": team,
                "devices": _devices_of(usage.quotas.held(team)),
                "guaranteed": dict(quota.guaranteed) if quota else {},
                "limit": dict(quota.limit) if quota else {},
                "share": round(usage.share(team, now_ms), 6),
                "fair_share": round(fair.get(team, 0.0), 6),
                "waiting": waiting.count(team),
            }


def policies(state: ScheduleState) -> Iterator[Row]:
    """The policy of every pool that was given one, by pool."""
    for pool in sorted(state.book.policies):
        policy = state.book.policies[pool]
        yield {"pool": pool, "name": policy.name, "version": state.pool(pool).policy_version, "policy": policy.model_dump(mode="json")}


def reservations(state: ScheduleState) -> Iterator[Row]:
    """Start times that are held, by start."""
    for held in sorted(state.reservations.values(), key=lambda r: (r.start_ms, r.job_id)):
        yield held.model_dump(mode="json")


def claims(state: ScheduleState) -> Iterator[Row]:
    """Devices that waiting jobs start on when all are free, by job."""
    for job_id in sorted(state.claims):
        yield state.claims[job_id].model_dump(mode="json")


def _about(job: Job) -> Row:
    return {
        "job_id": str(job.job_id),
        "pool": str(job.pool),
        "state": state_of(job.phase).value,
        "priority": job.priority,
        "user": job.spec.user,
        "team": job.spec.team,
        "device_type": job.spec.resources.device_type,
        "reason": job.reason,
    }


def _by_type(nodes_: Iterable[Node]) -> dict[str, dict[str, float]]:
    """Devices by type. Closed ones are those that no job holds and none can get."""
    milli: dict[str, dict[str, int]] = {}
    for node in nodes_:
        free_mask, shares, *_ = free_of(node)
        opened, shut = is_open(node), shut_of(node)
        for position, device in enumerate(node.offered):
            counts = milli.setdefault(device.type, dict.fromkeys(("total", "held", "free", "closed"), 0))
            left = WHOLE if free_mask >> position & 1 else shares.get(position, 0)
            counts["total"] += WHOLE
            counts["held"] += WHOLE - left
            counts["free" if opened and not shut >> position & 1 else "closed"] += left
    return {t: {what: _devices_of(count) for what, count in milli[t].items()} for t in sorted(milli)}


def _devices_of(milli: int) -> float:
    """Thousandths as devices: a whole number where it is one."""
    return milli // WHOLE if milli % WHOLE == 0 else milli / WHOLE

"""Judges of what a schedule journal promises: quotas, claims of preemptors, held start times. They read records and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.simulation.checkers import FOR_OTHERS, WHOLE, Records, cause_of, decided, share_of
from trainhouse.events import Event, GangAllocated, NodeNoticed, NodeRestricted, PolicyApplied, Restriction, SchedulingPolicy
from trainhouse.events.model.decisions import (
    JobForgotten,
    JobMoved,
    JobQueued,
    JobRequeued,
    JobRetuned,
    NodeGivenUp,
    NodeJoined,
    PartEnded,
    TrustChanged,
)
from trainhouse.events.model.phases import StopKind
from trainhouse.events.model.policy import Blocking, Order, RunTimes, Team
from trainhouse.events.model.pool import ClaimDropped, DevicesClaimed, StartReserved
from trainhouse.events.wire.journal import ClockTicked

ANY = "any"
Amounts = Counter[str]


# ---- quotas


@dataclass
class _Teams:
    """What each job holds in one pool, by device type and "any", and the policy."""

    pool: str
    policy: SchedulingPolicy = field(default_factory=SchedulingPolicy)
    types: dict[str, tuple[str, dict[str, str]]] = field(default_factory=dict)
    gangs: dict[str, dict[str, Amounts]] = field(default_factory=dict)
    team_of: dict[str, str] = field(default_factory=dict)

    def see(self, decision: Event) -> None:
        match decision:
            case NodeJoined():
                self.types[decision.node_id] = (decision.pool, {d.device_id: d.type for d in decision.devices})
            case PolicyApplied() if decision.pool == self.pool:
                self.policy = decision.policy
            case GangAllocated() if decision.pool == self.pool:
                self.team_of[decision.job_id] = decision.spec.team
                parts = {p.node_id: [self.types[p.node_id][1][d] for d in p.devices] for p in decision.placements}
                milli = share_of(decision)
                self.gangs[decision.job_id] = {n: Counter({t: k.count(t) * milli for t in (*k, ANY)}) for n, k in parts.items()}
                for node, kinds in parts.items():
                    self.gangs[decision.job_id][node][ANY] = milli * len(kinds)
            case PartEnded() if decision.job_id in self.gangs:
                self.gangs[decision.job_id].pop(decision.node_id, None)
            case JobRequeued() | JobForgotten():
                self.gangs.pop(decision.job_id, None)

    def held(self, name: str, device_type: str) -> int:
        """What a team and all below it hold; "" is the pool."""
        return sum(
            sum(a[device_type] for a in parts.values()) for job, parts in self.gangs.items() if name in ("", *self.path(self.team_of[job]))
        )

    def team(self, name: str) -> Team | None:
        return next((t for t in self.policy.teams if t.name == name), None)

    def path(self, name: str) -> list[str]:
        found, at = [name], self.team(name)
        while at is not None and at.parent is not None:
            found.append(at.parent)
            at = self.team(at.parent)
        return found

    def capacity(self, device_type: str) -> int:
        return WHOLE * sum(1 for pool, ts in self.types.values() if pool == self.pool for t in ts.values() if device_type in (t, ANY))


def quotas_kept(records: Records, pool: str = "default") -> Iterator[str]:
    """At each start no team passes a limit of its own or above it, nor takes idle devices of a team that does not lend."""
    teams = _Teams(pool)
    for record, decision in decided(records):
        teams.see(decision)
        if isinstance(decision, GangAllocated) and decision.pool == pool:
            for wrong in _over_quota(teams, decision.spec.team):
                yield f"seq {record.seq}: with {decision.job_id} {wrong}"


def _over_quota(teams: _Teams, team: str) -> Iterator[str]:
    path = teams.path(team)
    for name in path:
        known = teams.team(name)
        for device_type, limit in sorted(known.limit.items()) if known is not None else ():
            if teams.held(name, device_type) > limit * WHOLE:
                yield f"team {name} holds {teams.held(name, device_type)} thousandths of {device_type}, limited to {limit}"
    own = any((t := teams.team(n)) is not None and teams.held(n, ANY) <= t.guaranteed.get(ANY, 0) * WHOLE for n in path)
    kept = sum(max(0, t.guaranteed.get(ANY, 0) * WHOLE - teams.held(t.name, ANY)) for t in teams.policy.teams if not t.lends)
    if not own and teams.held("", ANY) + kept > teams.capacity(ANY):
        yield f"only {teams.capacity(ANY) - teams.held('', ANY)} thousandths are left of {kept} that are not lent"


# ---- claims


def preemptors_start(records: Records) -> Iterator[str]:
    """Who is asked to leave is asked for a claim; a claim ends with its job's start on exactly its devices, or when a node of it closed.

    Nobody else gets claimed devices. What a failed gang holds on to for its restart has no victims, and may be let go.
    """
    claims: dict[str, DevicesClaimed] = {}
    spoilt: set[str] = set()
    closed: dict[str, Restriction] = {}
    causes: dict[str, StopKind | None] = {}
    for record in records:
        made = [d for d in record.decisions if isinstance(d, DevicesClaimed)]
        wanted, resettled = {str(v) for d in made for v in d.victims}, {str(d.job_id) for d in made}
        for decision in record.decisions:
            match decision:
                case DevicesClaimed(job_id=job_id):
                    if job_id in claims:
                        yield f"seq {record.seq}: {job_id} claims again before its claim is over"
                    for other in _overlapping(decision, claims):
                        yield f"seq {record.seq}: {job_id} claims devices that {other} claims"
                    claims[job_id] = decision
                    spoilt.discard(job_id)
                case GangAllocated(job_id=job_id):
                    claim = claims.pop(job_id, None)
                    if claim is not None and _devices(claim) != {(p.node_id, d) for p in decision.placements for d in p.devices}:
                        yield f"seq {record.seq}: {job_id} starts elsewhere than on what it claims"
                    for other in (o for o, c in claims.items() if share_of(decision) == WHOLE and _on(c, decision)):
                        yield f"seq {record.seq}: {job_id} gets devices that are claimed for {other}"
                    causes[job_id] = None
                case ClaimDropped(job_id=job_id):
                    claim = claims.pop(job_id, None)
                    nodes = {p.node_id for p in claim.parts} if claim is not None else set()
                    for_others = claim is None or claim.victims
                    if for_others and job_id not in spoilt and all(closed.get(n, Restriction.NONE) is Restriction.NONE for n in nodes):
                        yield f"seq {record.seq}: the claim of {job_id} is dropped though its nodes are as they were"
                case JobForgotten(job_id=job_id):
                    claims.pop(job_id, None)
                case NodeGivenUp() | NodeJoined() | NodeRestricted() | NodeNoticed() | TrustChanged():
                    if isinstance(decision, NodeRestricted):
                        closed[decision.node_id] = decision.restriction
                    spoilt |= {j for j, c in claims.items() if decision.node_id in {p.node_id for p in c.parts}}
                case JobMoved(job_id=job_id):
                    kind = cause_of(decision.phase)
                    known = wanted if kind is StopKind.PREEMPTED else wanted | resettled
                    if kind in FOR_OTHERS and causes.get(job_id) not in FOR_OTHERS and str(job_id) not in known:
                        yield f"seq {record.seq}: {job_id} is asked to leave, and nobody claims its devices"
                    causes[job_id] = kind
    yield from (f"{job_id} has a claim in the end, and never started on it" for job_id in sorted(claims))


def _devices(claim: DevicesClaimed) -> set[tuple[str, str]]:
    return {(p.node_id, d) for p in claim.parts for d in p.devices}


def _overlapping(claim: DevicesClaimed, claims: dict[str, DevicesClaimed]) -> list[str]:
    whole = all(p.device_share == WHOLE for p in claim.parts)
    return [j for j, other in claims.items() if whole and j != claim.job_id and _devices(claim) & _devices(other)]


def _on(claim: DevicesClaimed, gang: GangAllocated) -> bool:
    return bool(_devices(claim) & {(p.node_id, d) for p in gang.placements for d in p.devices})


# ---- held starts


@dataclass
class _Ends:
    """When running gangs were expected to end, by their limits, and when last one was found to be late."""

    limit_s: dict[str, float | None] = field(default_factory=dict)
    ran_ms: dict[str, int] = field(default_factory=dict)
    ends: dict[str, float] = field(default_factory=dict)
    late_ms: int = 0

    def see(self, decision: Event, now_ms: int) -> None:
        match decision:
            case JobQueued():
                self.limit_s[decision.job_id] = decision.spec.limits.run_time_s
            case JobRetuned():
                self.limit_s[decision.job_id] = decision.limits.run_time_s
            case GangAllocated(job_id=job_id):
                limit_s = self.limit_s[job_id]
                if limit_s is not None:
                    left_ms = limit_s * 1000 - self.ran_ms.get(job_id, 0)
                    self.ends[job_id] = now_ms + left_ms * decision.spec.gang.ranks / decision.world_size
            case JobRequeued() | JobForgotten():
                self.ends.pop(decision.job_id, None)
                if isinstance(decision, JobRequeued):
                    self.ran_ms[decision.job_id] = decision.tally.ran_ms

    def look(self, now_ms: int) -> None:
        if any(end < now_ms for end in self.ends.values()):
            self.late_ms = now_ms


def promises_kept(records: Records, *, exact: bool = False, pool: str = "default") -> Iterator[str]:
    """Under backfill in order of submission a held start is never put off, nor missed, unless its cause is in the journal.

    Causes: nodes went, came or closed; another policy; a job ahead came back or was changed; a gang ran over its limit. `exact`: there are
    no causes at all.
    """
    promised: dict[str, int] = {}
    made: dict[str, int] = {}
    ends, judged, upset_ms, looked_ms = _Ends(), exact, 0, 0
    for record in records:
        upset = False
        ends.look(record.now_ms)
        for decision in record.decisions:
            ends.see(decision, record.now_ms)
            match decision:
                case PolicyApplied() if decision.pool == pool:
                    policy = decision.policy
                    judged = (policy.order, policy.blocking, policy.run_times) == (Order.SUBMIT, Blocking.BACKFILL, RunTimes.LIMITS)
                    upset = True
                case NodeGivenUp() | NodeJoined() | NodeRestricted() | NodeNoticed() | TrustChanged() | JobRequeued() | JobRetuned():
                    upset = True
                case StartReserved(job_id=job_id):
                    excused = not exact and (not judged or upset or max(upset_ms, ends.late_ms) >= made.get(job_id, 0))
                    if job_id in promised and decision.start_ms > promised[job_id] and not excused:
                        yield f"seq {record.seq}: the start of {job_id} is put off by {decision.start_ms - promised[job_id]} ms"
                    promised[job_id], made[job_id] = decision.start_ms, record.now_ms
                case GangAllocated(job_id=job_id) if job_id in promised:
                    excused = not exact and (not judged or upset or max(upset_ms, ends.late_ms) >= made[job_id])
                    if looked_ms >= promised.pop(job_id) and record.now_ms > looked_ms and not excused:
                        yield f"seq {record.seq}: {job_id} starts later than was promised"
                case JobForgotten(job_id=job_id):
                    promised.pop(job_id, None)
        upset_ms = record.now_ms if upset else upset_ms
        ends.look(record.now_ms)
        if any(i.envelope is not None and isinstance(i.envelope.event, ClockTicked) for i in record.inputs):
            looked_ms = record.now_ms
        for job_id, start_ms in promised.items():
            if exact and start_ms < record.now_ms:
                yield f"seq {record.seq}: {job_id} was promised a start, and still waits"

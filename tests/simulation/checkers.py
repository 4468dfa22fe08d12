"""Judges of a schedule journal: each reads its records (inputs, decisions) and nothing else, and yields what is wrong.

Holds: none shares code with the scheduler; what holds a device is told by inputs of nodes, not by the scheduler's word for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from trainhouse.events import (
    AttemptStarted,
    AttemptStopped,
    Event,
    GangAllocated,
    JobStatus,
    NodeNoticed,
    NodeRegistered,
    NodeRestricted,
    Restriction,
)
from trainhouse.events.model.decisions import (
    DevicesFreed,
    JobForgotten,
    JobMoved,
    JobQueued,
    JobRequeued,
    NodeGivenUp,
    NodeJoined,
    PartEnded,
    RankFinished,
    TrustChanged,
)
from trainhouse.events.model.phases import Checkpointing, Phase, StopKind, Stopping
from trainhouse.events.wire.journal import ClockTicked, InputRefused, JournalRecord, PlacementFrozen

Records = Sequence[JournalRecord]
WHOLE = 1000
EXITS_TOLD_MS = 3_000
FOR_OTHERS = (StopKind.PREEMPTED, StopKind.MOVED, StopKind.RESIZED)


def decided(records: Records) -> Iterator[tuple[JournalRecord, Event]]:
    """Every decision with its record."""
    for record in records:
        for decision in record.decisions:
            yield record, decision


def share_of(gang: GangAllocated) -> int:
    """Thousandths of each device."""
    return gang.spec.resources.device_share or WHOLE


def cause_of(phase: Phase) -> StopKind | None:
    """Why an attempt is on its way out."""
    return phase.cause.kind if isinstance(phase, Checkpointing | Stopping) else None


@dataclass
class _Held:
    """Devices by who holds them, as nodes say: from a gang's allocation until its node says that it is gone."""

    held: dict[tuple[str, str, int], tuple[tuple[str, ...], int]] = field(default_factory=dict)
    started: set[tuple[str, str, int]] = field(default_factory=set)
    boots: dict[str, str] = field(default_factory=dict)
    over: set[tuple[str, int]] = field(default_factory=set)
    given_up: set[tuple[str, str, int]] = field(default_factory=set)
    epochs: dict[str, int] = field(default_factory=dict)
    back: list[NodeRegistered] = field(default_factory=list)

    def hear(self, event: Event) -> None:
        """A node says something."""
        match event:
            case AttemptStarted():
                self.started.add((event.node_id, event.job_id, event.epoch))
            case AttemptStopped():
                self.held.pop((event.node_id, event.job_id, event.epoch), None)
            case NodeRegistered():
                self.back.append(event)

    def _registered(self, event: NodeRegistered) -> None:
        runs = {(r.job_id, r.epoch) for r in event.running}
        rebooted = self.boots.get(event.node_id) not in (None, event.boot_id)
        self.boots[event.node_id] = event.boot_id
        for key in [k for k in self.held if k[0] == event.node_id and k[1:] not in runs]:
            # An order that is not read yet may still be read, unless it is over there: then its release comes before anything new.
            if rebooted or key in self.started | self.given_up or key[1:] in self.over:
                del self.held[key]

    def see(self, decision: Event) -> None:
        """The scheduler gives devices, or ends an attempt."""
        match decision:
            case GangAllocated():
                self.epochs[decision.job_id] = decision.epoch
                for part in decision.placements:
                    self.held[part.node_id, decision.job_id, decision.epoch] = (part.devices, share_of(decision))
            case JobRequeued() | JobForgotten():
                self.over.add((decision.job_id, self.epochs.get(decision.job_id, 0)))
            case PartEnded():
                self.given_up.add((decision.node_id, decision.job_id, decision.epoch))
            case NodeJoined():
                # In the order of the record: what was over before the node came back is over for it.
                told = next(e for e in self.back if e.node_id == decision.node_id)
                self.back.remove(told)
                self._registered(told)

    def load(self) -> Counter[tuple[str, str]]:
        """Thousandths held, by node and device."""
        found: Counter[tuple[str, str]] = Counter()
        for (node, _, _), (devices, milli) in self.held.items():
            for device in devices:
                found[node, device] += milli
        return found


def _held(records: Records) -> Iterator[tuple[JournalRecord, Event, _Held]]:
    """Every decision, with what is held after it."""
    held = _Held()
    for record in records:
        for item in record.inputs:
            if item.envelope is not None:
                held.hear(item.envelope.event)
        for decision in record.decisions:
            held.see(decision)
            yield record, decision, held


def no_device_twice(records: Records) -> Iterator[str]:
    """No device is in two gangs at any instant, nor given as free before its node said so; no node gives what it does not have."""
    offered: dict[str, tuple[str, set[str]]] = {}
    for record, decision, held in _held(records):
        match decision:
            case NodeJoined():
                offered[decision.node_id] = (decision.boot_id, {d.device_id for d in decision.devices})
            case GangAllocated():
                load = held.load()
                for part in decision.placements:
                    boot, devices = offered.get(part.node_id, ("", set()))
                    if part.boot_id != boot or not set(part.devices) <= devices:
                        yield f"seq {record.seq}: {decision.job_id} gets devices of {part.node_id} that it does not have"
                    for device in part.devices:
                        if load[part.node_id, device] > WHOLE:
                            yield f"seq {record.seq}: {device} of {part.node_id} is given to {decision.job_id} while others hold it"
            case DevicesFreed() if (decision.node_id, decision.job_id, decision.epoch) in held.held:
                yield f"seq {record.seq}: devices of {decision.job_id} on {decision.node_id} are freed, and the node did not say so"


def whole_gangs(records: Records) -> Iterator[str]:
    """Every gang is whole (or within its minimum and maximum), where its spec allows it, and one attempt at a time."""
    nodes: dict[str, NodeJoined] = {}
    live: dict[str, int] = {}
    epochs: dict[str, int] = {}
    for record, decision in decided(records):
        match decision:
            case NodeJoined():
                nodes[decision.node_id] = decision
            case JobRequeued() | JobForgotten():
                live.pop(decision.job_id, None)
            case GangAllocated():
                for wrong in _wrong_gang(decision, nodes):
                    yield f"seq {record.seq}: {decision.job_id} {wrong}"
                if decision.job_id in live:
                    yield f"seq {record.seq}: {decision.job_id} gets a second gang beside its epoch {live[decision.job_id]}"
                if decision.epoch != epochs.get(decision.job_id, 0) + 1:
                    yield f"seq {record.seq}: {decision.job_id} has epoch {decision.epoch} after {epochs.get(decision.job_id, 0)}"
                live[decision.job_id] = epochs[decision.job_id] = decision.epoch


def _wrong_gang(gang: GangAllocated, nodes: dict[str, NodeJoined]) -> Iterator[str]:
    asked, spec = gang.spec.gang, gang.spec
    devices = [(p.node_id, d) for p in gang.placements for d in p.devices]
    if not asked.least_ranks <= len(set(devices)) == len(devices) <= asked.ranks:
        yield f"gets {len(set(devices))} devices; it asks for {asked.least_ranks}..{asked.ranks}"
    if [r for p in gang.placements for r in p.ranks] != list(range(len(devices))):
        yield "has ranks that do not follow each other"
    types = [next(d.type for d in nodes[n].devices if d.device_id == device) for n, device in devices]
    first = 0
    for count, resources in [(r.ranks, r.resources or spec.resources) for r in asked.roles] or [(len(devices), spec.resources)]:
        wanted = resources.device_type
        if wanted != "any" and set(types[first : first + count]) - {wanted}:
            yield f"asks for {wanted} and gets {sorted(set(types[first : first + count]))}"
        first += count
    used = [nodes[p.node_id] for p in gang.placements]
    if asked.require:
        domains = {n.node_id if asked.require == "node" else n.labels.get(asked.require, n.node_id) for n in used}
        if len(domains) > 1:
            yield f"is spread over {sorted(domains)}; it requires one {asked.require}"
    for node in used:
        if any(node.labels.get(k) != v for k, v in spec.placement.node_labels.items()):
            yield f"is on {node.node_id}, which has other labels than it asks for"
        if node.labels.get("spot") == "true" and not spec.placement.spot:
            yield f"is on {node.node_id}, which is a spot node"
        if node.pool != spec.pool:
            yield f"is on {node.node_id} of pool {node.pool}"


def closed_nodes_get_nothing(records: Records) -> Iterator[str]:
    """Nothing new is placed on a node that is cordoned, draining, quarantined, about to go away, or given up and not back, nor on a bad
    device."""
    closed: dict[str, Restriction] = {}
    lost: set[str] = set()
    leaving: dict[str, tuple[str, str]] = {}
    bad: dict[str, set[str]] = {}
    for record, decision in decided(records):
        match decision:
            case NodeRestricted():
                closed[decision.node_id] = decision.restriction
            case NodeGivenUp():
                lost.add(decision.node_id)
            case NodeJoined():
                lost.discard(decision.node_id)
                if leaving.get(decision.node_id) != (decision.boot_id, decision.incarnation):
                    leaving.pop(decision.node_id, None)
            case NodeNoticed():
                leaving[decision.node_id] = (decision.boot_id, decision.incarnation)
            case TrustChanged():
                bad[decision.node_id] = set(decision.trust.closed_devices)
            case GangAllocated():
                for part in decision.placements:
                    if part.node_id in leaving or bad.get(part.node_id, set()) & set(part.devices):
                        yield f"seq {record.seq}: {decision.job_id} is placed on {part.node_id}, which goes away, or on a bad device of it"
                    if part.node_id in lost or closed.get(part.node_id, Restriction.NONE) is not Restriction.NONE:
                        yield f"seq {record.seq}: {decision.job_id} is placed on {part.node_id}, which is closed"


def broken_gangs_stop(records: Records) -> Iterator[str]:
    """No gang goes on below its size: once a part of it ended without all its ranks' success, the whole of it is stopped."""
    gangs: dict[str, GangAllocated] = {}
    clean: dict[str, set[int]] = {}
    ended: dict[str, dict[str, int]] = {}
    stopping: set[str] = set()
    for record in records:
        for decision in record.decisions:
            match decision:
                case GangAllocated(job_id=job_id):
                    gangs[job_id], clean[job_id], ended[job_id] = decision, set(), {}
                    stopping.discard(job_id)
                case RankFinished(job_id=job_id):
                    clean[job_id].add(decision.rank)
                case PartEnded(job_id=job_id):
                    ended[job_id][decision.node_id] = record.now_ms
                case JobMoved(job_id=job_id) if isinstance(decision.phase, Stopping):
                    stopping.add(job_id)
                case JobRequeued(job_id=job_id) | JobForgotten(job_id=job_id):
                    gangs.pop(job_id, None)
        if not any(i.envelope is not None and isinstance(i.envelope.event, ClockTicked) for i in record.inputs):
            continue
        for job_id, gang in gangs.items():
            for part in gang.placements:
                gone_ms = ended[job_id].get(part.node_id)
                unclean = set(part.ranks) - clean[job_id]
                if gone_ms is not None and unclean and job_id not in stopping and record.now_ms - gone_ms >= EXITS_TOLD_MS:
                    yield f"seq {record.seq}: {job_id} goes on without its part on {part.node_id}"


def all_over(records: Records) -> Iterator[str]:
    """In the end every job has ended, said so once and last, and holds nothing."""
    statuses: dict[str, list[JobStatus]] = {}
    queued, forgotten = set(), set()
    held = _Held()
    for _, decision, after in _held(records):
        held = after
        match decision:
            case JobQueued():
                queued.add(decision.job_id)
            case JobForgotten():
                forgotten.add(decision.job_id)
            case JobStatus():
                statuses.setdefault(str(decision.job_id), []).append(decision)
    yield from (f"{job_id} never ends" for job_id in sorted(queued - forgotten))
    for job_id, told in sorted(statuses.items()):
        if [s.public_seq for s in told] != [1, *(s.status_seq + 1 for s in told[:-1])]:
            yield f"{job_id} has statuses with a gap or a repeat"
        if [s.state.final for s in told] != [False] * (len(told) - 1) + [True]:
            yield f"{job_id} does not end with the one final status"
    yield from (f"{job_id} holds {devices} of {node} in the end" for (node, job_id, _), (devices, _) in sorted(held.held.items()))


def nothing_failed(records: Records) -> Iterator[str]:
    """No input made the machine raise, and placement never froze."""
    for record, decision in decided(records):
        if isinstance(decision, PlacementFrozen | InputRefused):
            yield f"seq {record.seq}: {type(decision).__name__}: {decision.reason}"


def evictions_bounded(records: Records, most: int) -> Iterator[str]:
    """No job is asked to leave for others more than `most` times."""
    asked: Counter[str] = Counter()
    causes: dict[str, StopKind | None] = {}
    for record, decision in decided(records):
        match decision:
            case JobMoved(job_id=job_id):
                kind = cause_of(decision.phase)
                if kind in FOR_OTHERS and causes.get(job_id) not in FOR_OTHERS:
                    asked[job_id] += 1
                    if asked[job_id] == most + 1:
                        yield f"seq {record.seq}: {job_id} was asked to leave {asked[job_id]} times"
                causes[job_id] = kind
            case GangAllocated(job_id=job_id):
                causes[job_id] = None

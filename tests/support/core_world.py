"""Builders for tests of the scheduler's core: inputs as agents and the directory send them, and a driver that folds what was decided."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from trainhouse.events import (
    AttemptStarted,
    AttemptStopped,
    CheckpointCompleted,
    Device,
    DeviceDegraded,
    Envelope,
    Event,
    EventId,
    GangAllocated,
    GangHung,
    JobAdmitted,
    JobSpec,
    JobStatus,
    LossDiverged,
    NodeLost,
    NodeNoticed,
    NodeProbeAsked,
    NodeProbed,
    NodeRegistered,
    Order,
    PolicyChanged,
    ProgressReported,
    RankExited,
)
from trainhouse.events.wire.journal import ClockTicked
from trainhouse.scheduler.core.protocol.machine import Effect, Input
from trainhouse.scheduler.core.schedule import ScheduleMachine

E = TypeVar("E", bound=Event)


def spec(**fields: Any) -> JobSpec:
    """A spec; `ranks` and `device_type` in short."""
    fields.setdefault("runtime", {"command": ["python", "train.py"]})
    if "ranks" in fields:
        fields["gang"] = {"ranks": fields.pop("ranks")}
    resources = {k: fields.pop(k) for k in ("device_type", "cpus_per_device", "memory_gib_per_device") if k in fields}
    return JobSpec.model_validate(fields | ({"resources": resources} if resources else {}))


def admitted(job_id: str, **fields: Any) -> JobAdmitted:
    """An admission as the directory sends it."""
    s = spec(**fields)
    return JobAdmitted.model_validate(
        {"job_id": job_id, "spec": s, "spec_sha256": s.sha256(), "submission_id": f"sub-{job_id}", "submitted_at_ms": 1}
    )


def registered(node_id: str, slots: int = 2, **fields: Any) -> NodeRegistered:
    """A registration with `slots` cpu slots (or `device_type`)."""
    device_type = fields.pop("device_type", "cpu")
    devices = [Device.model_validate({"device_id": f"{node_id}-{i}", "index": i, "type": device_type}) for i in range(slots)]
    base: dict[str, Any] = {
        "node_id": node_id,
        "boot_id": "boot-1",
        "incarnation": "inc-1",
        "pool": "default",
        "address": f"{node_id}.local",
        "devices": devices,
        "rendezvous_ports": [29500 + i for i in range(slots)],
    }
    return NodeRegistered.model_validate(base | fields)


class Driver:
    """One machine over one partition: feeds inputs, folds decisions, keeps everything that was decided and published."""

    def __init__(self, machine: ScheduleMachine | None = None) -> None:
        self.machine = machine or ScheduleMachine()
        self.state = self.machine.initial(0)
        self.now_ms = 1_000_000
        self.seq = 0
        self.records: list[tuple[int, list[Event]]] = []
        self.effects: list[Effect] = []
        self.decisions: list[Event] = []

    def feed(self, *events: Event | Envelope, wait_ms: int = 0, marks: Sequence[Event] = ()) -> list[Event]:
        """Decides one batch, which ends with a tick as an owner's do, and folds it; returns its decisions. `marks`: the owner's own."""
        self.now_ms += wait_ms
        inputs = [Input(None, Envelope(EventId("m"), "test", m)) for m in marks] + [self._input(e) for e in ending_with_a_tick(events)]
        before = self.machine.dump(self.state)
        decisions = self.machine.decide(self.state, self.now_ms, inputs)
        assert self.machine.dump(self.state) == before, "decide changed the state"
        assert self.machine.decide(self.state, self.now_ms, inputs) == decisions
        self.seq += 1
        self.records.append((self.now_ms, decisions))
        self.state = self.machine.fold(self.state, self.now_ms, inputs, decisions)
        self.effects += self.machine.effects(self.seq, self.now_ms, inputs, decisions)
        self.decisions += decisions
        return decisions

    def mark(self, *reports: Event, wait_ms: int = 0) -> list[Event]:
        """Progress that the owner itself puts into a record."""
        return self.feed(wait_ms=wait_ms, marks=reports)

    def tick(self, wait_ms: int = 1000) -> list[Event]:
        """Time goes by."""
        return self.feed(ClockTicked(), wait_ms=wait_ms)

    def _input(self, event: Event | Envelope) -> Input:
        if isinstance(event, Envelope):
            return Input(0, event)
        return Input(0, Envelope(EventId("e"), "test", event))

    def last(self, kind: type[E], **fields: Any) -> E:
        """The newest decision of a kind with these fields."""
        return self.all(kind, **fields)[-1]

    def all(self, kind: type[E], **fields: Any) -> list[E]:
        """Every decision of a kind with these fields."""
        return [d for d in self.decisions if isinstance(d, kind) and all(getattr(d, k) == v for k, v in fields.items())]

    def status(self, job_id: str) -> JobStatus:
        """A job's newest status."""
        return self.last(JobStatus, job_id=job_id)


def policy_changed(pool: str = "default", text: str = "", user: str = "ada", **policy: Any) -> PolicyChanged:
    """Somebody asks for another policy; `policy` is what differs from the default one."""
    return PolicyChanged.model_validate({"pool": pool, "policy": policy, "text": text, "user": user})


def ending_with_a_tick(events: Sequence[Event | Envelope]) -> list[Event | Envelope]:
    """A batch as an owner makes it."""
    return [*events] if events and isinstance(events[-1], ClockTicked) else [*events, ClockTicked()]


def token(event: Event, seq: int, ordinal: int = 0, partition: int = 3) -> Envelope:
    """An event with the directory's order token."""
    return Envelope(EventId(f"dir:{partition}:{seq}:{ordinal}"), "directory", event, order=Order(partition, seq, ordinal))


def _about(gang: GangAllocated, node_id: str, **more: Any) -> dict[str, Any]:
    return {"job_id": gang.job_id, "attempt": gang.attempt, "epoch": gang.epoch, "node_id": node_id, "pool": gang.pool} | more


def started(gang: GangAllocated, node_id: str) -> AttemptStarted:
    """A node's ranks have processes."""
    return AttemptStarted.model_validate(_about(gang, node_id, started_at_ms=1, warm=True))


def stopped(gang: GangAllocated, node_id: str) -> AttemptStopped:
    """Nothing is left on a node."""
    return AttemptStopped.model_validate(_about(gang, node_id, boot_id="boot-1", stopped_at_ms=1))


def exited(gang: GangAllocated, rank: int, exit_code: int | None = 0, signal: int | None = None, reason: str = "") -> RankExited:
    """A rank's process is gone."""
    node = next(p.node_id for p in gang.placements if rank in p.ranks)
    more = {"rank": rank, "exit_code": exit_code, "signal": signal, "reason": reason, "exited_at_ms": 1}
    return RankExited.model_validate(_about(gang, node, **more))


def progress(gang: GangAllocated, step: int, at_ms: int | None = None, **more: Any) -> ProgressReported:
    """Where training is."""
    node = gang.placements[0].node_id
    return ProgressReported.model_validate(_about(gang, node, rank=0, step=step, at_ms=step if at_ms is None else at_ms, **more))


def lost(node: NodeRegistered, silent_s: float = 15) -> NodeLost:
    """The detector's verdict on a registration."""
    known = {"node_id": node.node_id, "boot_id": node.boot_id, "incarnation": node.incarnation, "pool": node.pool}
    return NodeLost.model_validate(known | {"silent_s": silent_s, "evidence": "", "at_ms": 1})


def run_through(driver: Driver, gang: GangAllocated, codes: Sequence[int] = ()) -> None:
    """A gang's whole life on agents that do as they are told: starts, one step, exits, stops."""
    nodes = [p.node_id for p in gang.placements]
    driver.feed(*(started(gang, n) for n in nodes))
    driver.feed(progress(gang, 1))
    for rank in range(gang.world_size):
        driver.feed(exited(gang, rank, codes[rank] if codes else 0))
    for node in nodes:
        driver.feed(stopped(gang, node))


def saved(gang: GangAllocated, commit: int, **more: Any) -> CheckpointCompleted:
    """An attempt made a checkpoint."""
    base = {"job_id": gang.job_id, "attempt": gang.attempt, "epoch": gang.epoch, "at_ms": 5, "commit": commit, "step": 10 * commit}
    return CheckpointCompleted.model_validate(base | {"uri": "s3://x", "bytes_total": 1, "bytes_new": 1} | more)


def hung(gang: GangAllocated, **more: Any) -> GangHung:
    """The detector's verdict on an attempt."""
    about = {"pool": gang.pool, "at_ms": 1, "job_id": gang.job_id, "attempt": gang.attempt, "epoch": gang.epoch}
    return GangHung.model_validate(about | {"ranks": [1], "step": 7, "silent_s": 6.5, "limit_s": 5.0} | more)


def noticed(node: NodeRegistered, deadline_ms: int, **more: Any) -> NodeNoticed:
    """A node is told that it goes away."""
    about = {"node_id": node.node_id, "boot_id": node.boot_id, "incarnation": node.incarnation, "pool": node.pool}
    return NodeNoticed.model_validate(about | {"source": "file", "reason": "spot", "deadline_ms": deadline_ms, "at_ms": 1} | more)


def degraded(device_id: str, fault: str = "ECC", since_ms: int = 1, **more: Any) -> DeviceDegraded:
    """A device of node `device_id[0]` is not what it should be."""
    about = {"pool": "default", "at_ms": 1, "node_id": device_id.partition("-")[0], "boot_id": "boot-1", "device_id": device_id}
    return DeviceDegraded.model_validate(about | {"fault": fault, "value": 2, "since_ms": since_ms} | more)


def diverged(gang: GangAllocated, good_commit: int | None = None, **more: Any) -> LossDiverged:
    """A session stopped training: its loss is no number."""
    told = {"rank": 0, "step": 55, "loss": "nan", "good_commit": good_commit, "at_ms": 1}
    return LossDiverged.model_validate(_about(gang, gang.placements[0].node_id) | told | more)


def probed(asked: NodeProbeAsked, passed: bool, **more: Any) -> NodeProbed:
    """What a self test found."""
    checks = [{"name": "memory", "passed": passed, "found": "fine" if passed else "a bit is stuck"}]
    about = asked.model_dump(include={"node_id", "boot_id", "pool", "probe"})
    return NodeProbed.model_validate(about | {"passed": passed, "checks": checks, "at_ms": 1} | more)


def running(driver: Driver, job_id: str, **fields: Any) -> GangAllocated:
    """Job `job_id` is submitted, starts, and has made a step."""
    driver.feed(admitted(job_id, **fields))
    return going(driver, job_id)


def going(driver: Driver, job_id: str) -> GangAllocated:
    """The newest gang of a job is up, and makes a step."""
    gang = driver.last(GangAllocated, job_id=job_id)
    driver.feed(*(started(gang, p.node_id) for p in gang.placements))
    driver.feed(progress(gang, 1, at_ms=driver.now_ms))
    return gang


def gone(gang: GangAllocated) -> list[Event]:
    """All nodes of a gang say that nothing is left of it."""
    return [stopped(gang, p.node_id) for p in gang.placements]


def nodes_of(gang: GangAllocated) -> list[str]:
    """Where it is."""
    return [str(p.node_id) for p in gang.placements]

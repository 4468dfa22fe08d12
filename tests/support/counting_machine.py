"""A tiny machine for tests of the journal: it counts cancellations per job, exactly or not at all.

An input by the user `poison` makes `decide` raise; by `jam` makes scheduling raise until placement is frozen.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from trainhouse.events import CancelJob, Envelope, Event, JobId, JobState, JobStatus, PoolName, envelope_of
from trainhouse.events.wire.codec import encode
from trainhouse.events.wire.journal import JournalRecord, PlacementFrozen
from trainhouse.events.wire.topics import STATUS
from trainhouse.scheduler.core.errors import SchedulingFailed
from trainhouse.scheduler.core.protocol.batch import Proposer
from trainhouse.scheduler.core.protocol.machine import Condition, Effect, Input, Leveled
from trainhouse.scheduler.core.protocol.snapshot_steps import Formats, parse

PROJECT = "counted"


@dataclass
class Counts:
    """How often each job was named, and by which events, in order."""

    counts: dict[str, int] = field(default_factory=dict)
    ticks: int = 0
    frozen: bool = False


class CountingMachine(Leveled):
    """Counts. One decision per input: the job's new count."""

    name = "counting"
    decide_version = 1
    fold_version = 1
    lowest_level = 1
    formats = Formats({1: 1})
    since: Mapping[str, int] = {}
    passing: tuple[type[Event], ...] = ()

    def initial(self, partition: int) -> Counts:
        return Counts()

    def decide(self, state: Counts, now_ms: int, inputs: Sequence[Input]) -> list[Event]:
        counts = dict(state.counts)
        decisions: list[Event] = []
        for item in inputs:
            if not isinstance(item.event, CancelJob):
                continue
            if item.event.user == "poison":
                raise RuntimeError("this input cannot be handled")
            if item.event.user == "jam" and not state.frozen:
                raise SchedulingFailed("the policy is broken")
            job_id = item.event.job_id
            counts[job_id] = counts.get(job_id, 0) + 1
            reason = item.event.reason * (100 if item.event.user == "big" else 1)
            decisions.append(JobStatus(job_id=job_id, status_seq=counts[job_id], state=JobState.PENDING, reason=reason, project=PROJECT))
        return decisions

    def after_refusal(self, state: Counts, refused: Envelope, reason: str) -> Event | None:
        return None

    def fold(self, state: Counts, now_ms: int, inputs: Sequence[Input], decisions: Sequence[Event]) -> Counts:
        state.ticks += sum(1 for i in inputs if i.offset is None)
        for decision in decisions:
            if isinstance(decision, JobStatus):
                state.counts[str(decision.job_id)] = decision.status_seq
            elif isinstance(decision, PlacementFrozen):
                state.frozen = True
        return state

    def effects(self, seq: int, now_ms: int, inputs: Sequence[Input], decisions: Sequence[Event]) -> list[Effect]:
        return [Effect(STATUS, str(d.job_id), d, f"status:{d.job_id}:{d.status_seq}") for d in decisions if isinstance(d, JobStatus)]

    def condition(self, state: Counts) -> Condition:
        return Condition((PoolName("counted"),), "the policy is broken" if state.frozen else "")

    def wakes_ms(self, state: Counts, after_ms: int) -> int | None:
        return None

    def dump(self, state: Counts) -> bytes:
        value = {"format": 1, "counts": state.counts, "ticks": state.ticks, "frozen": state.frozen}
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)

    def load(self, data: bytes) -> Counts:
        return Counts(**{name: value for name, value in self.formats.lifted(parse(data)).items() if name != "format"})


def cancel(number: int, *, jobs: int = 5, user: str = "somebody", reason: str = "") -> bytes:
    """Input number `number`, for one of `jobs` jobs."""
    event = CancelJob(job_id=JobId(f"job{number % jobs}"), reason=reason or f"input-{number}", user=user)
    return encode(envelope_of(event, id=f"input-{number}", source="test", now_ms=0))


def proposed(proposer: Proposer[Any], *args: Any, **named: Any) -> JournalRecord:
    """The record that is proposed; there must be one."""
    found = proposer.propose(*args, **named)
    assert found is not None
    return found.record

"""The tuner's process in virtual time: killed again and again while its trials' jobs run, log, fail and are cancelled."""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.fakes.group_fakes import Member
from tests.support.fakes.journal_fakes import FakeBroker, FakeLog, LoopClock, MemoryStore, call_directly, run_virtually
from tests.support.here_samplers import HereSamplers
from tests.support.profiles import examples
from tests.support.study_requests import OF_STUDY, study_spec
from trainhouse.events import (
    CancelJob,
    Event,
    EventId,
    JobState,
    JobStatus,
    JobSubmitted,
    StudyBegun,
    StudyChanged,
    StudyCreated,
    StudyPriced,
    StudyState,
    StudyStatus,
    TrialBegan,
    TrialEnded,
    TrialStarted,
    TrialState,
    decode,
    envelope_of,
)
from trainhouse.events.model.pool import PolicyApplied
from trainhouse.events.wire.codec import encode
from trainhouse.events.wire.points import Point, records_of
from trainhouse.events.wire.topics import JOBS, METRICS, POLICIES, STATUS, STUDIES, STUDY_HISTORY, STUDY_REQUESTS, TUNING
from trainhouse.scheduler.core.studies.study_machine import TunerMachine
from trainhouse.scheduler.core.studies.study_state import TunerState
from trainhouse.scheduler.replay import LogEntry, verify
from trainhouse.scheduler.stream.journal.host import JournalHost
from trainhouse.scheduler.stream.journal.settings import HostSettings
from trainhouse.scheduler.stream.journal.snapshots import Snapshots
from trainhouse.scheduler.stream.studies.price_sender import PriceSender
from trainhouse.scheduler.stream.studies.recomputed_suggestions import RecomputedSuggestions
from trainhouse.scheduler.stream.studies.suggestion_sender import SuggestionSender
from trainhouse.scheduler.stream.studies.trial_watch import TrialWatch

TRIALS, STEPS = 8, 12
KNOWN = [{"values": {"lr": 0.1 * (each + 1)}, "metrics": {"loss": 0.1 * each}, "study": "old", "trial": each} for each in range(5)]
ASHA = {"name": "asha", "min_step": 2, "max_step": 9, "reduction": 3}


class Process:
    """One start of the tuner."""

    def __init__(self, broker: FakeBroker, store: MemoryStore, committed: dict[Any, int], name: str) -> None:
        self.log, self.broker, self.member = FakeLog(broker), broker, Member(broker, committed=committed)
        clock, machine = LoopClock(), TunerMachine()
        keeper = Snapshots(self.log, store, TUNING, machine, offload=call_directly, every_records=15)
        sender = SuggestionSender(self.log, clock, self.state, HereSamplers)
        prices = PriceSender(self.log, clock, self.state)
        settings = HostSettings(TUNING, STUDY_REQUESTS, name, transactional=True)
        self.host = JournalHost(settings, self.log, machine, keeper, clock, [sender.after_record, prices.after_record])
        self.watch = TrialWatch(self.log, clock, self.state, lambda: self.host.followers[0].position)
        running = (self.host.run(), sender.run(), prices.run(), self.read(), self.offer())
        self.tasks = [asyncio.create_task(each) for each in running]

    def state(self) -> TunerState | None:
        return self.host.followers[0].folded.state if self.host.ready.is_set() else None

    async def read(self) -> None:
        while True:
            await self.watch.round(self.member)
            await asyncio.sleep(0.1)

    async def offer(self) -> None:
        await self.host.ready.wait()
        self.host.on_assigned({0})
        at = 0
        while True:
            entries = self.broker.committed(STUDY_REQUESTS, 0)
            self.host.offer(0, entries[at:])
            at = len(entries)
            await asyncio.sleep(0.05)

    async def kill(self) -> None:
        self.log.dead = True
        for task in self.tasks:
            task.cancel()
        for ended in await asyncio.gather(*self.tasks, return_exceptions=True):
            assert isinstance(ended, asyncio.CancelledError), ended


@dataclass
class Fleet:
    """Runs each job that is submitted once, whatever else is said of it."""

    broker: FakeBroker
    rng: random.Random
    logged: dict[str, float] = field(default_factory=dict)
    ran: Counter[str] = field(default_factory=Counter)
    cancelled: set[str] = field(default_factory=set)
    jobs: set[asyncio.Task[None]] = field(default_factory=set)

    async def run(self) -> None:
        at = 0
        while True:
            entries = self.broker.committed(JOBS, 0)
            for entry in entries[at:]:
                event = decode(entry.value or b"", entry.headers).event
                if isinstance(event, JobSubmitted) and not self.ran[str(event.job_id)]:
                    self.ran[str(event.job_id)] += 1
                    self.jobs.add(asyncio.create_task(self.job(event)))
                elif isinstance(event, CancelJob):
                    self.cancelled.add(str(event.job_id))
            at = len(entries)
            await asyncio.sleep(0.1)

    async def job(self, submitted: JobSubmitted) -> None:
        job_id, x = str(submitted.job_id), float(str(submitted.spec.hyperparameters["lr"]))
        fails = self.rng.random() < 0.1
        await asyncio.sleep(self.rng.uniform(0, 2))
        self.status(submitted, JobState.RUNNING, 0.0)
        for step in range(1, STEPS + 1):
            await asyncio.sleep(self.rng.uniform(0.1, 1.5))
            if job_id in self.cancelled:
                self.status(submitted, JobState.CANCELLED, float(step))
                return
            if step % 3 == 0:
                self.status(submitted, JobState.RUNNING, float(step))
            loss = x + 1.0 / step
            for record in records_of(job_id, [Point("loss", loss, step, 1)], "metrics"):
                self.put(METRICS, record)
            self.logged[job_id] = loss
        self.status(submitted, JobState.FAILED if fails else JobState.SUCCEEDED, float(STEPS))

    def status(self, of: JobSubmitted, state: JobState, elapsed_s: float) -> None:
        fields = {"job_id": of.job_id, "status_seq": 1, "state": state, "spec_sha256": of.spec.sha256(), "world_size": 1}
        more = {"submission_id": f"{of.job_id}:submitted", "elapsed_s": elapsed_s, "reason": "because"}
        self.put(STATUS, JobStatus.model_validate(fields | more))

    def put(self, topic: str, event: Event) -> None:
        self.broker.land(topic, 0, None, encode(envelope_of(event, id=EventId("x"), source="fleet", now_ms=1)))


def events(broker: FakeBroker, topic: str, kind: type[Event]) -> list[Any]:
    found = [decode(each.value or b"", each.headers).event for each in broker.committed(topic, 0)]
    return [each for each in found if isinstance(each, kind)]


def put_price(broker: FakeBroker, version: int, per_hour: float) -> None:
    policy = {"prices": {"devices": {"any": {"reserved": per_hour}}}}
    applied = PolicyApplied.model_validate({"pool": "default", "policy": policy, "version": version, "applied_at_ms": 1})
    broker.land(POLICIES, 0, b"default", encode(envelope_of(applied, id=EventId(f"p{version}"), source="t", now_ms=1)))


async def story(seed: int, broker: FakeBroker, **budget: float) -> Fleet:
    rng = random.Random(seed)
    fleet, store, committed = Fleet(broker, rng), MemoryStore(), dict[Any, int]()
    running = asyncio.create_task(fleet.run())
    about: dict[str, Any] = {"budget": {"trials": TRIALS, **budget}, "early_stopping": ASHA, "max_failed": TRIALS, "known": KNOWN}
    spec = study_spec(sampler={"name": "tpe", "startup_trials": 2}, **about)
    request = encode(envelope_of(StudyCreated.model_validate(OF_STUDY | {"spec": spec}), id=EventId("s"), source="t", now_ms=1))
    for _ in range(2):
        broker.land(STUDY_REQUESTS, 0, b"k", request)
    for start in range(30):
        if start < 3:  # a new policy in the midst
            put_price(broker, start + 1, 3600.0 * (1 + start % 2))
        process = Process(broker, store, committed, f"tuner-{start}")
        await asyncio.sleep(rng.uniform(0.5, 12) if start < 20 else 200)
        committed = process.member.committed
        await process.kill()
        if any(each.state is StudyState.ENDED for each in events(broker, STUDY_HISTORY, StudyChanged)):
            break
    running.cancel()
    return fleet


@pytest.mark.parametrize("seed", range(examples(10)))
def test_a_tuner_that_is_killed_begins_each_trial_once_and_loses_no_value(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncio.to_thread", call_directly)
    broker = FakeBroker()
    fleet = run_virtually(story(seed, broker))
    started, ended = events(broker, STUDY_HISTORY, TrialStarted), {each.trial: each for each in events(broker, STUDY_HISTORY, TrialEnded)}
    assert [each.state for each in events(broker, STUDY_HISTORY, StudyChanged)] == [StudyState.DRAINING, StudyState.ENDED]
    assert len(events(broker, STUDY_HISTORY, StudyBegun)) == 1
    assert [each.trial for each in started] == list(range(TRIALS)) and sorted(ended) == list(range(TRIALS))
    assert sorted(fleet.ran) == sorted(str(each.job_id) for each in started)
    numbers = [each.number for each in events(broker, STUDY_HISTORY, Event) if hasattr(each, "number")]
    assert numbers == list(range(1, len(numbers) + 1)), "each decision is published once, in order"
    job_of = {each.trial: str(each.job_id) for each in started}
    for trial, end in ended.items():
        if end.state in (TrialState.COMPLETE, TrialState.STOPPED):
            assert end.values == {"loss": fleet.logged[job_of[trial]]}
        assert (end.state is TrialState.STOPPED) <= (job_of[trial] in fleet.cancelled)
    counted = {trial: end.values["loss"] for trial, end in ended.items() if end.values}
    [best] = events(broker, STUDIES, StudyStatus)[-1].best
    assert best.trial == min(counted, key=lambda trial: (counted[trial], trial))

    journal = [LogEntry(0, each.offset, each.value or b"") for each in broker.committed(TUNING, 0)]
    again = RecomputedSuggestions()
    report = verify(journal, TunerMachine(), also=again.differences)
    assert report.same, [str(each) for each in report.differences]
    assert report.recomputed and again.recomputed == TRIALS and not again.other_versions


@pytest.mark.parametrize("seed", range(examples(10)))
def test_a_study_in_money_goes_over_its_budget_by_no_more_than_what_runs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncio.to_thread", call_directly)
    broker, budget = FakeBroker(), 8.0
    fleet = run_virtually(story(seed, broker, cost=budget))
    price, seconds, spent, reached = 0.0, Counter[int](), 0.0, False
    running, late = set[int](), 0.0
    for each in events(broker, STUDY_HISTORY, Event):
        if isinstance(each, StudyPriced):
            price = each.price / 3600
        elif isinstance(each, TrialStarted):
            assert price and not reached, "none begins before there is a price, nor once the budget is reached"
            running.add(each.trial)
        elif isinstance(each, TrialBegan | TrialEnded):
            cost = (each.device_s - seconds[each.trial]) * price
            seconds[each.trial] += each.device_s - seconds[each.trial]
            spent, late = spent + cost, late + cost * reached
            assert not reached or each.trial in running
            reached = reached or spent >= budget
    status = events(broker, STUDIES, StudyStatus)[-1]
    assert status.state is StudyState.ENDED and status.cost == pytest.approx(spent) and status.currency == "USD"
    assert reached and "of 8 USD" in status.reason, status.reason
    assert set(fleet.ran.values()) == {1} and late <= len(running) * STEPS * 2
    journal = [LogEntry(0, each.offset, each.value or b"") for each in broker.committed(TUNING, 0)]
    assert verify(journal, TunerMachine()).same

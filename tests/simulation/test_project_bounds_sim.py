"""Limits of running and of waiting jobs of projects, under faults, people and all policies, judged from the journal."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.simulation import checkers
from tests.simulation.schedule_load import simulate
from tests.simulation.schedule_world import World
from trainhouse.events import Event, GangAllocated, JobAdmitted, ProjectLimited
from trainhouse.events.model.decisions import JobForgotten, JobMoved, JobQueued, JobRequeued
from trainhouse.events.model.phases import Pending, Rejected, UnderReview
from trainhouse.events.wire.journal import JournalRecord
from trainhouse.scheduler.core.schedule import ScheduleMachine
from trainhouse.scheduler.replay import LogEntry, verify

SEEDS = range(1, 1 + int(os.environ.get("TRAINHOUSE_SIM_SEEDS", "4")))
RUNNING, QUEUED = {"a": 2, "b": 1}, {"b": 3}
JOBS = 60
SEEN: Counter[str] = Counter()


class OfProjects(World):
    """A world whose jobs are of three projects, two of them with limits from the beginning."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        for project in RUNNING:
            limits = {"project": project, "version": 1, "running": RUNNING[project], "queued": QUEUED.get(project)}
            self.ask(ProjectLimited.model_validate(limits))

    def submit(self, job: Event, job_id: str, work_ms: int, fail: float = 0.0) -> None:
        assert isinstance(job, JobAdmitted)
        spec = job.spec.model_copy(update={"project": "abc"[int(job_id[1:]) % 3]})
        super().submit(job.model_copy(update={"spec": spec, "spec_sha256": spec.sha256()}), job_id, work_ms, fail)


def limits_kept(records: checkers.Records) -> Iterator[str]:
    """No start of a job makes more of its project run in its pool than may, and none waits that came when too many did."""
    at: dict[str, tuple[str, str]] = {}
    runs: set[str] = set()
    waits: set[str] = set()
    for record in records:
        refused = {d.job_id for d in record.decisions if isinstance(d, JobMoved) and isinstance(d.phase, Rejected)}
        for d in record.decisions:
            match d:
                case JobQueued():
                    at[d.job_id] = (str(d.spec.project), str(d.spec.pool))
                    waits.add(d.job_id)
                    most = QUEUED.get(d.spec.project)
                    if most is not None and d.job_id not in refused and sum(at[j] == at[d.job_id] for j in waits) > most:
                        yield f"seq {record.seq}: {d.job_id} waits beyond {most}"
                    SEEN["refused"] += d.job_id in refused
                case GangAllocated():
                    waits.discard(d.job_id)
                    runs.add(d.job_id)
                    most, now = RUNNING.get(at[d.job_id][0]), sum(at[j] == at[d.job_id] for j in runs)
                    if most is not None and now > most:
                        yield f"seq {record.seq}: with {d.job_id} {now} jobs of project {at[d.job_id][0]} run, and {most} may"
                    SEEN["at the limit"] += now == most
                case JobMoved(phase=Pending() | UnderReview()):
                    waits.add(d.job_id)
                case JobRequeued():
                    runs.discard(d.job_id)
                    waits.add(d.job_id)
                case JobForgotten():
                    runs.discard(d.job_id)
                    waits.discard(d.job_id)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_limits_of_projects_are_kept_whatever_happens(seed: int) -> None:
    print(f"seed {seed}")
    world = simulate(seed, JOBS, OfProjects(seed))
    records = [JournalRecord.decode(value) for value in world.journal]
    judges = (limits_kept, checkers.no_device_twice, checkers.whole_gangs, checkers.all_over, checkers.nothing_failed)
    wrong = {judge.__name__: found for judge in judges if (found := list(judge(records))[:5])}
    assert not wrong, f"seed {seed}: {wrong}"
    report = verify([LogEntry(0, offset, value) for offset, value in enumerate(world.journal)], ScheduleMachine(), world.snapshots)
    assert report.same, f"seed {seed}: {[str(d) for d in report.differences[:3]]}"


def test_the_simulations_came_to_the_limits() -> None:
    for seed in SEEDS:
        list(limits_kept([JournalRecord.decode(v) for v in simulate(seed, JOBS, OfProjects(seed)).journal])) if not SEEN else None
    assert SEEN["refused"] and SEEN["at the limit"] > 5, SEEN


def test_a_judge_that_is_given_a_lower_limit_complains(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [JournalRecord.decode(value) for value in simulate(1, JOBS, OfProjects(1)).journal]
    monkeypatch.setitem(RUNNING, "a", 1)
    assert list(limits_kept(records))

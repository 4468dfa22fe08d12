"""What an agent makes of its ranks' signs of life: heartbeats tell all of it, control what is new, and a diverged loss."""

from pathlib import Path
from typing import Any

import pytest

from tests.unit.workers.agent.test_agent_outbox import WHO, FakeProducer
from tests.unit.workers.agent.test_agent_parts import environment, gang
from trainhouse.events import CheckpointCompleted, Event, LossDiverged, ProgressReported, RankActivity, RankHeartbeat, SessionOpened, decode
from trainhouse.events.wire.topics import CHECKPOINTS, CONTROL, PROGRESS
from trainhouse.workers.agent.ship.outbox import Outbox
from trainhouse.workers.agent.ship.rank_shipper import OF_LIFE, RankProgress, RankShipper
from trainhouse.workers.launcher import RankPaths
from trainhouse.workers.spool import SpoolWriter

LIFE = {
    "rank": 0,
    "step": 7,
    "step_at_ms": 4_000,
    "at_ms": 5_000,
    "pulse_at_ms": 5_000,
    "activity": "WAITING_FOR_DATA",
    "activity_since_ms": 4_500,
    "step_time_p99_ms": 12.5,
    "longest_step_ms": 90.0,
    "work_time_ms": 8.0,
    "fastest_work_time_ms": 6.0,
    "data_wait_s": 1.5,
    "steps_per_s": 100.0,
}


class Rank:
    """One rank's spool, and what its agent sends."""

    def __init__(self, folder: Path) -> None:
        self.spool = SpoolWriter(folder / "spool.jsonl")
        self.producer = FakeProducer()
        self.outbox = Outbox(lambda: self.producer)  # type: ignore[arg-type, return-value]
        self.shipper = RankShipper(WHO, RankPaths(folder), self.outbox, lambda: 3, source="t", log_limit_bytes=10**9, positions={})

    def sent(self, topic: str, now_ms: int) -> list[Event]:
        while self.shipper.pump(now_ms):
            pass
        self.outbox.poll()
        taken, self.producer.taken = self.producer.taken, []
        return [decode(value).event for at, value in taken if at == topic]


@pytest.fixture
def rank(tmp_path: Path) -> Rank:
    return Rank(tmp_path)


def progress(rank: Rank, **fields: Any) -> None:
    rank.spool.progress(LIFE | fields)


def test_a_heartbeat_has_a_place_for_each_field_of_life() -> None:
    assert set(OF_LIFE) <= set(RankProgress.__slots__) and {"pulse_at_ms", "work_time_ms", "activity_limit_s"} <= set(OF_LIFE)
    assert all(getattr(RankProgress(), n) == RankHeartbeat.model_fields[n].default for n in OF_LIFE)


def test_the_newest_life_is_told_and_control_hears_it_only_when_it_is_new(rank: Rank) -> None:
    progress(rank)
    (told,) = rank.sent(CONTROL, 5_000)
    assert isinstance(told, ProgressReported) and (told.step, told.activity) == (7, RankActivity.WAITING_FOR_DATA)
    newest = rank.shipper.newest
    assert (newest.step, newest.step_at_ms, newest.pulse_at_ms, newest.work_time_ms) == (7, 4_000, 5_000, 8.0)
    progress(rank, pulse_at_ms=6_000, at_ms=6_000, data_wait_s=2.5)
    assert rank.sent(CONTROL, 7_000) == [], "a rank that waits has nothing to tell the scheduler"
    assert (newest.pulse_at_ms, newest.data_wait_s, newest.step_at_ms) == (6_000, 2.5, 4_000)
    progress(rank, saving=True)
    progress(rank, step=8)
    assert [e.step for e in rank.sent(PROGRESS, 9_000) if isinstance(e, ProgressReported)] == [8]


def test_the_first_and_the_last_progress_go_to_control_and_all_others_beside_it(rank: Rank) -> None:
    seen: list[tuple[str, int, bool]] = []

    def pumped(now_ms: int, *, over: bool = False) -> list[tuple[str, int, bool]]:
        while rank.shipper.pump(now_ms, final=over):
            pass
        rank.outbox.poll()
        taken, rank.producer.taken = rank.producer.taken, []
        events = [(topic, decode(value).event) for topic, value in taken]
        seen[:] = [(t, e.step, e.last) for t, e in events if isinstance(e, ProgressReported)]
        return seen

    for step, topic in ((7, CONTROL), (8, PROGRESS), (9, PROGRESS)):
        progress(rank, step=step)
        assert pumped(step * 1_000) == [(topic, step, False)]
    assert pumped(12_000) == [] and pumped(19_000) == [(PROGRESS, 9, False)], "for a scheduler that has just taken over"
    assert not rank.shipper.shipped()
    assert pumped(20_000, over=True) == [(CONTROL, 9, True)] and pumped(40_000, over=True) == []
    assert rank.shipper.shipped()


def test_life_before_training_is_no_progress(rank: Rank) -> None:
    rank.spool.life({"rank": 0, "step": 0, "pulse_at_ms": 1_000, "activity": "STARTING", "activity_since_ms": 900})
    (opened,) = rank.sent(CONTROL, 1_000)
    assert isinstance(opened, SessionOpened) and (opened.rank, opened.attempt, opened.epoch) == (0, WHO.attempt, WHO.epoch)
    rank.spool.life({"rank": 0, "step": 0, "pulse_at_ms": 1_000, "activity": "STARTING", "activity_since_ms": 900})
    assert rank.sent(CONTROL, 2_000) == [], "it is told once"
    newest = rank.shipper.newest
    assert (newest.step, newest.pulse_at_ms, newest.activity) == (None, 1_000, RankActivity.STARTING)


def test_a_pulse_that_makes_no_sense_is_passed_over(rank: Rank) -> None:
    progress(rank)
    rank.sent(CONTROL, 5_000)
    rank.spool.life({"pulse_at_ms": "soon", "activity": "DANCING"})
    rank.sent(CONTROL, 6_000)
    assert rank.shipper.newest.pulse_at_ms == 5_000


def test_a_diverged_loss_goes_to_control_and_not_to_checkpoints(rank: Rank) -> None:
    rank.spool.event("LossDiverged", {"rank": 2, "step": 9, "loss": "nan", "usual_loss": 2.5, "good_commit": 4, "at_ms": 1})
    rank.spool.event("LossDiverged", {"step": "nine"})
    rank.spool.event("JobSubmitted", {"job_id": "x"})
    rank.spool.event("CheckpointCompleted", {"commit": 1, "step": 9, "uri": "s3://b/1", "bytes_total": 1, "bytes_new": 1, "at_ms": 1})
    while rank.shipper.pump(1_000):
        pass
    rank.outbox.poll()
    taken = [(topic, decode(value).event) for topic, value in rank.producer.taken]
    diverged = [e for topic, e in taken if topic == CONTROL and isinstance(e, LossDiverged)]
    assert [(e.rank, e.step, e.good_commit, str(e.node_id), str(e.pool)) for e in diverged] == [(2, 9, 4, "n", "p")]
    assert [type(e) for topic, e in taken if topic == CHECKPOINTS] == [CheckpointCompleted]


def test_the_ranks_learn_how_new_a_commit_they_may_begin_from() -> None:
    allocation = gang()
    assert "TRAINHOUSE_RESTORE_AT_MOST" not in environment(allocation, 0)
    bound = allocation.model_copy(update={"restore_at_most": 0})
    assert [environment(bound, rank)["TRAINHOUSE_RESTORE_AT_MOST"] for rank in (0, 2)] == ["0", "0"]

"""A whole session without Trainhouse, object store or other ranks: what the loop does between steps."""

import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.fakes.memory_store import MemoryObjectStore
from trainhouse.checkpointing.chain.best_checkpoint import Score
from trainhouse.checkpointing.chain.retention import RetentionPolicy
from trainhouse.checkpointing.checkpointer import Checkpointer, CheckpointerSettings
from trainhouse.checkpointing.errors import ObjectStoreRefusedError
from trainhouse.checkpointing.results import SavedCheckpoint
from trainhouse.events.model.spec import CheckpointPolicy
from trainhouse.workers import Session
from trainhouse.workers.session import EXIT_STOPPED, Context, InvalidUseError, Stopped
from trainhouse.workers.session.logging.sink import open_sink
from trainhouse.workers.session.process_groups import Gang
from trainhouse.workers.session.saving.checkpoint_saver import CommitSaver, Saver
from trainhouse.workers.session.saving.peer_state import Elsewhere
from trainhouse.workers.session.saving.tracked_state import Tracked
from trainhouse.workers.session.steps.liveness import Pulse


class SavedInMemory:
    """A saver that keeps the steps at which it saved; `fails` makes saves fail."""

    saves = True

    def __init__(self, restored: int = 0) -> None:
        self.restored = restored
        self.steps: list[int] = []
        self.good_commit: int | None = None
        self.fails = False
        self.refusal: ObjectStoreRefusedError | None = None

    def restore(self, tracked: Tracked) -> int:
        return self.restored

    def prepare(self, tracked: Tracked, steps: int) -> bool:
        return True

    def save(self, tracked: Tracked, step: int, metrics: Mapping[str, float], score: Score | None = None) -> bool:
        self.steps.append(step)
        return not self.fails

    def is_best(self, score: Score) -> bool:
        return False

    @property
    def uploading(self) -> bool:
        return False

    def settle(self) -> SavedCheckpoint | None:
        return SavedCheckpoint(len(self.steps), self.steps[-1], 0, 0, 0.0, 0.0, "")

    def close(self, wait_s: float) -> None:
        pass

    def save_for_all(self, state: dict[str, Any], own: list[dict[str, Any]], step: int) -> bool:
        return False

    @property
    def elsewhere(self) -> Elsewhere | None:
        return None

    def proved(self) -> None:
        self.good_commit = self.steps[-1] if self.steps else None


def session_of(folder: Path, saver: Saver, pulse: Pulse | None = None, **policy: object) -> Session:
    context = Context(
        job_id="j",
        spool=folder / "spool.jsonl",
        request=folder / "request.json",
        policy=CheckpointPolicy.model_validate({"min_interval_s": 1000, "max_interval_s": 2000} | policy),
    )
    return Session(context, Gang(context), open_sink(context), saver, pulse)


def lines(folder: Path, kind: str) -> list[list[object]]:
    return [line for line in map(json.loads, (folder / "spool.jsonl").read_text().splitlines()) if line[0] == kind]


def ask(folder: Path, **fields: object) -> None:
    (folder / "request.json").write_text(json.dumps({"id": "r", "kind": "checkpoint", "deadline_ms": 2**53, "then_stop": False} | fields))


def test_it_saves_at_the_policys_steps_and_at_the_end(tmp_path: Path) -> None:
    saver = SavedInMemory()
    session = session_of(tmp_path, saver, every_steps=3)
    session.track(model=torch.nn.Linear(1, 1))
    assert list(session.steps(8)) == list(range(8))
    assert saver.steps == [3, 6, 8]


def test_it_begins_at_the_restored_step_and_saves_nothing_new_if_all_is_done(tmp_path: Path) -> None:
    saver = SavedInMemory(restored=5)
    session = session_of(tmp_path, saver, every_steps=3)
    assert session.track(model=torch.nn.Linear(1, 1)) == 5
    assert list(session.steps(7)) == [5, 6]
    again = session_of(tmp_path, done := SavedInMemory(restored=7), every_steps=3)
    again.track(model=torch.nn.Linear(1, 1))
    assert list(again.steps(7)) == [] and done.steps == []


def test_the_programs_own_interval_goes_first_and_it_can_ask_for_one(tmp_path: Path) -> None:
    saver = SavedInMemory()
    session = session_of(tmp_path, saver, every_steps=2)
    session.track(model=torch.nn.Linear(1, 1))
    for step in session.steps(10, save_every_steps=4):
        if step == 4:
            session.save()
    assert saver.steps == [4, 5, 8, 10]


def test_without_anything_tracked_nothing_is_saved(tmp_path: Path) -> None:
    saver = SavedInMemory()
    list(session_of(tmp_path, saver, every_steps=1).steps(3))
    assert saver.steps == []


def test_a_request_to_stop_saves_first(tmp_path: Path) -> None:
    saver = SavedInMemory()
    session = session_of(tmp_path, saver)
    session.track(model=torch.nn.Linear(1, 1))
    with pytest.raises(Stopped) as caught:
        for step in session.steps(100_000):
            if step == 3:
                ask(tmp_path, then_stop=True)
    assert caught.value.code == EXIT_STOPPED
    assert saver.steps == [session.step] and session.step < 100_000


def test_a_stop_past_its_deadline_does_not_save(tmp_path: Path) -> None:
    saver = SavedInMemory()
    session = session_of(tmp_path, saver)
    session.track(model=torch.nn.Linear(1, 1))
    ask(tmp_path, then_stop=True, deadline_ms=1)
    with pytest.raises(Stopped):
        list(session.steps(100_000))
    assert saver.steps == []


def test_a_failed_save_does_not_end_training_and_is_tried_again(tmp_path: Path) -> None:
    saver = SavedInMemory()
    saver.fails = True
    session = session_of(tmp_path, saver, every_steps=2)
    session.track(model=torch.nn.Linear(1, 1))
    assert len(list(session.steps(4))) == 4
    assert saver.steps == [2, 4, 4, 4]  # the last step's save is due by its number, then as the last one, and that is tried once more


def test_a_last_save_that_is_refused_ends_the_attempt_with_the_sentence(tmp_path: Path) -> None:
    saver = SavedInMemory()
    saver.fails, saver.refusal = True, ObjectStoreRefusedError("check the bucket and the keys")
    session = session_of(tmp_path, saver, every_steps=2)
    session.track(model=torch.nn.Linear(1, 1))
    steps = iter(session.steps(4))
    assert [next(steps) for _ in range(4)] == [0, 1, 2, 3], "a save before the last one costs no more than itself"
    with pytest.raises(ObjectStoreRefusedError, match="check the bucket and the keys"):
        next(steps)
    assert saver.steps == [2, 4, 4, 4]


def test_points_carry_the_step_and_progress_the_count(tmp_path: Path) -> None:
    session = session_of(tmp_path, SavedInMemory())
    for step in session.steps(3):
        session.log(loss=float(step))
    session.log(final=1.0)
    session.close()
    session.close()
    assert [(p[1], p[3]) for p in lines(tmp_path, "m")] == [(0, {"loss": 0.0}), (1, {"loss": 1.0}), (2, {"loss": 2.0}), (3, {"final": 1.0})]
    told = [p[1] for p in lines(tmp_path, "p")]
    assert told[0]["step"] == 0 and told[-1]["step"] == 3 and told[-1]["total_steps"] == 3  # type: ignore[index]


def test_time_spent_waiting_for_data_is_counted(tmp_path: Path) -> None:
    session = session_of(tmp_path, SavedInMemory())
    for _ in session.steps(2):
        with session.data_wait():
            sum(range(10_000))
    waited = lines(tmp_path, "p")[-1][1]["data_wait_s"]  # type: ignore[index, call-overload]
    assert 0 < waited < 5


def test_sigterm_waits_for_the_step_to_end_but_not_outside_of_the_steps(tmp_path: Path) -> None:
    session = session_of(tmp_path, SavedInMemory())
    before = signal.signal(signal.SIGTERM, session._boundary.on_sigterm)
    try:
        ended = []
        with pytest.raises(Stopped) as caught:
            for step in session.steps(10):
                if step == 2:
                    os.kill(os.getpid(), signal.SIGTERM)
                ended.append(step)
        assert ended == [0, 1, 2] and caught.value.code == 143
        os.kill(os.getpid(), signal.SIGTERM)  # it leaves already
        signal.signal(signal.SIGTERM, session_of(tmp_path, SavedInMemory())._boundary.on_sigterm)
        with pytest.raises(Stopped):
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_sigterm_ends_a_forked_child_at_once_and_is_none_of_its_rank(tmp_path: Path) -> None:
    session = session_of(tmp_path, SavedInMemory())
    before = signal.signal(signal.SIGTERM, session._boundary.on_sigterm)
    try:
        for _ in session.steps(1):
            child = os.fork()
            if child == 0:
                try:
                    os.kill(os.getpid(), signal.SIGTERM)
                finally:
                    os._exit(7)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
    finally:
        signal.signal(signal.SIGTERM, before)


def test_sigterm_does_not_interrupt_what_is_done_about_an_exception(tmp_path: Path) -> None:
    session = session_of(tmp_path, SavedInMemory())
    before = signal.signal(signal.SIGTERM, session._boundary.on_sigterm)
    told: list[BaseException] = []

    def tell(kind: object, error: BaseException, trace: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        told.append(error)

    try:
        next(session.steps(10))
        failed = RuntimeError("Connection closed by peer")
        session._on_uncaught(tell)(RuntimeError, failed, None)
        assert told == [failed]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_all_parts_named_in_one_call_are_saved_and_put_back(tmp_path: Path) -> None:
    objects = MemoryObjectStore()

    def program(epoch: int) -> tuple[Any, ...]:
        model, folder = torch.nn.Linear(2, 2), tmp_path / str(epoch)
        folder.mkdir()
        optimizer = torch.optim.AdamW(model.parameters())
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        scaler, ema = torch.amp.GradScaler("cpu", init_scale=float(2**epoch)), torch.optim.swa_utils.AveragedModel(model)
        session = session_of(
            folder, CommitSaver(Checkpointer(CheckpointerSettings("j", epoch, 0, "spec"), objects), RetentionPolicy(2), None), every_steps=2
        )
        extra = {"other": torch.optim.lr_scheduler.StepLR(torch.optim.SGD([torch.ones(1)], lr=0.5 * epoch), 1)}
        session.track(model=[model], optimizer=[optimizer], schedule=[schedule], scaler=scaler, ema=ema, extra=extra)
        return session, model, scaler, ema, extra["other"]

    first = program(1)
    assert list(first[0].steps(3)) == [0, 1, 2]
    second = program(2)
    assert list(second[0].steps(4)) == [3]
    for one, other in zip(first[1:], second[1:], strict=True):
        mine, theirs = one.state_dict(), other.state_dict()
        assert all(torch.equal(torch.as_tensor(value), torch.as_tensor(theirs[name])) for name, value in mine.items() if value is not None)


def test_tracking_says_what_is_missing(tmp_path: Path) -> None:
    session = session_of(tmp_path, SavedInMemory())
    with pytest.raises(InvalidUseError, match="loader"):
        session.track(loader=iter([1]))  # type: ignore[arg-type]
    with pytest.raises(InvalidUseError, match=r"extra={'mine': \.\.\.}\): object has no state_dict"):
        session.track(extra={"mine": object()})  # type: ignore[dict-item]
    with pytest.raises(InvalidUseError, match="optimizer"):
        session.track(optimizer=[1])  # type: ignore[list-item]
    session.track(model=torch.nn.Linear(1, 1))
    with pytest.raises(InvalidUseError, match="one call"):
        session.track(model=torch.nn.Linear(1, 1))

"""A session whose saves go on beside its steps, over a store that is held up."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.support.fakes.folder_store import FolderObjectStore
from tests.support.waiting import until
from tests.unit.workers.session.test_session_boundary import ask, lines
from trainhouse.checkpointing.chain.commits import head, read_entry
from trainhouse.checkpointing.chain.manifest import Manifest
from trainhouse.checkpointing.chain.retention import RetentionPolicy
from trainhouse.checkpointing.checkpointer import Checkpointer, CheckpointerSettings
from trainhouse.checkpointing.errors import StaleEpochError
from trainhouse.checkpointing.uploading.upload_helper import UploadHelper
from trainhouse.events.model.spec import CheckpointPolicy
from trainhouse.workers import Session
from trainhouse.workers.session import EXIT_STOPPED, Context, Stopped
from trainhouse.workers.session.logging.sink import open_sink
from trainhouse.workers.session.process_groups import Gang
from trainhouse.workers.session.saving.checkpoint_saver import CommitSaver


class Run:
    """A session that saves when its program asks, over a store in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = FolderObjectStore(folder / "store")
        context = Context(
            job_id="j",
            spool=folder / "spool.jsonl",
            request=folder / "request.json",
            policy=CheckpointPolicy(min_interval_s=1000, max_interval_s=2000),
        )
        self.helper = UploadHelper(self.store)
        settings = CheckpointerSettings("j", 1, 0, "spec")
        checkpointer = Checkpointer(settings, self.store, helper=self.helper, on_event=self._event)
        self.saver = CommitSaver(checkpointer, RetentionPolicy(5), None)
        self.completed: list[int] = []
        self.session = Session(context, Gang(context), open_sink(context), self.saver)
        self.session.track(model=torch.nn.Linear(4, 4))

    def _event(self, name: str, fields: dict[str, int]) -> None:
        if name == "CheckpointCompleted":
            self.completed.append(fields["step"])

    def saved(self) -> list[int]:
        entries = [read_entry(self.store, "j", n) for n in range(head(self.store, "j") + 1)]
        return [entry.step for entry in entries if isinstance(entry, Manifest)]

    def let_go_when_waited_for(self) -> threading.Thread:
        """Lets the store go once the rank saves, for which it waits then."""

        def run() -> None:
            until(lambda: lines(self.folder, "p") and lines(self.folder, "p")[-1][1].get("activity") == "SAVING")  # type: ignore[attr-defined]
            until(lambda: self.store.waiting > 0)
            assert self.saved() == []
            self.store.let_go()

        thread = threading.Thread(target=run)
        thread.start()
        return thread


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[4]))  # for the store of these tests, in a process that is started anew
    here = Run(tmp_path)
    yield here
    here.store.let_go()
    here.session.close()


def test_steps_go_on_while_the_store_is_held_up_and_the_end_waits_for_the_commit(run: Run) -> None:
    run.store.hold()
    passed = 0
    for step in run.session.steps(200):
        if step == 0:
            run.session.save()
        if step == 150:
            assert run.completed == [] and run.saved() == [], "149 steps since the save, and it is on its way"
            until(lambda: run.store.waiting > 0)
            run.store.let_go()
        passed += 1
    assert passed == 200 and run.saved() == [1, 200]
    run.session.close()
    assert run.completed == [1, 200]


def test_a_stop_ends_with_the_commit(run: Run) -> None:
    run.store.hold()
    waited = None
    with pytest.raises(Stopped) as stopped:
        for step in run.session.steps(10**9):
            if step == 3 and waited is None:
                waited = run.let_go_when_waited_for()
                ask(run.folder, then_stop=True)
    assert stopped.value.code == EXIT_STOPPED and len(run.saved()) == 1
    assert waited is not None
    waited.join(60)


def test_a_newer_attempt_ends_the_rank_at_a_step_boundary(run: Run) -> None:
    run.store.hold()
    with pytest.raises(StaleEpochError):
        for step in run.session.steps(10**9):
            if step == 0:
                run.session.save()
            if step == 1:
                Checkpointer(CheckpointerSettings("j", 2, 1, "spec"), run.store).claim()
                run.store.let_go()
    assert run.saved() == []


def test_a_killed_upload_process_costs_that_save_and_training_goes_on(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    for step in run.session.steps(30):
        if step == 10:
            run.store.hold()
            run.session.save()
        if step == 11:
            until(lambda: run.store.waiting > 0)
            os.kill(run.helper.pid, signal.SIGKILL)
            until(lambda: not run.saver.uploading)
            run.store.let_go()
    assert "the checkpoint of step 11 was not saved, training goes on: the process that uploads" in capfd.readouterr().err
    assert run.saved() == [30]

"""Saves beside training: what is staged is what is saved, one save is under way at a time, and a dead upload process costs one save."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from tests.support.fakes.folder_store import FolderObjectStore, UnreadableStore
from tests.support.waiting import until
from trainhouse.checkpointing.chain.commits import head, read_entry
from trainhouse.checkpointing.chain.manifest import Manifest
from trainhouse.checkpointing.chain.pace import BACKGROUND_THREADS, FULL_THREADS
from trainhouse.checkpointing.checkpointer import Checkpointer, CheckpointerSettings
from trainhouse.checkpointing.errors import SaveFailedError, StaleEpochError
from trainhouse.checkpointing.uploading.upload_helper import UploadHelper
from trainhouse.checkpointing.uploading.upload_process import NICE
from trainhouse.events.model.spec import UploadPace

torch.set_num_threads(1)
MIB = 2**20


class Saving:
    """A training state of some MiB, and a checkpointer with an upload process of its own."""

    def __init__(self, folder: Path) -> None:
        self.store = FolderObjectStore(folder)
        self.helper = UploadHelper(self.store)
        self.events: list[tuple[str, Any]] = []
        self.state = {"a": torch.arange(MIB // 4, dtype=torch.float32), "b": torch.zeros(MIB // 4), "small": torch.zeros(3)}
        self.opened: list[Checkpointer] = []

    def checkpointer(self, epoch: int = 1, **settings: Any) -> Checkpointer:
        at = Checkpointer(
            CheckpointerSettings("j", epoch, 0, "spec", **settings),
            self.store,
            helper=self.helper if epoch == 1 else None,
            on_event=lambda name, fields: self.events.append((name, fields.get("reason") or fields["step"])),
        )
        self.opened.append(at)
        return at

    def train(self) -> None:
        for tensor in self.state.values():
            tensor += 1

    def restored(self) -> tuple[int, dict[str, torch.Tensor], dict[str, Any]]:
        found, own = {name: torch.full_like(tensor, -1) for name, tensor in self.state.items()}, {}
        report = Checkpointer(CheckpointerSettings("j", 9, 0, "spec"), self.store).restore(found, own.update)
        return report.step, found, own

    def saved_steps(self) -> list[int]:
        entries = [read_entry(self.store, "j", n) for n in range(head(self.store, "j") + 1)]
        return [entry.step for entry in entries if isinstance(entry, Manifest)]


@pytest.fixture
def saving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Saving]:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))  # for the store of these tests, in a process that is started anew
    here = Saving(tmp_path / "store")
    yield here
    here.store.let_go()
    for at in here.opened:
        at.close()
    here.helper.close()


def test_training_changes_its_state_while_the_upload_is_held_and_the_staged_one_is_saved(saving: Saving) -> None:
    at, before = saving.checkpointer(), {name: tensor.clone() for name, tensor in saving.state.items()}
    saving.store.hold()
    pending = at.begin_save(saving.state, {"step": 1}, 1, 1.0)
    until(lambda: saving.store.waiting > 0)
    saving.train()
    assert not pending.done and saving.saved_steps() == [] and saving.events == [("CheckpointStarted", 1)]
    saving.store.let_go()
    assert pending.result().step == 1
    assert [name for name, _ in saving.events] == ["CheckpointStarted", "CheckpointCompleted"]
    step, found, own = saving.restored()
    assert step == 1 and own == {"step": 1} and all(torch.equal(found[name], tensor) for name, tensor in before.items())


def test_the_next_save_waits_for_the_one_under_way_and_none_is_dropped(saving: Saving) -> None:
    at = saving.checkpointer()
    saving.store.hold()
    first = at.begin_save(saving.state, {}, 1, 1.0)
    saving.train()
    results: list[int] = []
    second = threading.Thread(target=lambda: results.append(at.save(saving.state, {}, 2, 2.0).step))
    second.start()
    until(lambda: saving.store.waiting > 0)
    assert [step for _, step in saving.events] == [1] and second.is_alive(), "the second has not begun"
    saving.store.let_go()
    second.join(60)
    assert first.result().step == 1 and results == [2] and saving.saved_steps() == [1, 2]
    assert at.newest_commit == 2, "a result that is asked for late changes nothing"


def many_bodies() -> dict[str, torch.Tensor]:
    """A state of twelve chunks that differ."""
    return {f"w{number}": torch.full((MIB // 4,), float(number)) for number in range(12)}


def priorities(helper: UploadHelper) -> Counter[int]:
    """How many threads of the process that uploads have each nice value."""
    tasks = Path(f"/proc/{helper.pid}/task").iterdir()
    return Counter(os.getpriority(os.PRIO_PROCESS, int(task.name)) for task in tasks)


def test_an_upload_beside_training_is_slow_and_hurries_once_training_waits_for_it(saving: Saving) -> None:
    at = saving.checkpointer()
    saving.store.hold()
    pending = at.begin_save(many_bodies(), {}, 1, 1.0)
    until(lambda: saving.store.waiting == BACKGROUND_THREADS)
    assert not pending.wait(0) and saving.store.waiting == BACKGROUND_THREADS, "to ask is not to wait"
    before, base = priorities(saving.helper), os.getpriority(os.PRIO_PROCESS, 0)
    assert before[base + NICE] > BACKGROUND_THREADS, "those that send, and the one that waits for them"
    waits = threading.Thread(target=pending.result)
    waits.start()
    until(lambda: saving.store.waiting == FULL_THREADS)
    assert priorities(saving.helper) - before == Counter({base: FULL_THREADS - BACKGROUND_THREADS}), (
        "the new ones have training's own priority"
    )
    saving.store.let_go()
    waits.join(60)
    assert pending.result().step == 1


@pytest.mark.parametrize("pace", list(UploadPace))
def test_a_blocking_save_and_a_full_one_have_all_threads_at_once(saving: Saving, pace: UploadPace) -> None:
    at = saving.checkpointer(pace=pace)
    saving.store.hold()
    saves = threading.Thread(target=lambda: (at.begin_save if pace is UploadPace.FULL else at.save)(many_bodies(), {}, 1, 1.0))
    saves.start()
    until(lambda: saving.store.waiting == FULL_THREADS)
    saving.store.let_go()
    saves.join(60)


def test_a_killed_upload_process_costs_one_save_and_the_next_has_another(saving: Saving) -> None:
    at = saving.checkpointer()
    at.save(saving.state, {}, 1, 1.0)
    saving.train()
    saving.store.hold()
    pending = at.begin_save(saving.state, {}, 2, 2.0)
    until(lambda: saving.store.waiting > 0)
    killed = saving.helper.pid
    os.kill(killed, signal.SIGKILL)
    with pytest.raises(SaveFailedError, match=rf"pid {killed}\) was ended by SIGKILL; the older checkpoints stand"):
        pending.result()
    assert saving.events[-1][0] == "CheckpointFailed" and "SIGKILL" in saving.events[-1][1]
    assert saving.saved_steps() == [1]
    saving.store.let_go()
    at.save(saving.state, {}, 3, 3.0)
    anew = saving.helper.pid
    assert anew not in (0, killed)
    for step in (4, 5):
        saving.train()
        at.save(saving.state, {}, step, float(step))
    assert saving.helper.pid == anew and saving.saved_steps() == [1, 3, 4, 5], "it stays, whichever thread started it"


def test_the_same_memory_is_used_by_every_save(saving: Saving) -> None:
    at, seen = saving.checkpointer(), set()
    for step in range(1, 21):
        at.save(saving.state, {"step": step}, step, float(step))
        saving.train()
        seen.add((saving.helper.arena.whole.data_ptr(), saving.helper.arena.size_bytes, saving.helper.pid))
    assert len(seen) == 1 and saving.saved_steps() == list(range(1, 21))


def test_a_save_that_is_given_up_leaves_the_commit_before(saving: Saving) -> None:
    at = saving.checkpointer()
    at.save(saving.state, {}, 1, 1.0)
    saving.train()
    saving.store.hold()
    at.begin_save(saving.state, {}, 2, 2.0)
    at.close()
    saving.store.let_go()
    assert saving.restored()[0] == 1 and saving.saved_steps() == [1]


def test_the_end_waits_for_the_upload_as_long_as_it_is_told(saving: Saving) -> None:
    at = saving.checkpointer()
    at.begin_save(saving.state, {}, 1, 1.0)
    at.close(60)
    assert saving.saved_steps() == [1]


def test_a_newer_attempt_that_came_during_the_upload_is_an_error_of_the_save_and_of_the_next(saving: Saving) -> None:
    at = saving.checkpointer()
    saving.store.hold()
    at.claim()
    pending = at.begin_save(saving.state, {}, 1, 1.0)
    saving.checkpointer(epoch=2).claim()
    saving.store.let_go()
    with pytest.raises(StaleEpochError):
        at.begin_save(saving.state, {}, 2, 2.0)
    with pytest.raises(StaleEpochError):
        pending.result()
    assert saving.saved_steps() == []


def test_a_state_larger_than_its_memory_goes_in_waves_and_is_told_once(saving: Saving) -> None:
    at = saving.checkpointer(host_memory_bytes=MIB + MIB // 2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in (1, 2):
            saving.train()
            at.save(saving.state, {"step": step}, step, float(step))
    (told,) = [str(w.message) for w in caught if "waves" in str(w.message)]
    assert "host_memory_gib" in told and saving.helper.arena.size_bytes == 2 * MIB
    step, found, own = saving.restored()
    assert step == 2 and own == {"step": 2} and all(torch.equal(found[name], tensor) for name, tensor in saving.state.items())


def test_memory_that_cannot_be_had_is_told_and_the_save_goes_in_waves(saving: Saving) -> None:
    """A limit on the sizes of files is one for this memory, too."""
    saving.state["c"] = torch.ones(MIB // 4)
    at, limits = saving.checkpointer(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 * MIB, limits[1]))
    try:
        with pytest.warns(UserWarning, match=r"3 MiB of host memory .* could not be had .*: saves go in waves"):
            at.save(saving.state, {}, 1, 1.0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert all(torch.equal(saving.restored()[1][name], tensor) for name, tensor in saving.state.items())


def test_the_upload_process_ends_with_its_rank_and_not_with_a_signal_to_the_gang(saving: Saving) -> None:
    helper = psutil.Process(saving.helper.pid)
    saving.checkpointer().save(saving.state, {}, 1, 1.0)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        helper.send_signal(number)
    saving.train()
    saving.opened[0].save(saving.state, {}, 2, 2.0)
    assert helper.is_running() and saving.saved_steps() == [1, 2]
    saving.helper.close()
    until(lambda: not helper.is_running())


def test_a_tensor_that_comes_or_changes_its_shape_after_a_save_is_in_the_next(saving: Saving) -> None:
    at = saving.checkpointer()
    at.save(saving.state, {}, 1, 1.0)
    saving.state |= {"later": torch.arange(5), "small": torch.ones(4)}
    at.save(saving.state, {}, 2, 2.0)
    saving.train()
    at.save(saving.state, {}, 3, 3.0)
    step, found, _ = saving.restored()
    assert step == 3 and all(torch.equal(found[name], tensor) for name, tensor in saving.state.items())


def test_a_stopped_upload_process_is_killed_and_costs_one_save(saving: Saving, monkeypatch: pytest.MonkeyPatch) -> None:
    at = saving.checkpointer()
    at.save(saving.state, {}, 1, 1.0)
    saving.train()
    monkeypatch.setattr("trainhouse.checkpointing.uploading.upload_helper.SILENT_S", 3)  # not before: a start may take longer
    os.kill(saving.helper.pid, signal.SIGSTOP)
    with pytest.raises(SaveFailedError, match="was silent for 3 s, and was killed"):
        at.save(saving.state, {}, 2, 2.0)
    monkeypatch.undo()
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    at.save(saving.state, {}, 3, 3.0)
    assert saving.saved_steps() == [1, 3]


def test_a_module_in_the_working_folder_does_not_shadow_the_librarys(
    saving: Saving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "calendar.py").write_text("raise RuntimeError('no calendar')")
    monkeypatch.chdir(tmp_path)
    os.kill(saving.helper.pid, signal.SIGKILL)
    at = saving.checkpointer()
    with pytest.raises(SaveFailedError, match="SIGKILL"):
        at.save(saving.state, {}, 1, 1.0)
    for step in range(2, 7):
        saving.train()
        at.save(saving.state, {}, step, float(step))
    assert saving.saved_steps() == [2, 3, 4, 5, 6], "one death costs one save"


def test_processes_that_end_at_once_are_given_up_and_this_one_uploads(
    saving: Saving, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    helper = UploadHelper(UnreadableStore(tmp_path / "store"))
    at = Checkpointer(CheckpointerSettings("j", 1, 0, "spec"), saving.store, helper=helper)
    for step in (1, 2):
        with pytest.raises(SaveFailedError, match=r"ended with 1 \(.*LookupError: no such store here\)|Broken pipe|SIGKILL"):
            at.save(saving.state, {}, step, 1.0)
    at.save(saving.state, {}, 3, 3.0)
    assert saving.saved_steps() == [3] and "training's own process uploads them" in capfd.readouterr().err
    at.close()


def test_a_close_right_after_a_save_began_leaves_no_process(saving: Saving) -> None:
    others = set(psutil.Process().children())  # of other tests
    at = saving.checkpointer()
    at.save(saving.state, {}, 1, 1.0)
    saving.store.hold()
    for _ in range(2):
        saving.train()
    at.begin_save(saving.state, {}, 2, 2.0)
    began = time.monotonic()
    at.close()
    assert time.monotonic() - began < 60 and not set(psutil.Process().children()) - others and saving.saved_steps() == [1]


def test_a_closed_checkpointer_gives_its_memory_back(tmp_path: Path) -> None:
    def arenas() -> int:
        links = [os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
        return sum("trainhouse-staging" in link for link in links)

    before = arenas()
    at = Checkpointer(CheckpointerSettings("j", 1, 0, "spec"), FolderObjectStore(tmp_path))
    at.save({"a": torch.zeros(MIB)}, {}, 1, 1.0)
    at.close()
    at.save_for_all({"a": torch.ones(MIB)}, [{}], 2, 2.0)
    assert arenas() == before


def test_every_wave_of_an_upload_counts(saving: Saving) -> None:
    at = saving.checkpointer(host_memory_bytes=MIB + MIB // 2, grace_s=4.0)
    saving.store.hold()
    began = time.monotonic()

    def let_go() -> None:
        until(lambda: saving.store.waiting > 0 and time.monotonic() - began > 3)
        saving.store.let_go()

    holder = threading.Thread(target=let_go)
    holder.start()
    with pytest.raises(SaveFailedError, match="more than half of retention's grace"):
        at.save(saving.state, {}, 1, 1.0)
    holder.join()


def test_the_last_save_of_a_program_that_ends_is_committed_without_a_process_of_its_own(tmp_path: Path) -> None:
    program = f"""
import atexit, threading, torch
from pathlib import Path
from tests.support.fakes.folder_store import FolderObjectStore
from tests.support.waiting import until
from trainhouse.checkpointing.checkpointer import Checkpointer, CheckpointerSettings
store = FolderObjectStore(Path({str(tmp_path)!r}))
at = Checkpointer(CheckpointerSettings("j", 1, 0, "spec"), store)
atexit.register(at.close, 60)
atexit.register(store.let_go)
store.hold()
at.begin_save({{f"a{{n}}": torch.full((70_000,), float(n)) for n in range(30)}}, {{}}, 1, 1.0)
until(lambda: store.waiting > 0)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120, cwd=Path(__file__).parents[3])
    entry = read_entry(FolderObjectStore(tmp_path), "j", 1)
    assert isinstance(entry, Manifest) and entry.step == 1


def test_a_result_that_is_asked_for_late_changes_nothing(saving: Saving) -> None:
    at = saving.checkpointer()
    first = at.begin_save(saving.state, {}, 1, 1.0)
    saving.train()
    assert at.begin_save(saving.state, {}, 2, 2.0).result().commit == 2 and first.result().commit == 1
    saving.train()
    at.save(saving.state, {}, 3, 3.0)
    entry = read_entry(saving.store, "j", 3)
    assert isinstance(entry, Manifest) and entry.parent == 2

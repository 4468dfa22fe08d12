"""The process that uploads, beside ranks as an agent starts them: forked by a warm rank, within the walls of a confined one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.confined_support import confinement_of
from tests.integration.launcher_support import Attempt
from tests.support.fakes import folder_store
from tests.support.waiting import until
from trainhouse.workers.launcher import Launcher, attempt_alive, kill_tree

TRAIN = """
import json, os, signal, sys, time
from pathlib import Path
import torch
from folder_store import FolderObjectStore
from trainhouse.checkpointing.checkpointer import Checkpointer, CheckpointerSettings
from trainhouse.checkpointing.errors import SaveFailedError
from trainhouse.checkpointing.uploading.upload_helper import UploadHelper

def command(pid):
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode()

store = FolderObjectStore(Path("store"))
helper = UploadHelper(store)
facts = {"forked": "upload_process" not in command(helper.pid)}
with open("/dev/shm/full", "wb") as full:  # what others keep there is nothing to a save
    full.write(b"x" * 2**20)
state = {"w": torch.arange(500_000)}
at = Checkpointer(CheckpointerSettings("j", 1, 0, "spec"), store, helper=helper)
facts["saved"] = at.save(state, {}, 1, 1.0).step
state["w"] += 1
store.hold()
pending = at.begin_save(state, {}, 2, 2.0)
while not store.waiting:
    time.sleep(0.01)
os.kill(helper.pid, signal.SIGKILL)
try:
    pending.result()
except SaveFailedError as error:
    facts["error"] = str(error)
store.let_go()
facts["saved again"] = at.save(state, {}, 3, 3.0).step
facts["started anew"] = "upload_process" in command(helper.pid)
print(json.dumps(facts), flush=True)
store.hold()
state["w"] += 1
at.begin_save(state, {}, 4, 4.0)
while not Path("stop").exists():
    time.sleep(0.01)
"""


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    launcher = Launcher(warm_wait_s=120)
    launcher.prepare()
    until(launcher.warm_ready)
    yield launcher
    launcher.close()


@pytest.mark.parametrize("confined", [False, True])
def test_a_save_is_uploaded_from_memory_that_no_folder_bounds_and_no_process_outlives_its_rank(
    launcher: Launcher, tmp_path: Path, confined: bool
) -> None:
    attempt = Attempt(tmp_path / "1" / "1", TRAIN)
    (attempt.paths.code / "folder_store.py").write_text(Path(folder_store.__file__).read_text())
    launcher.start(attempt.paths, attempt.launches(), attempt.store, confinement_of(attempt) if confined else None)
    until(lambda: attempt.stdout().count("\n") or not attempt_alive(attempt.paths), told=attempt.stderr)
    facts = json.loads(attempt.stdout())
    assert "was ended by SIGKILL" in facts.pop("error")
    assert facts == {"forked": True, "saved": 1, "saved again": 3, "started anew": True}
    kill_tree(attempt.paths)
    until(lambda: not attempt_alive(attempt.paths))
    attempt.close()

"""The process that uploads, beside ranks as an agent starts them: forked by a warm rank, within the walls of a confined one."""

from __future__ import annotations

import json
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

os.environ["PYTHONPATH"] = os.getcwd()  # for a process that is started anew: it needs this store's class
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

# Two ranks; the second dies when both have staged step 2 and the store takes nothing.
DYING = """
import json, os, signal, time
from pathlib import Path
import torch, torch.distributed as dist
from folder_store import FolderObjectStore
from trainhouse.checkpointing.checkpointer import Checkpointer, CheckpointerSettings
from trainhouse.checkpointing.uploading.upload_helper import UploadHelper

os.environ["PYTHONPATH"] = os.getcwd()  # for a process that is started anew: it needs this store's class
store = FolderObjectStore(Path("store"))
helper = UploadHelper(store)
dist.init_process_group("gloo")
rank = dist.get_rank()
state = {name: torch.full((500_000,), 1.0) for name in ("a", "b", "c")}
at = Checkpointer(CheckpointerSettings("j", 1, 0, "spec"), store, helper=helper)
facts = {"saved": at.save(state, {}, 1, 1.0).step}
dist.barrier()
store.hold()
dist.barrier()
for tensor in state.values():
    tensor += 1
pending = at.begin_save(state, {}, 2, 2.0)
for tensor in state.values():
    tensor += 1
while store.waiting < 2:
    time.sleep(0.01)
if rank == 1:
    Path("dying").write_text(str(os.getpid()))
    os.kill(os.getpid(), signal.SIGKILL)
while not Path("dying").exists() or Path("/proc", Path("dying").read_text() or "self").exists():
    time.sleep(0.01)
store.let_go()
began = time.monotonic()
try:
    pending.result()
except RuntimeError as error:
    facts["error"] = type(error).__name__
facts["in time"] = time.monotonic() - began < 60
at.close()
found, own = {name: torch.zeros(500_000) for name in state}, {}
dist.destroy_process_group()
facts["step"] = Checkpointer(CheckpointerSettings("j", 2, 1, "spec"), store).restore(found, own.update).step
facts["values"] = sorted({float(v) for tensor in found.values() for v in tensor.unique()})
print(json.dumps(facts), flush=True)
"""


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


def test_a_rank_that_dies_between_staging_and_commit_leaves_the_commit_before(launcher: Launcher, tmp_path: Path) -> None:
    attempt = Attempt(tmp_path / "1" / "1", DYING, ranks=2)
    (attempt.paths.code / "folder_store.py").write_text(Path(folder_store.__file__).read_text())
    launcher.start(attempt.paths, attempt.launches(), attempt.store)
    until(lambda: attempt.stdout().count("\n") or not attempt_alive(attempt.paths), told=attempt.stderr)
    facts = json.loads(attempt.stdout() or "{}")
    assert facts.pop("error", None), attempt.stderr()
    assert facts == {"saved": 1, "in time": True, "step": 1, "values": [1.0]}
    kill_tree(attempt.paths)
    until(lambda: not attempt_alive(attempt.paths))
    attempt.close()

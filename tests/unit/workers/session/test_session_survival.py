"""When the ranks that are left may save: own states in files, what others have left, and what speaks against it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from tests.support.fakes.memory_store import MemoryObjectStore
from trainhouse.checkpointing.chain.retention import RetentionPolicy
from trainhouse.checkpointing.checkpointer import Checkpointer, CheckpointerSettings
from trainhouse.checkpointing.errors import ObjectStoreRefusedError
from trainhouse.workers.own_states import HEADER, NAMES, node_key, packed, read_left
from trainhouse.workers.session.saving.checkpoint_saver import CommitSaver
from trainhouse.workers.session.saving.own_state import OwnStateNotSavedError, OwnStates, own_of
from trainhouse.workers.session.saving.peer_state import Elsewhere, Missing, Others, judged
from trainhouse.workers.session.saving.survivable import why_not_survivable, why_too_late
from trainhouse.workers.session.saving.survivor_save import Survival, lost_a_peer
from trainhouse.workers.session.saving.tracked_state import Tracked


def read_own(folder: Path, step: int) -> dict[str, Any] | None:
    return own_of(read_left(0, folder), step)


def test_the_last_two_boundaries_are_there_and_nothing_else(tmp_path: Path) -> None:
    kept = OwnStates(tmp_path)
    for step in range(7, 11):
        kept.keep(step, {"step": step, "noise": "x" * step})
    assert [read_own(tmp_path, step) for step in (7, 8)] == [None, None]
    assert read_own(tmp_path, 9) == {"step": 9, "noise": "x" * 9}
    assert read_own(tmp_path, 10) == {"step": 10, "noise": "x" * 10}
    assert read_own(tmp_path / "of a rank elsewhere", 10) is None
    assert read_left(0, tmp_path).newest == 10


@pytest.mark.parametrize("cut", [0, HEADER.size - 1, HEADER.size + 3])
def test_a_state_that_is_not_whole_is_not_there(tmp_path: Path, cut: int) -> None:
    OwnStates(tmp_path).keep(4, {"a": 1})
    path = tmp_path / NAMES[0]
    path.write_bytes(path.read_bytes()[:cut])
    assert read_own(tmp_path, 4) is None


def test_a_flipped_bit_is_noticed(tmp_path: Path) -> None:
    OwnStates(tmp_path).keep(4, {"a": 1})
    path = tmp_path / NAMES[0]
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    assert read_own(tmp_path, 4) is None


def test_a_huge_state_is_not_kept(tmp_path: Path) -> None:
    with pytest.raises(OwnStateNotSavedError, match="more than"):
        OwnStates(tmp_path).keep(1, {"a": b"x" * 5_000_000})


def test_a_full_disk_and_a_state_that_cannot_be_pickled_are_told(tmp_path: Path) -> None:
    (tmp_path / NAMES[0]).symlink_to("/dev/full")
    with pytest.raises(OwnStateNotSavedError, match="No space left"):
        OwnStates(tmp_path).keep(2, {"a": 1})
    with pytest.raises(OwnStateNotSavedError, match="pickle"):
        OwnStates(tmp_path).keep(1, {"a": lambda: None})


def test_only_a_collective_says_that_a_peer_is_gone() -> None:
    inner = RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:24421")
    outer = ValueError("training failed")
    outer.__cause__ = inner
    assert lost_a_peer(inner)
    assert lost_a_peer(outer)
    assert lost_a_peer(torch.distributed.DistBackendError("anything"))
    assert not lost_a_peer(ValueError("shape mismatch"))
    assert not lost_a_peer(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert not lost_a_peer(KeyboardInterrupt())


# ---- what others have left


class Gang:
    """Ranks at step boundaries, each with a folder on its machine: two machines of two ranks."""

    def __init__(self, folder: Path, steps: tuple[int, ...]) -> None:
        self.machines = [folder / "m0", folder / "m1"]
        for rank, step in enumerate(steps):
            self.of(rank).mkdir(parents=True)
            kept = OwnStates(self.of(rank))
            for at in (step - 1, step):
                kept.keep(at, {"rank": rank, "step": at})

    def of(self, rank: int, machine: int | None = None) -> Path:
        return self.machines[rank // 2 if machine is None else machine] / f"rank-{rank}"

    def dies(self, rank: int) -> None:
        (self.of(rank) / "exit.json").write_text("{}")

    def told(self, objects: MemoryObjectStore, machine: int) -> None:
        body = packed(read_left(rank, self.of(rank)) for rank in (2 * machine, 2 * machine + 1))
        objects.put(node_key("j", 3, f"node-{machine}"), body)

    def seen_by(self, rank: int, objects: MemoryObjectStore, epoch: int = 3) -> Others:
        return Others(rank, [self.of(r, rank // 2) for r in range(4)], Elsewhere(objects, "j", epoch))


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainhouse.workers.session.saving.peer_state.ELSEWHERE_S", 0.05)
    monkeypatch.setattr("trainhouse.workers.session.saving.peer_state.LOOK_ELSEWHERE_S", 0.01)


def test_what_ranks_on_another_machine_have_is_taken_from_the_store(tmp_path: Path) -> None:
    objects, gang = MemoryObjectStore(), Gang(tmp_path, (9, 9, 9, 9))
    gang.dies(3)
    gang.told(objects, 1)
    assert gang.seen_by(0, objects).own_states(9) == [{"rank": rank, "step": 9} for rank in range(4)]


def test_a_machine_that_tells_nothing_leaves_nothing_to_save(tmp_path: Path) -> None:
    objects, gang = MemoryObjectStore(), Gang(tmp_path, (9, 9, 9, 9))
    gang.dies(1)
    found = gang.seen_by(0, objects).own_states(9)
    assert found == "what rank 2 has of its own is on another machine, which has not told it after 0.05 s"


def test_a_rank_that_died_a_step_behind_forbids_the_step_but_not_the_one_before(tmp_path: Path) -> None:
    objects, gang = MemoryObjectStore(), Gang(tmp_path, (10, 10, 9, 9))
    gang.dies(3)
    gang.told(objects, 1)
    assert gang.seen_by(0, objects).own_states(10) == "rank 3 is gone, and what it had of its own at step 10 was not kept"
    assert isinstance(gang.seen_by(2, objects), Others)
    gang.told(objects, 0)
    assert gang.seen_by(2, objects).own_states(9) == [{"rank": rank, "step": 9} for rank in range(4)]


def test_a_rank_that_is_late_is_waited_for(tmp_path: Path) -> None:
    objects, gang = MemoryObjectStore(), Gang(tmp_path, (9, 9, 8, 9))
    gang.dies(3)
    gang.told(objects, 1)
    assert gang.seen_by(0, objects).own_states(9) == "rank 2 has not come to step 9 after 0.05 s"
    OwnStates(gang.of(2)).keep(9, {"rank": 2, "step": 9})
    gang.told(objects, 1)
    assert isinstance(gang.seen_by(0, objects).own_states(9), list)


def test_without_an_end_of_some_rank_nothing_is_saved(tmp_path: Path) -> None:
    objects, gang = MemoryObjectStore(), Gang(tmp_path, (9, 9, 9, 9))
    gang.told(objects, 1)
    assert gang.seen_by(0, objects).own_states(9) == "no rank of the gang is gone after 0.05 s"


def test_a_rank_that_keeps_nothing_of_late_is_not_waited_for(tmp_path: Path) -> None:
    gang = Gang(tmp_path, (9, 3, 9, 9))
    found = {rank: read_left(rank, gang.of(rank)) for rank in range(4)}
    assert judged(found, 0, 4, 9) == Missing("rank 1 does not keep what it has of its own at step 9", final=True)
    found[1] = replace(found[1], states=(b"", b""))
    assert judged(found, 0, 4, 9) == Missing("rank 1 does not keep what it has of its own at step 9", final=True)


def test_one_rank_of_all_machines_saves_a_step(tmp_path: Path) -> None:
    objects, gang = MemoryObjectStore(), Gang(tmp_path, (9, 9, 9, 9))
    chosen = [rank for rank in (2, 0, 1, 3) if gang.seen_by(rank, objects).chosen(9)]
    assert chosen == [2]
    assert gang.seen_by(1, objects).chosen(8), "another step is another matter"


def test_what_older_attempts_left_is_removed_and_ours_is_not(tmp_path: Path) -> None:
    objects, gang = MemoryObjectStore(), Gang(tmp_path, (9, 9, 9, 9))
    gang.told(objects, 0)
    gang.seen_by(0, objects).chosen(9)
    Elsewhere(objects, "j", 3).forget_older()
    assert len(list(objects.list("jobs/j/own/"))) == 2
    Elsewhere(objects, "j", 4).forget_older()
    assert not list(objects.list("jobs/j/own/"))


# ---- where a failure is known in time


class Group:
    """A process group as far as the rule asks it."""

    def __init__(self, ranks: int = 2, **backends: str) -> None:
        self.ranks, self.backends = ranks, backends

    def size(self) -> int:
        return self.ranks

    def _get_backend(self, device: torch.device) -> Any:
        if device.type not in self.backends:
            raise RuntimeError(f"No backend type associated with device type {device.type}")
        return type("Backend", (), {"name": lambda self, name=self.backends[device.type]: name})()


def wrapped(device: str = "meta", **backends: str) -> DistributedDataParallel:
    """What a rule that only looks sees of a model under DDP; without devices, tensors claim theirs."""
    model = DistributedDataParallel.__new__(DistributedDataParallel)
    torch.nn.Module.__init__(model)
    model.module = torch.nn.Linear(2, 2, device=device)
    model.process_group = Group(**backends)  # type: ignore[assignment]
    return model


def why(model: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None) -> str:
    return why_not_survivable(Tracked(model, optimizer or torch.optim.SGD(model.parameters(), lr=0.1)), 2)


def test_where_each_rank_has_everything_and_knows_in_time_it_can_save() -> None:
    assert why(wrapped("cpu", cpu="gloo")) == ""
    assert why(wrapped("cpu", cpu="gloo", cuda="nccl")) == ""


def test_where_it_cannot_be_known_it_does_not_and_says_why() -> None:
    assert "DistributedDataParallel" in why(torch.nn.Linear(1, 1))
    assert "DistributedDataParallel" in why_not_survivable(Tracked(wrapped("cpu", cpu="gloo"), None), 2)
    assert why(wrapped("meta", meta="gloo")).startswith("its tensors are on meta")
    assert "and mpi may tell of a failed collective only after" in why(wrapped("cpu", cpu="mpi"))
    assert "a backend without a name" in why(wrapped("cpu"))


def test_a_replicated_pipeline_stage_is_not_the_whole_model() -> None:
    stage = wrapped("cpu", cpu="gloo")
    optimizer = torch.optim.SGD(stage.parameters(), lr=0.1)
    assert why_not_survivable(Tracked(stage, optimizer), 2) == ""
    assert "replicated over 2 of 4 ranks, so no rank has all of it" in why_not_survivable(Tracked(stage, optimizer), 4)


def test_parts_that_may_have_changed_since_the_boundary_forbid_it() -> None:
    model = wrapped("cpu", cpu="gloo")
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1)]
    assert why_not_survivable(Tracked(model, optimizers, scaler=torch.amp.GradScaler("cpu")), 2) == ""
    for more in ({"ema": torch.nn.Linear(1, 1)}, {"extra": {"probe": torch.nn.Linear(1, 1)}}):
        assert "may have changed since the last step boundary" in why_not_survivable(Tracked(model, optimizers, **more), 2)  # type: ignore[arg-type]


def test_tensors_on_a_device_are_judged_by_the_backend_that_serves_it() -> None:
    both = Group(cpu="gloo", cuda="nccl")
    assert why_too_late(both, "cpu") == ""
    assert why_too_late(both, "cuda").startswith("its tensors are on cuda, and nccl may tell")
    assert why_too_late(Group(cuda="gloo"), "cuda"), "not shown to be exact, so it is not tried"


class Loader:
    """A loader whose state is what the test says."""

    def __init__(self, state: object) -> None:
        self.state = state

    def state_dict(self) -> object:
        return self.state

    def load_state_dict(self, state: object) -> None:
        self.state = state


def test_training_goes_on_without_it_where_an_own_state_cannot_be_kept(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folders = [tmp_path / f"rank-{rank}" for rank in (0, 1)]
    for folder in folders:
        folder.mkdir()
    survival, model = Survival(0, folders, lambda state, own, step: True), wrapped("cpu", cpu="gloo")
    loader = Loader({"at": 3})
    survival.track(Tracked(model, torch.optim.SGD(model.parameters(), lr=0.1), loader=loader))
    assert not survival.possible, "nothing is kept yet"
    survival.boundary(1, 1.0)
    assert survival.possible
    loader.state = {"at": lambda: 3}
    survival.boundary(2, 2.0)
    survival.boundary(3, 3.0)
    assert not survival.possible and not survival.rescue(RuntimeError("Connection closed by peer"), 60.0, 0.0)
    assert capfd.readouterr().err.count("those that are left cannot save for it: a rank's own state cannot be pickled") == 1


def test_a_gang_whose_steps_are_too_short_to_keep_its_states_says_that_it_could_not_save(tmp_path: Path) -> None:
    folders = [tmp_path / f"rank-{rank}" for rank in (0, 1)]
    for folder in folders:
        folder.mkdir()
    survival, model = Survival(0, folders, lambda state, own, step: True), wrapped("cpu", cpu="gloo")
    survival.track(Tracked(model, torch.optim.SGD(model.parameters(), lr=0.1)))
    for step in range(4):
        survival.boundary(step, step * 1e-9)
    assert not survival.possible


class NothingGoes(MemoryObjectStore):
    """Gives no right to remove."""

    def delete(self, key: str) -> None:
        raise ObjectStoreRefusedError(f"no right to remove {key}")


def test_ranks_that_may_remove_nothing_save_all_the_same(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    objects = NothingGoes()
    objects.put(node_key("j", 3, "node-1"), b"of an earlier attempt")
    checkpointer, elsewhere = Checkpointer(CheckpointerSettings("j", 4, 1, "0" * 64), objects), Elsewhere(objects, "j", 4)
    saver = CommitSaver(checkpointer, RetentionPolicy(1), resume_from=None, elsewhere=elsewhere, tidies=True)
    assert [saver.save(Tracked(torch.nn.Linear(1, 1)), step, {}) for step in (1, 2)] == [True, True]
    saver.close(60)
    assert capfd.readouterr().err.count("no right to remove") == 1

"""Saving and restoring in one process, on the in-memory store: exactness, damage, crashes at every point, stale attempts."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.fakes.memory_store import MemoryObjectStore
from trainhouse.checkpointing.chain.chunks import SHARED_PREFIX, chunk_key, chunks_prefix
from trainhouse.checkpointing.chain.commits import commit_key, entries_newest_first, read_entry
from trainhouse.checkpointing.chain.manifest import Claim, Manifest, encode
from trainhouse.checkpointing.chain.references import tag, untag
from trainhouse.checkpointing.chain.retention import Pruner, RetentionPolicy
from trainhouse.checkpointing.checkpointer import Checkpointer, CheckpointerSettings
from trainhouse.checkpointing.errors import (
    ChainConflictError,
    InvalidStateError,
    NoCheckpointError,
    ObjectStoreUnavailableError,
    SaveFailedError,
    StaleEpochError,
)
from trainhouse.checkpointing.state import rng
from trainhouse.checkpointing.stores.object_store import Body
from trainhouse.events.model.checkpoint import MOST_METRICS

torch.set_num_threads(1)
OF_J1 = chunks_prefix("j1")
Told = list[tuple[str, dict[str, Any]]]


class Training:
    """A small model that trains for real, so that a difference of one bit anywhere shows up in its weights."""

    def __init__(self, seed: int = 7) -> None:
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)
        self.model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Dropout(0.2), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 50)
        self.step = 0

    def train(self, steps: int) -> None:
        for _ in range(steps):
            noise = random.random() + float(np.random.rand())
            loss = (self.model(torch.randn(8, 6)) - noise).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.schedule.step()
            self.step += 1

    @property
    def state(self) -> dict[str, Any]:
        return {"model": self.model, "optimizer": self.optimizer, "schedule": self.schedule}

    def own(self) -> dict[str, Any]:
        return {"rng": rng.capture(), "loader": {"position": self.step * 8, "order": np.arange(3)}, "step": self.step}

    def take(self, own: dict[str, Any]) -> None:
        rng.restore(own["rng"])
        self.step = own["step"]
        assert own["loader"]["position"] == self.step * 8

    def fingerprint(self) -> bytes:
        moments = [v for s in self.optimizer.state_dict()["state"].values() for v in s.values()]
        return b"".join(t.numpy().tobytes() for t in [*self.model.state_dict().values(), *moments])


def checkpointer(objects: Any, epoch: int = 1, told: Told | None = None, job: str = "j1") -> Checkpointer:
    on_event = (lambda name, fields: told.append((name, fields))) if told is not None else (lambda name, fields: None)
    return Checkpointer(CheckpointerSettings(job, epoch, epoch - 1, "spec"), objects, on_event=on_event, clock=lambda: 1000.0 + epoch)


def save(at: Checkpointer, training: Training) -> int:
    return at.save(training.state, training.own(), training.step, 100.0 + training.step).commit


def resumed(objects: Any, epoch: int, told: Told | None = None) -> tuple[Training, Any]:
    training = Training(seed=epoch * 1000)
    report = checkpointer(objects, epoch, told).restore(training.state, training.take)
    return training, report


def test_a_resumed_training_ends_as_one_that_nobody_stopped() -> None:
    straight = Training()
    straight.train(12)
    objects, interrupted = MemoryObjectStore(), Training()
    interrupted.train(5)
    save(checkpointer(objects), interrupted)
    interrupted.train(3)  # lost
    again, report = resumed(objects, 2)
    assert (report.restored, report.step, report.damaged) == (1, 5, ())
    again.train(7)
    assert again.fingerprint() == straight.fingerprint()
    assert again.schedule.get_last_lr() == straight.schedule.get_last_lr()


def test_an_unchanged_state_is_not_sent_again() -> None:
    objects, frozen = MemoryObjectStore(), {"big": torch.arange(400_000), "step": torch.tensor(1)}
    at = checkpointer(objects)
    first = at.save(frozen, {}, 1, 1.0)
    frozen["step"] += 1
    second = at.save(frozen, {}, 2, 2.0)
    assert first.bytes_new == first.bytes_total > 3_200_000
    assert second.bytes_total == first.bytes_total
    assert second.bytes_new < 10_000


def test_every_kind_of_value_comes_back_as_it_was() -> None:
    state = {
        "tensors": {
            "bf16": torch.randn(5).bfloat16(),
            "bool": torch.tensor([True, False]),
            "scalar": torch.tensor(3.5, dtype=torch.float64),
            "empty": torch.empty(0, 4),
            "complex": torch.randn(2, 2, dtype=torch.complex64),
            "transposed": torch.randn(3, 5).t(),
            "conjugate": torch.randn(4, dtype=torch.complex64).conj(),
            "fp8": torch.randn(8).to(torch.float8_e4m3fn),
        },
        "nested": [1, (2.5, None), {"a.b": torch.ones(2), "a": {"b": torch.zeros(2)}, 0: "int key", "0": "str key"}, {}, []],
        "numpy": {"array": np.eye(2), "scalar": np.float64(0.1)},
    }
    objects = MemoryObjectStore()
    checkpointer(objects).save(state, {"own": torch.ones(1)}, 3, 1.0)
    found: dict[str, Any] = {"tensors": None, "nested": None, "numpy": None}
    kept: dict[str, Any] = {}
    report = checkpointer(objects, 2).restore(found, kept.update)
    assert report.step == 3 and torch.equal(kept["own"], torch.ones(1))
    for name, tensor in state["tensors"].items():  # type: ignore[union-attr]
        assert found["tensors"][name].dtype == tensor.dtype and found["tensors"][name].shape == tensor.shape
        assert found["tensors"][name].contiguous().view(-1).tolist() == tensor.resolve_conj().contiguous().view(-1).tolist()
    assert found["nested"][:2] == [1, (2.5, None)] and found["nested"][3:] == [{}, []]
    assert found["nested"][2][0] == "int key" and found["nested"][2]["0"] == "str key"
    assert torch.equal(found["nested"][2]["a.b"], torch.ones(2)) and torch.equal(found["nested"][2]["a"]["b"], torch.zeros(2))
    assert (found["numpy"]["array"] == np.eye(2)).all() and found["numpy"]["scalar"] == 0.1


def test_what_cannot_be_loaded_safely_is_refused_when_it_is_saved() -> None:
    class Odd:
        pass

    with pytest.raises(InvalidStateError, match="state holds something that cannot be saved safely"):
        checkpointer(MemoryObjectStore()).save({"odd": Odd()}, {}, 1, 1.0)
    with pytest.raises(InvalidStateError, match=r"sparse is a torch\.sparse_coo tensor"):
        checkpointer(MemoryObjectStore()).save({"sparse": torch.eye(2).to_sparse()}, {}, 1, 1.0)


def test_a_state_of_another_shape_is_told_and_not_taken_for_damage() -> None:
    objects = MemoryObjectStore()
    checkpointer(objects).save({"model": torch.nn.Linear(3, 2)}, {}, 1, 1.0)
    with pytest.raises(Exception, match="size mismatch for weight"):
        checkpointer(objects, 2).restore({"model": torch.nn.Linear(4, 2)}, lambda own: None)
    with pytest.raises(InvalidStateError, match="it holds model, not other; build the model"):
        checkpointer(objects, 3).restore({"other": torch.nn.Linear(3, 2)}, lambda own: None)


# Damage


def drop(objects: MemoryObjectStore, key: str) -> None:
    objects.delete(key)


def flip(objects: MemoryObjectStore, key: str) -> None:
    body = bytearray(objects.get(key))
    body[len(body) // 2] ^= 1
    objects.put(key, body)


def cut(objects: MemoryObjectStore, key: str) -> None:
    objects.put(key, objects.get(key)[:-3])


@pytest.mark.parametrize("harm", [drop, flip, cut])
@pytest.mark.parametrize("what", ["chunk", "manifest"])
def test_a_damaged_checkpoint_falls_back_and_is_reported(harm: Callable[[MemoryObjectStore, str], None], what: str) -> None:
    objects, training, told = MemoryObjectStore(), Training(), []
    at = checkpointer(objects)
    training.train(2)
    older, kept = save(at, training), training.fingerprint()
    training.train(1)
    newest = save(at, training)
    training.train(1)
    save(at, training)  # one more, so that a missing entry in the middle is a hole
    for commit in (newest, newest + 1):
        only_its_own = named(objects, commit) - named(objects, older)
        for key in [chunk_key(sha, OF_J1) for sha in only_its_own] if what == "chunk" else []:
            harm(objects, key)
    if what == "manifest":
        harm(objects, commit_key("j1", newest))
        flip(objects, commit_key("j1", newest + 1))
    again, report = resumed(objects, 2, told)
    assert report.restored == older and again.fingerprint() == kept
    assert [d.commit for d in report.damaged] == [newest + 1, newest]
    assert [name for name, _ in told] == ["CheckpointCompleted", "CheckpointRestored"]
    assert len(told[1][1]["damaged"]) == 2


def test_nothing_of_a_damaged_only_checkpoint_reaches_the_state() -> None:
    objects, training, told = MemoryObjectStore(), Training(), []
    training.train(2)
    save(checkpointer(objects), training)
    flip(objects, next(iter(objects.list(OF_J1))).key)
    fresh = Training(seed=5)
    before = fresh.fingerprint()
    report = checkpointer(objects, 2, told).restore(fresh.state, lambda own: pytest.fail("nothing to take"))
    assert report.restored is None and len(report.damaged) == 1 and fresh.fingerprint() == before
    assert [name for name, _ in told] == ["CheckpointFailed"]


def test_a_damaged_chunk_is_sent_again_by_the_next_save_that_has_its_content() -> None:
    objects, state = MemoryObjectStore(), {"frozen": torch.arange(100_000), "moving": torch.zeros(100_000)}
    at = checkpointer(objects)
    at.save(state, {}, 1, 1.0)
    state["moving"] += 1
    at.save(state, {}, 2, 2.0)
    shared = named(objects, 1) & named(objects, 2)
    flip(objects, chunk_key(max(shared, key=lambda sha: len(objects.get(chunk_key(sha, OF_J1)))), OF_J1))
    retry = checkpointer(objects, 2)
    assert retry.restore(dict(state), lambda own: None).restored is None
    retry.save(state, {}, 3, 3.0)
    assert checkpointer(objects, 3).restore(dict(state), lambda own: None).step == 3


def test_a_checkpoint_of_the_first_format_is_restored_and_the_next_save_keeps_its_chunks_with_the_job() -> None:
    objects, training = MemoryObjectStore(), Training()
    training.train(2)
    save(checkpointer(objects), training)
    manifest = read_entry(objects, "j1", 1)
    assert isinstance(manifest, Manifest) and manifest.has_own_chunks
    for sha in named(objects, 1):
        objects.put(chunk_key(sha, SHARED_PREFIX), objects.get(chunk_key(sha, OF_J1)))
        objects.delete(chunk_key(sha, OF_J1))
    objects.put(commit_key("j1", 1), encode(manifest.model_copy(update={"kind": "checkpoint"})))
    again, report = resumed(objects, 2)
    assert report.restored == 1 and again.fingerprint() == training.fingerprint()
    at = checkpointer(objects, 3)
    at.restore(again.state, lambda own: None)
    save(at, again)
    assert len(list(objects.list(OF_J1))) > 0 and resumed(objects, 4)[1].restored not in (None, 1)


def named(objects: MemoryObjectStore, commit: int) -> set[str]:
    manifest = read_entry(objects, "j1", commit)
    assert isinstance(manifest, Manifest)
    return {c.sha256 for c in manifest.chunks}


def test_a_store_that_is_away_is_not_damage() -> None:
    class Away(MemoryObjectStore):
        away = False

        def get(self, key: str) -> bytes:
            if self.away and key.startswith(OF_J1):
                raise ObjectStoreUnavailableError("away")
            return super().get(key)

    objects, training = Away(), Training()
    training.train(1)
    save(checkpointer(objects), training)
    objects.away = True
    with pytest.raises(ObjectStoreUnavailableError):
        resumed(objects, 2)


# Crashes and stale attempts


class Crash(BaseException):
    """The process dies here."""


class CrashingStore(MemoryObjectStore):
    """Dies at the n-th write, before or after it took effect."""

    def arm(self, at: int, after: bool) -> None:
        self.left, self.after = at, after

    def put(self, key: str, body: Body) -> None:
        self._act(lambda: super(CrashingStore, self).put(key, body))

    def put_if_absent(self, key: str, body: Body) -> bool:
        kept = []
        self._act(lambda: kept.append(super(CrashingStore, self).put_if_absent(key, body)))
        return kept[0]

    left, after = -1, False

    def _act(self, write: Callable[[], Any]) -> None:
        self.left -= 1
        if self.left == 0 and not self.after:
            raise Crash
        write()
        if self.left == 0:
            raise Crash


@pytest.mark.parametrize("after", [False, True])
def test_a_crash_at_any_write_leaves_the_old_or_the_new_checkpoint_never_a_mixture(after: bool) -> None:
    seen = set()
    for at in range(1, 40):
        objects, state = CrashingStore(), {"a": torch.zeros(70_000), "b": torch.zeros(70_001), "c": torch.zeros(3)}
        here = checkpointer(objects)
        here.save(state, {"step": 1}, 1, 1.0)
        for tensor in state.values():
            tensor += 1
        objects.arm(at, after)
        try:
            here.save(state, {"step": 2}, 2, 2.0)
            finished = True
        except SaveFailedError as error:
            assert isinstance(error.__cause__, Crash)
            finished = False
        objects.arm(-1, False)
        found, own = {k: torch.full_like(v, -1) for k, v in state.items()}, {}
        report = checkpointer(objects, 2).restore(found, own.update)
        values = {float(v) for tensor in found.values() for v in tensor.unique()}
        assert values == {float(report.step - 1)} and own == {"step": report.step}
        seen.add(report.step)
        if finished:
            assert report.step == 2
            break
    assert finished and at > 3 and seen == {1, 2}


def test_a_stale_attempt_that_commits_a_checkpoint_is_refused() -> None:
    objects, old, told = MemoryObjectStore(), Training(), []
    stale = checkpointer(objects, 1, told)
    old.train(2)
    save(stale, old)
    old.train(1)
    new, report = resumed(objects, 2)
    with pytest.raises(StaleEpochError, match="epoch 2, ours is 1") as refused:
        save(stale, old)
    assert (refused.value.mine, refused.value.theirs) == (1, 2)
    assert told[-1][0] == "CheckpointFailed"
    assert resumed(objects, 3)[1].step == report.step == new.step == 2, "the chain holds what the new attempt began from"


def test_a_chain_is_read_back_to_its_first_entry() -> None:
    """The first is an attempt's claim: epochs, and which attempt was where, follow from all of them."""
    objects = MemoryObjectStore()
    for epoch in (1, 2):
        checkpointer(objects, epoch).claim()
    assert [(commit, type(entry), entry.epoch) for commit, entry in entries_newest_first(objects, "j1")] == [(1, Claim, 2), (0, Claim, 1)]


def test_an_attempt_that_wakes_up_late_may_not_even_claim() -> None:
    objects = MemoryObjectStore()
    checkpointer(objects, 2).claim()
    with pytest.raises(StaleEpochError):
        checkpointer(objects, 1).claim()


def test_a_commit_just_before_the_claim_is_what_the_new_attempt_restores() -> None:
    class LateCommit(MemoryObjectStore):
        """The old attempt commits between the new one's look at the chain and its claim."""

        between: Callable[[], Any] | None = None

        def put_if_absent(self, key: str, body: Body) -> bool:
            if self.between is not None:
                act, self.between = self.between, None
                act()
            return super().put_if_absent(key, body)

    objects, old = LateCommit(), Training()
    before = checkpointer(objects, 1)
    old.train(1)
    save(before, old)
    old.train(1)
    objects.between = lambda: save(before, old)
    _, report = resumed(objects, 2)
    assert (report.restored, report.step) == (2, 2)
    with pytest.raises(StaleEpochError):
        save(before, old)


def test_an_answer_that_was_lost_does_not_make_a_commit_foreign() -> None:
    class LosesAnswers(MemoryObjectStore):
        lose = False

        def put_if_absent(self, key: str, body: Body) -> bool:
            done = super().put_if_absent(key, body)
            if self.lose:
                self.lose = False
                raise ObjectStoreUnavailableError("the answer was lost")
            return done

    objects, training, told = LosesAnswers(), Training(), []
    at = checkpointer(objects, 1, told)
    at.claim()
    objects.lose = True
    with pytest.raises(ObjectStoreUnavailableError):
        save(at, training)
    training.train(1)
    assert save(at, training) == 2
    completed = [(f["commit"], f["step"]) for name, f in told if name == "CheckpointCompleted"]
    assert completed == [(1, 0), (2, 1)], "the one whose answer was lost is told of too"


def test_two_processes_with_one_epoch_cannot_both_commit() -> None:
    objects, training = MemoryObjectStore(), Training()
    one, two = checkpointer(objects, 1), checkpointer(objects, 1)
    one.claim()
    two.claim()
    save(two, training)
    with pytest.raises(ChainConflictError, match="two processes run with one epoch"):
        save(one, training)


def test_completed_is_told_again_on_restore_with_the_same_fields() -> None:
    objects, training, told = MemoryObjectStore(), Training(), []
    save(checkpointer(objects, 1, told), training)
    told_again: Told = []
    resumed(objects, 2, told_again)
    completed = [fields for name, fields in told if name == "CheckpointCompleted"]
    assert [n for n, _ in told] == ["CheckpointStarted", "CheckpointCompleted"]
    assert told_again[0] == ("CheckpointCompleted", completed[0]) and completed[0]["event_id"] == "j1:commit:1"


def test_a_checkpoint_says_what_was_measured_up_to_a_bound() -> None:
    objects, training, told = MemoryObjectStore(), Training(), []
    saver = checkpointer(objects, 1, told)
    for measured in ({"loss": 0.5}, {f"m{n}": float(n) for n in range(MOST_METRICS + 10)}, {}):
        training.train(1)
        saver.save(training.state, {}, training.step, 1.0, metrics=measured)
    first, second, third = [fields.get("metrics") for name, fields in told if name == "CheckpointCompleted"]
    assert (first, second, third) == ({"loss": 0.5}, {f"m{n}": float(n) for n in range(MOST_METRICS)}, None)


# Resuming from another job


def test_resume_from_another_job() -> None:
    objects, training = MemoryObjectStore(), Training()
    at = checkpointer(objects, job="source")
    for loss in (3.0, 1.0, 2.0, None):
        training.train(1)
        at.save(training.state, {}, training.step, 1.0, metrics={} if loss is None else {"loss": loss})

    def resume(job: str, text: str | None) -> Any:
        return checkpointer(objects, job=job).restore(Training().state, lambda own: None, resume_from=text)

    named = ["source", "source@step:1", "source@2", "source@best"]
    assert [resume(f"a{n}", text).step for n, text in enumerate(named)] == [4, 1, 2, 2]
    tag(objects, "source", "best", 3)
    assert resume("tagged", "source@best").step == 3, "by what the program measured, not by the loss"
    tag(objects, "source", "best", 2)
    flip(objects, commit_key("source", 2))
    with pytest.raises(NoCheckpointError, match=r"source@best: no such healthy checkpoint .*commits/0000000002"):
        resume("e-tagged", "source@best")
    untag(objects, "source", "best")
    with pytest.raises(NoCheckpointError, match="source@2"):
        resume("e", "source@2")
    assert resume("e-best", "source@best").step == 3, "the best of those that are healthy"
    with pytest.raises(NoCheckpointError, match="it has none"):
        resume("f", "nobody")
    with pytest.raises(NoCheckpointError, match="none has a finite loss"):
        resume("f", "nobody@best")
    for bad in ("a/b/c/d", "source/1", "memory://jobs/source/commits/0000000001", "source@step:"):
        with pytest.raises(InvalidStateError, match="write JOB, JOB@COMMIT, JOB@step:N or JOB@best"):
            resume("g", bad)
    own = checkpointer(objects, job="h")
    own.restore(training.state, lambda _: None, resume_from="source")
    own.save(training.state, {}, 9, 1.0)
    assert checkpointer(objects, 2, job="h").restore(training.state, lambda _: None, resume_from="source@1").step == 9


def test_pruning_keeps_the_chain_dense_and_fenced() -> None:
    objects, training, told = MemoryObjectStore(), Training(), []
    at = checkpointer(objects, 1, told)
    for _ in range(4):
        training.train(1)
        save(at, training)
    assert at.prune(RetentionPolicy(keep_last=2)).commits == (1, 2)
    assert told[-1][0] == "CheckpointPruned" and told[-1][1]["bytes_freed"] > 0
    assert at.prune(RetentionPolicy(keep_last=2)).commits == ()
    assert resumed(objects, 2)[1].step == 4
    with pytest.raises(StaleEpochError):
        save(at, training)


def test_what_was_pruned_right_before_a_kill_is_reported_by_the_next_attempt() -> None:
    objects, training, told = MemoryObjectStore(), Training(), []
    at = checkpointer(objects, 1)
    for _ in range(3):
        training.train(1)
        save(at, training)
    assert Pruner(objects, "j1").prune(RetentionPolicy(keep_last=1)).commits == (1, 2), "and killed before its event"
    training, at = Training(), checkpointer(objects, 2, told)
    at.restore(training.state, training.take)
    save(at, training)
    assert at.prune(RetentionPolicy(keep_last=2)).commits == (), "nothing is due"
    assert [f["commits"] for name, f in told if name == "CheckpointPruned"] == [(1, 2)]
    at.prune(RetentionPolicy(keep_last=2))
    save(at, training)
    at.prune(RetentionPolicy(keep_last=2))
    assert [f["commits"] for name, f in told if name == "CheckpointPruned"] == [(1, 2), (3,)], "once an attempt"


def test_what_was_pruned_before_the_last_save_of_the_attempt_before_is_not_reported_again() -> None:
    now_s = 1000.0
    objects, training, told = MemoryObjectStore(lambda: now_s), Training(), []
    at = checkpointer(objects, 1)
    for _ in range(4):
        now_s += 60
        training.train(1)
        save(at, training)
        now_s += 1
        assert Pruner(objects, "j1").prune(RetentionPolicy(keep_last=1)).earlier == (), "it may still report them itself"
    training, at = Training(), checkpointer(objects, 2, told)
    at.restore(training.state, training.take)
    now_s += 60
    save(at, training)
    at.prune(RetentionPolicy(keep_last=2))
    assert [f["commits"] for name, f in told if name == "CheckpointPruned"] == [(3,)]


def test_a_first_look_that_the_store_cut_off_reports_each_commit_once(monkeypatch: pytest.MonkeyPatch) -> None:
    objects, training = MemoryObjectStore(), Training()
    at = checkpointer(objects, 1)
    for _ in range(3):
        training.train(1)
        save(at, training)
    Pruner(objects, "j1").prune(RetentionPolicy(keep_last=1))
    checkpointer(objects, 2).restore(training.state, training.take)
    pruner, get = Pruner(objects, "j1"), objects.get

    def away(key: str) -> bytes:
        if key == commit_key("j1", 3):
            raise ObjectStoreUnavailableError("503 Slow Down")
        return get(key)

    with monkeypatch.context() as patched:
        patched.setattr(objects, "get", away)
        with pytest.raises(ObjectStoreUnavailableError):
            pruner.prune(RetentionPolicy(keep_last=2))
    assert pruner.prune(RetentionPolicy(keep_last=2)).earlier == (1, 2)


def from_at_most(objects: Any, epoch: int, at_most: int) -> tuple[Checkpointer, Training, Any]:
    at = Checkpointer(CheckpointerSettings("j1", epoch, epoch - 1, "spec", restore_at_most=at_most), objects, clock=lambda: 1000.0 + epoch)
    training = Training(seed=epoch * 1000)
    return at, training, at.restore(training.state, training.take)


def grown(objects: MemoryObjectStore, saves: int) -> Training:
    """Commits 1, 2, … at steps 1, 2, …, after a claim at 0."""
    at, training = checkpointer(objects), Training()
    for _ in range(saves):
        training.train(1)
        save(at, training)
    return training


def test_an_attempt_begins_from_no_newer_commit_than_it_is_told() -> None:
    objects = MemoryObjectStore()
    grown(objects, 4)
    at, training, report = from_at_most(objects, 2, 2)
    assert (report.restored, report.step, at.newest_commit) == (2, 2, 2)
    training.train(1)
    assert save(at, training) == 6  # the claim is commit 5: the chain goes on behind what was passed over
    assert isinstance(read_entry(objects, "j1", 4), Manifest)
    _, later = resumed(objects, 3)
    assert (later.restored, later.step) == (6, 3)


def test_what_was_passed_over_stays_so_for_an_attempt_that_is_told_nothing() -> None:
    objects = MemoryObjectStore()
    grown(objects, 4)
    from_at_most(objects, 2, 2)  # it ends without a save
    assert resumed(objects, 3)[1].restored == 2
    at, training, report = from_at_most(objects, 4, 3)  # a later bound does not bring back what an earlier one passed over
    assert report.restored == 2
    training.train(2)
    newest = save(at, training)
    assert resumed(objects, 5)[1].restored == newest


def test_a_bound_below_everything_begins_anew_and_one_above_changes_nothing() -> None:
    objects = MemoryObjectStore()
    grown(objects, 2)
    assert from_at_most(objects, 2, 99)[2].restored == 2
    assert from_at_most(objects, 3, 0)[2].restored is None
    assert resumed(objects, 4)[1].restored is None


def test_another_job_resumes_from_what_was_not_passed_over_unless_it_names_it() -> None:
    objects = MemoryObjectStore()
    grown(objects, 4)
    from_at_most(objects, 2, 2)
    for wanted, found in (("j1", 2), ("j1@4", 4)):
        training = Training(seed=5)
        at = checkpointer(objects, 1, job=f"other-{found}")
        assert at.restore(training.state, training.take, wanted).restored == found


def test_retention_counts_no_commit_that_was_passed_over_and_keeps_what_it_is_told() -> None:
    objects = MemoryObjectStore()
    grown(objects, 4)
    at, training, _ = from_at_most(objects, 2, 2)
    assert at.prune(RetentionPolicy(keep_last=1)).commits == (1,), "2 is the newest that counts"
    training.train(1)
    newest = save(at, training)
    assert at.prune(RetentionPolicy(keep_last=1), frozenset({2})).commits == (3, 4)
    assert at.prune(RetentionPolicy(keep_last=1)).commits == (2,)
    assert resumed(objects, 3)[1].restored == newest


def test_without_a_bound_a_claim_is_as_before() -> None:
    objects = MemoryObjectStore()
    grown(objects, 1)
    entry = read_entry(objects, "j1", 0)
    assert isinstance(entry, Claim) and entry.restore_at_most is None


def test_one_rank_saves_for_all_when_the_others_are_gone_and_no_second_one_does() -> None:
    objects, told = MemoryObjectStore(), list[tuple[str, dict[str, Any]]]()
    first, gone = Training(), Training(seed=8)
    writer = checkpointer(objects, 1, told)
    first.train(3)
    save(writer, first)
    first.train(2)
    survivor, late = checkpointer(objects, 1, told), checkpointer(objects, 1, told)  # other processes of the same attempt
    saved = survivor.save_for_all(first.state, [first.own(), gone.own()], first.step, 0.0)
    assert (saved.commit, saved.step) == (2, 5)
    entry = read_entry(objects, "j1", 2)
    assert isinstance(entry, Manifest) and entry.world_size == 2
    with pytest.raises(ChainConflictError):  # the process that had claimed is not gone after all
        save(writer, first)
    checkpointer(objects, 2, told).claim()
    with pytest.raises(StaleEpochError):
        late.save_for_all(first.state, [first.own(), gone.own()], first.step, 0.0)
    with pytest.raises(ChainConflictError, match="nothing to take over"):
        checkpointer(objects, 3, told).save_for_all(first.state, [first.own(), gone.own()], first.step, 0.0)

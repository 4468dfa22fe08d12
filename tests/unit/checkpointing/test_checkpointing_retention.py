"""What is kept, what goes, and that a sweep never takes what a save relies on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.support.fakes.memory_store import MemoryObjectStore
from tests.support.manifests import bare_manifest
from trainhouse.checkpointing.chain.chunks import ChunkStore, chunk_key, chunks_prefix
from trainhouse.checkpointing.chain.commits import Writer, commit_key, tombstone
from trainhouse.checkpointing.chain.manifest import Manifest, decode, encode
from trainhouse.checkpointing.chain.references import tag
from trainhouse.checkpointing.chain.retention import RetentionPolicy, sweep, to_prune
from trainhouse.checkpointing.checkpointer import Checkpointer, CheckpointerSettings
from trainhouse.checkpointing.stores.object_store import Body
from trainhouse.events.model.ids import AttemptNumber, Epoch, JobId

HOUR_S = 3600.0


class Clock:
    now_s = 1_000_000.0

    def __call__(self) -> float:
        return self.now_s


def entry(commit: int, **metrics: float) -> Manifest:
    return bare_manifest(Writer(JobId("j"), Epoch(1), AttemptNumber(0), "w"), commit, metrics)


def gone(count: int, policy: RetentionPolicy, tagged: set[int] = frozenset(), damaged: set[int] = frozenset(), **metric: Any) -> list[int]:  # type: ignore[assignment]
    live = {n: entry(n, **({"loss": metric["loss"][n]} if metric else {})) for n in range(count)}
    return to_prune(live, frozenset(tagged), policy, frozenset(damaged))


def test_what_a_policy_gives_up() -> None:
    assert gone(5, RetentionPolicy(keep_last=2)) == [0, 1, 2]
    assert gone(5, RetentionPolicy(keep_last=2), tagged={1}) == [0, 2]
    assert gone(2, RetentionPolicy(keep_last=9)) == []
    assert gone(0, RetentionPolicy()) == []
    losses = [0.9, 0.1, 0.5, 0.4, 0.8]
    assert gone(5, RetentionPolicy(keep_last=1, keep_best=1), loss=losses) == [0, 2, 3]
    assert gone(5, RetentionPolicy(keep_last=1, keep_best=2, best="max"), loss=losses) == [1, 2, 3]


def test_the_newest_is_never_given_up_and_damaged_ones_do_not_count() -> None:
    assert gone(3, RetentionPolicy(keep_last=0)) == [0, 1]
    assert gone(5, RetentionPolicy(keep_last=2), damaged={3}) == [0, 1, 3]
    assert gone(5, RetentionPolicy(keep_last=1), damaged={4}) == [0, 1, 2]
    assert gone(3, RetentionPolicy(keep_last=1), damaged={0, 1, 2}) == []


def saved(objects: MemoryObjectStore, job: str, *values: float, clock: Callable[[], float] = Clock()) -> Checkpointer:
    at = Checkpointer(CheckpointerSettings(job, 1, 0, "spec"), objects, clock=clock)
    for step, value in enumerate(values):
        at.save({"w": torch.full((100_000,), value)}, {}, step, 1.0)
    return at


def restored(objects: MemoryObjectStore, job: str, epoch: int = 2) -> float:
    state: dict[str, Any] = {"w": torch.zeros(100_000)}
    report = Checkpointer(CheckpointerSettings(job, epoch, 0, "spec"), objects).restore(state, lambda own: None)
    assert report.restored is not None and report.damaged == ()
    return float(state["w"][0])


def chunks(objects: MemoryObjectStore) -> set[str]:
    return {found.key for found in objects.list("") if "chunks/" in found.key}


def test_a_sweep_takes_only_what_no_job_names_and_what_is_old() -> None:
    clock = Clock()
    objects = MemoryObjectStore(clock)
    a = saved(objects, "a", 1.0, 2.0, 3.0)
    saved(objects, "b", 1.0)  # has the same content as a's first, which is pruned next: its own copy stays
    assert a.prune(RetentionPolicy(keep_last=1)).commits == (1, 2)
    before = chunks(objects)
    assert sweep(objects, HOUR_S).chunks == 0, "too young"
    clock.now_s += 2 * HOUR_S
    result = sweep(objects, HOUR_S)
    assert result.chunks >= 1 and chunks(objects) < before and result.bytes_freed >= 400_000
    assert restored(objects, "a") == 3.0 and restored(objects, "b") == 1.0
    assert sweep(objects, HOUR_S).chunks == 0
    assert not list(objects.list("sweeps/"))


def test_a_save_that_meets_an_old_orphan_sends_it_again() -> None:
    """A sweep that has marked before this save commits must not take what the save found in the store."""

    class SweptInBetween(MemoryObjectStore):
        on_manifest: Callable[[], Any] | None = None

        def put_if_absent(self, key: str, body: Body) -> bool:
            if self.on_manifest is not None:
                act, self.on_manifest = self.on_manifest, None
                act()
            return super().put_if_absent(key, body)

    clock = Clock()
    objects = SweptInBetween(clock)
    saved(objects, "a", 1.0, 2.0).prune(RetentionPolicy(keep_last=1))
    clock.now_s += 2 * HOUR_S
    other = Checkpointer(CheckpointerSettings("a", 2, 1, "spec", grace_s=HOUR_S), objects, clock=clock)
    other.claim()
    objects.on_manifest = lambda: sweep(objects, HOUR_S)
    found = other.save({"w": torch.full((100_000,), 1.0)}, {}, 1, 1.0)
    assert found.bytes_new >= 400_000 and restored(objects, "a") == 1.0


def test_an_old_chunk_is_trusted_only_if_a_live_manifest_of_ours_names_it() -> None:
    clock = Clock()
    objects = MemoryObjectStore(clock)
    store = ChunkStore(objects, "j", grace_s=HOUR_S)
    sha = store.send([b"body"], frozenset())[0].chunk.sha256
    assert not store.send([b"body"], frozenset())[0].new
    clock.now_s += HOUR_S
    assert not store.send([b"body"], frozenset({sha}))[0].new
    assert store.send([b"body"], frozenset())[0].new
    objects.put(chunk_key(sha, chunks_prefix("j")), b"cut")
    assert store.send([b"body"], frozenset({sha}))[0].new, "too short to be it"


def intact(body: bytes) -> bytes:
    """An entry of any content, with the checksum that a rank can give it as well as we."""
    return b'{"sha256":"' + hashlib.sha256(body).hexdigest().encode() + b'","entry":' + body + b"}"


UNREADABLE = {
    "cut": b'{"sha256":"',
    "of the future": intact(b'{"format":9,"kind":"delta"}'),
    "no kind": intact(b'{"kind":[]}'),
    "deep": b'{"sha256":"","entry":' + b"[" * 400 + b"]" * 400 + b"}",
    "of another job": encode(entry(1).model_copy(update={"job_id": JobId("b")})),
    "of another commit": encode(entry(2).model_copy(update={"job_id": JobId("a")})),
    "of another job, given up": encode(tombstone(entry(1).model_copy(update={"job_id": JobId("b")}))),
    "of two jobs, given up": encode(
        tombstone(entry(1).model_copy(update={"job_id": JobId("b")})).model_copy(update={"job_id": JobId("a")})
    ),
}


@pytest.mark.parametrize("content", UNREADABLE.values(), ids=UNREADABLE)
def test_an_unreadable_entry_keeps_all_of_its_own_job_and_nothing_of_others(content: bytes) -> None:
    clock = Clock()
    objects = MemoryObjectStore(clock)
    for job in ("a", "b"):
        saved(objects, job, 1.0, 3.0, 2.0).prune(RetentionPolicy(keep_last=1))
    clock.now_s += 2 * HOUR_S
    objects.put(commit_key("a", 1), content)
    given_up = objects.get(commit_key("a", 2))
    of_a = {key for key in chunks(objects) if key.startswith(chunks_prefix("a"))}
    result = sweep(objects, HOUR_S)
    assert (*result.damaged, *result.unknown) == (commit_key("a", 1),)
    assert objects.get(commit_key("a", 2)) == given_up != objects.get(commit_key("b", 2))
    assert result.chunks >= 1 and of_a < chunks(objects) and restored(objects, "b") == 2.0 and restored(objects, "a") == 2.0


def test_a_tombstone_under_another_jobs_key_neither_frees_nor_forges_a_checkpoint() -> None:
    clock = Clock()
    objects = MemoryObjectStore(clock)
    saved(objects, "victim", 1.0)
    there = objects.get(commit_key("victim", 1))
    forged = decode(there, "victim").model_copy(update={"step": 99})
    assert isinstance(forged, Manifest)
    for tagged in (False, True):
        if tagged:
            tag(objects, "victim", "paper", 1)
        for n, body in enumerate((tombstone(forged), tombstone(forged).model_copy(update={"job_id": "own"}))):
            objects.put(commit_key("own", n), encode(body))
        for _ in range(2):
            clock.now_s += 2 * HOUR_S
            assert sweep(objects, HOUR_S).damaged == (commit_key("own", 0), commit_key("own", 1))
        assert objects.get(commit_key("victim", 1)) == there and restored(objects, "victim", 2 + tagged) == 1.0


@pytest.mark.parametrize(
    "key", ["jobs/a/x/commits/0000000001", "jobs/a/commits/x/0000000001", "jobs/a/commits/00000000²1", "jobs/commits/0000000001"]
)
def test_a_sweep_passes_over_keys_that_are_no_entrys(key: str) -> None:
    clock = Clock()
    objects = MemoryObjectStore(clock)
    saved(objects, "a", 1.0, 2.0).prune(RetentionPolicy(keep_last=1))
    objects.put(key, encode(tombstone(entry(1))))
    clock.now_s += 2 * HOUR_S
    result = sweep(objects, HOUR_S)
    assert result.chunks >= 1 and result.damaged == () and restored(objects, "a") == 2.0

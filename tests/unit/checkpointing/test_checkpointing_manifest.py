"""Entries of the commit chain, as bytes and as a chain."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fakes.memory_store import MemoryObjectStore
from trainhouse.checkpointing.chain.commits import (
    CommitChain,
    Writer,
    commit_key,
    commit_of_key,
    entries_newest_first,
    head,
    read_entry,
    tombstone,
)
from trainhouse.checkpointing.chain.manifest import Chunk, Claim, Manifest, Piece, Span, TensorRecord, decode, encode
from trainhouse.checkpointing.errors import (
    ChainConflictError,
    DamagedError,
    ObjectStoreUnavailableError,
    StaleEpochError,
    UnknownFormatError,
)
from trainhouse.checkpointing.stores.object_store import Body
from trainhouse.events.model.ids import AttemptNumber, Epoch, JobId

SPAN = Span(chunk=0, offset=0, size_bytes=4)


def who(epoch: int, name: str = "w") -> Writer:
    return Writer(JobId("j"), Epoch(epoch), AttemptNumber(0), f"{name}{epoch}")


def manifest(commit: int, epoch: int = 1, step: int = 1, **more: object) -> Manifest:
    given: dict[str, object] = {
        "job_id": "j",
        "commit": commit,
        "epoch": epoch,
        "attempt": 0,
        "writer": f"w{epoch}",
        "created_at_s": 1.25,
        "step": step,
        "world_size": 1,
        "spec_hash": "s",
        "structure": SPAN,
        "ranks": (SPAN,),
        "tensors": {"w": TensorRecord(dtype="float32", shape=(1,), pieces=(Piece(offsets=(0,), sizes=(1,), span=SPAN),))},
        "chunks": (Chunk(sha256="ab" * 32, size_bytes=4), Chunk(sha256="ab" * 32, size_bytes=4)),
        "bytes_new": 4,
    }
    return Manifest.model_validate(given | more)


def test_an_entry_is_what_was_written() -> None:
    for entry in (manifest(3), Claim(job_id="j", commit=0, epoch=2, attempt=1, writer="w", created_at_s=0.1)):  # type: ignore[arg-type]
        assert decode(encode(entry), "here") == entry
    assert manifest(3).bytes_total == 4, "a chunk named twice is stored once"


@given(st.data())
def test_any_changed_byte_is_found(data: st.DataObject) -> None:
    content = bytearray(encode(manifest(1)))
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    try:
        assert decode(bytes(content), "here") == manifest(1), "only a change that changes nothing may pass"
    except (DamagedError, UnknownFormatError) as error:
        assert isinstance(error, DamagedError) and "here" in str(error)


def test_an_intact_entry_of_the_future_is_not_damage() -> None:
    inner = {"kind": "delta", "format": 9}
    import hashlib

    body = orjson.dumps(inner, option=orjson.OPT_SORT_KEYS)
    content = orjson.dumps({"sha256": hashlib.sha256(body).hexdigest(), "entry": inner})
    with pytest.raises(UnknownFormatError, match="format 9"):
        decode(content, "here")


def test_keys_sort_as_numbers() -> None:
    assert sorted(commit_key("j", n) for n in (10, 9, 100)) == [commit_key("j", n) for n in (9, 10, 100)]
    assert commit_of_key(commit_key("j", 42)) == 42 and commit_of_key("jobs/j/commits/x") is None


def test_the_chain_is_dense_and_epochs_never_fall() -> None:
    objects = MemoryObjectStore()
    one, two = CommitChain(objects, who(1)), CommitChain(objects, who(2))
    assert head(objects, "j") == -1
    one.claim(0.0)
    one.append(manifest)
    two.claim(0.0)
    with pytest.raises(StaleEpochError):
        one.append(manifest)
    two.append(lambda n: manifest(n, 2))
    entries = [entry for _, entry in entries_newest_first(objects, "j")]
    assert [(n, e.kind, int(e.epoch)) for n, e in zip((3, 2, 1, 0), entries, strict=True) if not isinstance(e, DamagedError)] == [
        (3, "checkpoint/2", 2),
        (2, "claim", 2),
        (1, "checkpoint/2", 1),
        (0, "claim", 1),
    ]
    assert head(objects, "j") == head(objects, "j", known=2) == 3


def test_without_the_claim_a_stale_commit_would_land() -> None:
    """What the claim is for: the new attempt has not claimed, and the old one's commit is taken."""
    objects = MemoryObjectStore()
    old = CommitChain(objects, who(1))
    old.claim(0.0)
    seen_by_new = head(objects, "j")
    old.append(manifest)
    assert head(objects, "j") == seen_by_new + 1


def test_a_commit_without_a_claim_is_refused() -> None:
    with pytest.raises(ChainConflictError, match="call claim"):
        CommitChain(MemoryObjectStore(), who(1)).append(manifest)


def test_a_damaged_newest_entry_does_not_let_an_old_epoch_in() -> None:
    objects = MemoryObjectStore()
    CommitChain(objects, who(3)).claim(0.0)
    objects.put(commit_key("j", 1), b"rubbish")
    with pytest.raises(StaleEpochError):
        CommitChain(objects, who(2)).claim(0.0)
    assert CommitChain(objects, who(4)).claim(0.0) == 2


def test_lost_races_for_the_claim_are_bounded() -> None:
    class Unfair(MemoryObjectStore):
        tries = 0

        def put_if_absent(self, key: str, body: Body) -> bool:
            self.tries += 1
            super().put_if_absent(key, encode(Claim(job_id="j", commit=0, epoch=0, attempt=0, writer="x", created_at_s=0)))  # type: ignore[arg-type]
            return False

    objects = Unfair()
    with pytest.raises(ObjectStoreUnavailableError, match="lost 64 races"):
        CommitChain(objects, who(1)).claim(0.0)
    assert objects.tries == 64


def test_an_entry_that_says_it_is_another_is_damaged() -> None:
    objects = MemoryObjectStore()
    for commit, (entry, of) in enumerate(
        (
            (manifest(0, job_id="k"), "k@0"),
            (manifest(0), "j@0"),
            (tombstone(manifest(2, job_id="k")).model_copy(update={"job_id": JobId("j")}), "k@2"),
        )
    ):
        objects.put(commit_key("j", commit), encode(entry))
        with pytest.raises(DamagedError, match=f"says that it is {of}"):
            read_entry(objects, "j", commit)

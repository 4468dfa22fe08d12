"""What a version names outlives prunes, deletions, sweeps and a rewritten chain; a pin that cannot be read keeps all bytes of its job."""

from __future__ import annotations

import hashlib

import pytest

from tests.support.fakes.memory_store import MemoryObjectStore
from tests.support.manifests import bare_manifest
from trainhouse.checkpointing.chain.chunks import ChunkStore, chunk_key, prefix_of
from trainhouse.checkpointing.chain.commits import CommitChain, Writer, commit_key, read_entry, tombstone
from trainhouse.checkpointing.chain.manifest import Deletion, Manifest, Pruned, decode, encode
from trainhouse.checkpointing.chain.model_pins import keep_for_model, pinned_manifest
from trainhouse.checkpointing.chain.references import references, untag
from trainhouse.checkpointing.chain.retention import Pruner, RetentionPolicy, delete, sweep
from trainhouse.checkpointing.errors import DamagedError, HeldError, NoCheckpointError, ObjectStoreUnavailableError
from trainhouse.events.model.ids import AttemptNumber, Epoch, JobId
from trainhouse.events.model.model_content import ModelContent, content_key, pin_key

GRACE_S = 3600.0
LATER_S = 3 * GRACE_S
BY = Deletion(user="ada", at_ms=1)


class World:
    """A store whose clock a test moves, and jobs of one rank with some checkpoints."""

    def __init__(self) -> None:
        self.now_s = 1_000_000.0
        self.objects = MemoryObjectStore(lambda: self.now_s)

    def save(self, job: str, count: int) -> None:
        writer = Writer(JobId(job), Epoch(1), AttemptNumber(0), "w")
        chain, chunks = CommitChain(self.objects, writer), ChunkStore(self.objects, job, GRACE_S, threads=1)
        chain.claim(0.0)
        for number in range(count):
            sent = [sent.chunk for sent in chunks.send([f"{job} {number}".encode()], frozenset())]
            chain.append(lambda commit, sent=sent: bare_manifest(writer, commit, {"loss": 1.0}, sent))  # type: ignore[misc]

    def keep(self, job: str, commit: int, stored: bool = True) -> str:
        """Keeps a commit for a content; returns the content's hash."""
        body = self.objects.get(commit_key(job, commit))
        manifest = read_entry(self.objects, job, commit)
        assert isinstance(manifest, Manifest)
        content = ModelContent(
            project="default",
            job_id=JobId(job),
            commit=commit,
            step=manifest.step,
            checkpoint=hashlib.sha256(body).hexdigest(),
            bytes=manifest.bytes_total,
        )
        keep_for_model(self.objects, "default", content.sha256(), manifest, body)
        if stored:
            assert self.objects.put_if_absent(content_key("default", content.sha256()), content.canonical_json())
        return content.sha256()

    def prune_and_sweep(self, job: str) -> None:
        Pruner(self.objects, job).prune(RetentionPolicy(keep_last=1))
        self.sweep()

    def sweep(self) -> None:
        for _ in range(2):
            self.now_s += LATER_S
            sweep(self.objects, GRACE_S)

    def bytes_there(self, manifest: Manifest) -> bool:
        return all(self.objects.stat(chunk_key(chunk.sha256, prefix_of(manifest))) is not None for chunk in manifest.chunks)


@pytest.fixture
def world() -> World:
    return World()


def manifest_at(world: World, job: str, commit: int) -> Manifest:
    entry = read_entry(world.objects, job, commit)
    assert isinstance(entry, Manifest)
    return entry


def test_a_version_outlives_prunes_and_sweeps(world: World) -> None:
    world.save("gpt", 4)
    kept, other = manifest_at(world, "gpt", 2), manifest_at(world, "gpt", 1)
    sha256 = world.keep("gpt", 2)
    world.prune_and_sweep("gpt")
    assert isinstance(read_entry(world.objects, "gpt", 2), Manifest) and world.bytes_there(kept)
    assert isinstance(read_entry(world.objects, "gpt", 1), Pruned) and not world.bytes_there(other)
    assert pinned_manifest(world.objects, "default", "gpt", 2, sha256, digest(world, sha256)) == kept


def digest(world: World, sha256: str) -> str:
    content = ModelContent.model_validate_json(world.objects.get(content_key("default", sha256)))
    return content.checkpoint


def test_deletion_and_untag_are_refused_with_the_reason(world: World) -> None:
    world.save("gpt", 3)
    sha256 = world.keep("gpt", 1)
    with pytest.raises(HeldError, match=f"model:{sha256}.*a registered version of a model"):
        delete(world.objects, "gpt", 1, ended=True, by=BY)
    with pytest.raises(HeldError, match="a registered version of a model"):
        untag(world.objects, "gpt", f"model:{sha256}")
    assert references(world.objects, "gpt").of(1) == (f"model:{sha256}",)


@pytest.mark.parametrize("ruin", ["tombstone", "emptied", "garbage", "removed", "of another job"])
def test_a_chain_that_was_rewritten_takes_nothing_from_a_version(world: World, ruin: str) -> None:
    """A rank of the job may put what it likes in its chain; tags may be removed by hand."""
    world.save("gpt", 3)
    kept = manifest_at(world, "gpt", 1)
    sha256 = world.keep("gpt", 1)
    key = commit_key("gpt", 1)
    for tag in list(world.objects.list("jobs/gpt/tags/")):
        world.objects.delete(tag.key)
    match ruin:
        case "tombstone":
            world.objects.put(key, encode(tombstone(kept, BY)))
        case "emptied":
            world.objects.put(key, encode(tombstone(kept, BY).model_copy(update={"manifest": None})))
        case "garbage":
            world.objects.put(key, b"{")
        case "removed":
            for found in list(world.objects.list("jobs/gpt/commits/")):
                world.objects.delete(found.key)
        case _:
            world.objects.put(key, encode(kept.model_copy(update={"job_id": JobId("other")})))
    world.sweep()
    assert world.bytes_there(kept)
    assert pinned_manifest(world.objects, "default", "gpt", 1, sha256, digest(world, sha256)) == kept


@pytest.mark.parametrize("content", [b"", b"{", b'{"sha256":"x","entry":{}}', "another job's", "a claim"])
def test_a_pin_that_cannot_be_read_keeps_all_of_its_job_and_nothing_of_others(world: World, content: bytes | str) -> None:
    for job in ("gpt", "bert"):
        world.save(job, 4)
    sha256 = world.keep("gpt", 2)
    if content == "another job's":
        body = world.objects.get(commit_key("bert", 2))
    elif content == "a claim":
        body = world.objects.get(commit_key("gpt", 0))
    else:
        assert isinstance(content, bytes)
        body = content
    before, others = manifest_at(world, "gpt", 1), manifest_at(world, "bert", 1)
    pin = pin_key("default", "gpt", 2, sha256)
    world.objects.put(pin, body)
    for job in ("gpt", "bert"):
        Pruner(world.objects, job).prune(RetentionPolicy(keep_last=1))
    world.now_s += LATER_S
    result = sweep(world.objects, GRACE_S)
    assert pin in result.damaged and world.bytes_there(before) and not world.bytes_there(others)


def test_a_key_among_the_pins_that_is_none_keeps_everything(world: World) -> None:
    world.save("gpt", 4)
    before = manifest_at(world, "gpt", 1)
    world.objects.put("model-pins/default/gpt/two/abc", b"")
    world.prune_and_sweep("gpt")
    assert world.bytes_there(before)
    world.objects.delete("model-pins/default/gpt/two/abc")
    world.sweep()
    assert not world.bytes_there(before)


def test_a_store_that_does_not_list_pins_ends_the_sweep_before_it_removes_anything() -> None:
    class Away(MemoryObjectStore):
        def list(self, prefix: str, start_after: str = ""):  # type: ignore[no-untyped-def]
            if prefix.startswith("model-pins/"):
                raise ObjectStoreUnavailableError("away")
            return super().list(prefix, start_after)

    world = World()
    world.objects = Away(lambda: world.now_s)
    world.save("gpt", 4)
    before = manifest_at(world, "gpt", 1)
    Pruner(world.objects, "gpt").prune(RetentionPolicy(keep_last=1))
    world.now_s += LATER_S
    with pytest.raises(ObjectStoreUnavailableError):
        sweep(world.objects, GRACE_S)
    assert world.bytes_there(before)


def test_a_registration_that_was_cut_off_keeps_its_commit_for_the_grace_alone(world: World) -> None:
    world.save("gpt", 4)
    before = manifest_at(world, "gpt", 2)
    world.keep("gpt", 2, stored=False)
    Pruner(world.objects, "gpt").prune(RetentionPolicy(keep_last=1))
    sweep(world.objects, GRACE_S)
    assert world.bytes_there(before) and references(world.objects, "gpt").of(2)
    world.sweep()
    assert not references(world.objects, "gpt").of(2)
    world.prune_and_sweep("gpt")
    assert not world.bytes_there(before)


def test_a_commit_that_is_given_up_in_that_instant_is_put_back_or_refused(world: World) -> None:
    world.save("gpt", 4)
    kept = manifest_at(world, "gpt", 2)
    body = world.objects.get(commit_key("gpt", 2))
    world.objects.put(commit_key("gpt", 2), encode(tombstone(kept)))
    keep_for_model(world.objects, "default", "ab" * 32, kept, body)
    assert manifest_at(world, "gpt", 2) == kept
    world.objects.put(commit_key("gpt", 2), encode(tombstone(kept, BY)))
    with pytest.raises(NoCheckpointError, match="no such checkpoint"):
        keep_for_model(world.objects, "default", "cd" * 32, kept, body)
    assert references(world.objects, "gpt").of(2) == ("model:" + "ab" * 32,)
    assert not list(world.objects.list(pin_key("default", "gpt", 2, "cd" * 32)))


def test_a_pin_with_other_bytes_than_the_content_names_is_damage(world: World) -> None:
    world.save("gpt", 3)
    sha256 = world.keep("gpt", 1)
    checkpoint = digest(world, sha256)
    with pytest.raises(DamagedError, match="hash"):
        pinned_manifest(world.objects, "default", "gpt", 1, sha256, "ab" * 32)
    pin = pin_key("default", "gpt", 1, sha256)
    changed = decode(world.objects.get(pin), "pin").model_copy(update={"step": 9})
    world.objects.put(pin, encode(changed))
    # The job's own entry is as good, where its bytes are those.
    assert pinned_manifest(world.objects, "default", "gpt", 1, sha256, checkpoint) == manifest_at(world, "gpt", 1)
    world.objects.delete(commit_key("gpt", 1))
    with pytest.raises(DamagedError, match="hash"):
        pinned_manifest(world.objects, "default", "gpt", 1, sha256, checkpoint)
    world.objects.delete(pin)
    with pytest.raises(DamagedError, match="missing"):
        pinned_manifest(world.objects, "default", "gpt", 1, sha256, checkpoint)

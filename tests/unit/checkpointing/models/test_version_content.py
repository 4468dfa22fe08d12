"""Contents of versions: one hash for equal parts, bad parts refused with what to do, nothing half there whatever call it is killed at."""

from __future__ import annotations

import hashlib
import json
import pickle  # nosec B403
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import orjson
import pytest

from tests.support.fakes.memory_store import MemoryObjectStore
from tests.support.manifests import bare_manifest
from trainhouse.checkpointing.artifacts.artifact_store import ArtifactStore
from trainhouse.checkpointing.artifacts.artifact_sweep import sweep_artifacts
from trainhouse.checkpointing.chain.chunks import ChunkStore, chunk_key, prefix_of
from trainhouse.checkpointing.chain.commits import CommitChain, Writer, commit_key, read_entry
from trainhouse.checkpointing.chain.manifest import Manifest
from trainhouse.checkpointing.chain.model_pins import model_tag_key
from trainhouse.checkpointing.chain.references import references
from trainhouse.checkpointing.chain.retention import Pruner, RetentionPolicy, sweep
from trainhouse.checkpointing.errors import DamagedError, HeldError, InvalidStateError, NoCheckpointError
from trainhouse.checkpointing.lease.lease_facts import owned
from trainhouse.checkpointing.models.version_content import VersionParts, check_version, prepare_version, read_content
from trainhouse.checkpointing.stores.object_store import Body, ObjectStat
from trainhouse.events.model.artifact import ArtifactError
from trainhouse.events.model.ids import AttemptNumber, Epoch, JobId
from trainhouse.events.model.model_content import (
    MOST_FILES_BYTES,
    MOST_SCHEMA_LEVELS,
    ModelContent,
    ModelContentError,
    content_key,
    parse_content,
    pin_key,
)
from trainhouse.events.model.resume_ref import parse_resume_from

GRACE_S = 3600.0
GPT = parse_resume_from("gpt@2")


class KilledError(BaseException):
    """The process ended here."""


class Store(MemoryObjectStore):
    """Ends its process before the call with the number `killed_at`; counts calls. Its clock is moved by tests."""

    def __init__(self) -> None:
        self.now_s, self.calls, self.killed_at = 1e9, 0, -1
        super().__init__(lambda: self.now_s)

    def _call(self) -> None:
        if self.calls == self.killed_at:
            raise KilledError
        self.calls += 1

    def put(self, key: str, body: Body) -> None:
        self._call()
        super().put(key, body)

    def put_hashed(self, key: str, file: IO[bytes], sha256: str) -> None:
        self._call()
        super().put_hashed(key, file, sha256)

    def put_if_absent(self, key: str, body: Body) -> bool:
        self._call()
        return super().put_if_absent(key, body)

    def get(self, key: str) -> bytes:
        self._call()
        return super().get(key)

    def stat(self, key: str) -> ObjectStat | None:
        self._call()
        return super().stat(key)

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectStat]:
        self._call()
        return super().list(prefix, start_after)

    def delete(self, key: str) -> None:
        self._call()
        super().delete(key)


def stored(job: str = "gpt", project: str = "default", count: int = 3) -> Store:
    objects = Store()
    owned(objects, job, project, 0)
    writer = Writer(JobId(job), Epoch(1), AttemptNumber(0), "w")
    chain, chunks = CommitChain(objects, writer), ChunkStore(objects, job, GRACE_S, threads=1)
    chain.claim(0.0)
    for number in range(count):
        sent = [sent.chunk for sent in chunks.send([f"{job} {number}".encode()], frozenset())]
        chain.append(lambda commit, sent=sent: bare_manifest(writer, commit, {"loss": 1.0}, sent))  # type: ignore[misc]
    return objects


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    (tmp_path / "tokenizer.json").write_text('{"vocab":[]}')
    (tmp_path / "scale.json").write_text('{"mean":0.5}')
    return {"tokenizer.json": tmp_path / "tokenizer.json", "preprocessing/scale.json": tmp_path / "scale.json"}


def manifest_of(objects: Store, commit: int = 2) -> Manifest:
    entry = read_entry(objects, "gpt", commit)
    assert isinstance(entry, Manifest)
    return entry


def test_equal_parts_have_one_hash_and_a_repeat_stores_nothing_new(files: dict[str, Path]) -> None:
    objects = stored()
    parts = VersionParts(files, input_schema={"x": [1, 2]}, framework="torch 2.9.1", datasets=("a@1.0.0",), notes="first")
    first = prepare_version(objects, "default", GPT, parts)
    keys = {stat.key for stat in objects.list("")}
    assert prepare_version(objects, "default", GPT, VersionParts(dict(reversed(files.items())), {"x": (1, 2)}, **rest(parts))) == first
    assert {stat.key for stat in objects.list("")} == keys
    assert prepare_version(objects, "default", GPT, VersionParts(files)).sha256 != first.sha256
    content = read_content(objects, "default", first.sha256)
    assert content == first.content and [file.path for file in content.files] == ["preprocessing/scale.json", "tokenizer.json"]
    assert (content.commit, content.checkpoint) == (2, hashlib.sha256(objects.get(commit_key("gpt", 2))).hexdigest())


def rest(parts: VersionParts) -> dict[str, Any]:
    return {"framework": parts.framework, "datasets": parts.datasets, "notes": parts.notes}


def test_the_newest_checkpoint_is_taken_where_none_is_named() -> None:
    assert prepare_version(stored(), "default", parse_resume_from("gpt"), VersionParts()).content.commit == 3


@pytest.mark.parametrize("which", ["gpt@9", "gpt@0", "bert@1", "gpt@step:77"])
def test_what_is_not_there_is_refused(which: str) -> None:
    with pytest.raises(NoCheckpointError, match=r"checkpoints|has saved a checkpoint"):
        prepare_version(stored(), "default", parse_resume_from(which), VersionParts())


def test_another_projects_job_is_refused_like_an_unknown_one() -> None:
    objects = stored(project="theirs")
    messages = []
    for name, which in (("gpt", GPT), ("bert", parse_resume_from("bert@2"))):
        with pytest.raises(NoCheckpointError) as caught:
            prepare_version(objects, "default", which, VersionParts())
        messages.append(str(caught.value).replace(name, "JOB"))
    assert messages[0] == messages[1] and "of one project" in messages[0]
    assert not list(objects.list("models/")) and not list(objects.list("model-pins/"))


@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize("ruin", ["missing", "cut", "changed"])
def test_a_damaged_commit_is_refused_and_nothing_is_stored(ruin: str, reads: bool) -> None:
    objects = stored()
    manifest = manifest_of(objects)
    key = chunk_key(manifest.chunks[0].sha256, prefix_of(manifest))
    whole = objects.get(key)
    objects.delete(key) if ruin == "missing" else objects.put(key, whole[:-1] if ruin == "cut" else whole[::-1])
    before = {stat.key for stat in objects.list("")}
    if ruin == "changed" and not reads:
        prepare_version(objects, "default", GPT, VersionParts(), checks_bytes=False)
        return
    with pytest.raises(DamagedError, match=r"gpt@2 is damaged.*checkpoint verify gpt"):
        prepare_version(objects, "default", GPT, VersionParts(), checks_bytes=reads)
    assert {stat.key for stat in objects.list("")} == before


def a_pickle(path: Path) -> None:
    path.write_bytes(pickle.dumps({"a": 1}))


def a_zip_with_a_pickle(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps([]))


def text(path: Path) -> None:
    path.write_text("text")


@pytest.mark.parametrize(
    ("name", "make"), [("scaler", a_pickle), ("model.bin", a_zip_with_a_pickle), ("scaler.PKL", text), ("a/b.joblib", text), ("x.pt", text)]
)
def test_a_pickle_is_refused(tmp_path: Path, name: str, make: Callable[[Path], None]) -> None:
    make(tmp_path / "file")
    with pytest.raises(InvalidStateError, match="is a pickle, which runs code"):
        prepare_version(stored(), "default", GPT, VersionParts({name: tmp_path / "file"}))


@pytest.mark.parametrize(
    "name",
    ["../up", "/root", "a//b", "trainhouse.json", "model.safetensors", "Model-00001-of-00002.safetensors", "ranks/0.json", "x.distcp"],
)
def test_a_path_that_is_not_its_own_is_refused(tmp_path: Path, name: str) -> None:
    text(tmp_path / "file")
    with pytest.raises((ArtifactError, ModelContentError), match=r"no path of an artifact|rename the file"):
        prepare_version(stored(), "default", GPT, VersionParts({name: tmp_path / "file"}))


def deep(levels: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(levels):
        found = {"inner": found}
    return found


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        (VersionParts(input_schema={"x": float("nan")}), "JSON"),
        (VersionParts(input_schema={"x": {1, 2}}), "JSON"),
        (VersionParts(output_schema={"x": "y" * 70_000}), "65536"),
        (VersionParts(output_schema=deep(MOST_SCHEMA_LEVELS + 2)), "levels"),
        (VersionParts(datasets=("no version",)), "datasets"),
        (VersionParts(code="abc"), "code"),
        (VersionParts(framework=""), "framework"),
        (VersionParts(notes="x" * 20_000), "notes"),
    ],
)
def test_parts_that_no_version_has_are_refused(parts: VersionParts, reason: str) -> None:
    objects = stored()
    with pytest.raises(ModelContentError, match=reason):
        prepare_version(objects, "default", GPT, parts)
    assert not list(objects.list("models/")) and not references(objects, "gpt").rows


def test_files_are_bounded(tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(MOST_FILES_BYTES + 1)
    with pytest.raises(ModelContentError, match="trainhouse artifact put"):
        prepare_version(stored(), "default", GPT, VersionParts({"large": tmp_path / "large"}))


@pytest.mark.parametrize(
    "junk",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"[" * 500,
        b'{"format":1}',
        "spaces",
        "more",
        "newer",
        "twice",
        b"x" * (5 << 20),
    ],
)
def test_junk_is_no_content(junk: bytes | str) -> None:
    body = prepare_version(stored(), "default", GPT, VersionParts()).content.canonical_json()
    fields = orjson.loads(body)
    match junk:
        case "spaces":
            body = json.dumps(fields, sort_keys=True).encode()
        case "more":
            body = orjson.dumps(fields | {"zz": 1}, option=orjson.OPT_SORT_KEYS)
        case "newer":
            body = orjson.dumps(fields | {"format": 2}, option=orjson.OPT_SORT_KEYS)
        case "twice":
            body = body[:-1] + b',"step":2}'
        case _:
            assert isinstance(junk, bytes)
            body = junk
    with pytest.raises(ModelContentError, match="the-name"):
        parse_content(body, "the-name")


@pytest.mark.parametrize("ruin", ["missing", "changed", "of another project"])
def test_a_content_that_is_not_what_its_name_says_is_damage(ruin: str) -> None:
    objects = stored()
    prepared = prepare_version(objects, "default", GPT, VersionParts())
    key, sha256 = content_key("default", prepared.sha256), prepared.sha256
    match ruin:
        case "missing":
            objects.delete(key)
        case "changed":
            objects.put(key, prepared.content.canonical_json().replace(b'"step":2', b'"step":3'))
        case _:
            other = ModelContent.model_validate(prepared.content.model_dump() | {"project": "other"})
            sha256 = other.sha256()
            objects.put(content_key("default", sha256), other.canonical_json())
    with pytest.raises(DamagedError):
        read_content(objects, "default", sha256)


def test_killed_at_every_call_nothing_half_shows_and_a_repeat_makes_it_whole(files: dict[str, Path]) -> None:
    calls = stored()
    before = calls.calls
    whole = prepare_version(calls, "default", GPT, VersionParts(files))
    count = calls.calls - before
    assert count > 20
    for killed_at in range(count):
        objects = stored()
        objects.killed_at = objects.calls + killed_at
        with pytest.raises(KilledError):
            prepare_version(objects, "default", GPT, VersionParts(files))
        objects.killed_at = -1
        if objects.stat(content_key("default", whole.sha256)) is not None:
            assert objects.stat(pin_key("default", "gpt", 2, whole.sha256)) is not None
        Pruner(objects, "gpt").prune(RetentionPolicy(keep_last=1))
        sweep(objects, GRACE_S)
        sweep_artifacts(objects, GRACE_S)
        try:
            assert prepare_version(objects, "default", GPT, VersionParts(files)) == whole
        except NoCheckpointError:  # killed before the tag: retention was free to take it
            assert objects.stat(content_key("default", whole.sha256)) is None and not references(objects, "gpt").of(2)
            continue
        everything_is_there(objects, whole.content)


def everything_is_there(objects: Store, content: ModelContent) -> None:
    for _ in range(3):
        objects.now_s += 30 * GRACE_S
        Pruner(objects, "gpt").prune(RetentionPolicy(keep_last=1))
        sweep(objects, GRACE_S)
        sweep_artifacts(objects, GRACE_S)
    manifest = manifest_of(objects, content.commit)
    assert not ChunkStore(objects, "gpt").verify(manifest.chunks, prefix_of(manifest))
    if content.artifact is not None:
        artifacts = ArtifactStore(objects, "default")
        assert not artifacts.verify(artifacts.manifest(content.artifact))


def test_files_of_a_version_outlive_a_deleted_run_and_go_with_a_registration_that_was_cut_off(files: dict[str, Path]) -> None:
    objects = stored()
    artifacts = ArtifactStore(objects, "default")
    named = artifacts.put_files("tok", "model-files", files, "job.gpt")
    prepared = prepare_version(objects, "default", GPT, VersionParts(files))
    assert prepared.content.artifact == named.sha256()
    with pytest.raises(HeldError, match="kept by model"):
        artifacts.forget(artifacts.find("tok"))
    artifacts.mark_run("gpt", deleted=True)
    objects.now_s += 3 * 24 * GRACE_S
    everything_is_there(objects, prepared.content)
    assert not artifacts.versions("tok")
    objects.delete(content_key("default", prepared.sha256))
    for _ in range(3):
        objects.now_s += 3 * 24 * GRACE_S
        sweep_artifacts(objects, GRACE_S)
    assert not list(objects.list("project-artifacts/default/objects/"))


def test_a_sweep_that_cannot_list_contents_removes_no_files(files: dict[str, Path]) -> None:
    class Away(Store):
        away = False

        def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectStat]:
            if self.away and prefix.startswith("models/"):
                raise InvalidStateError("no leave")
            return super().list(prefix, start_after)

    whole = stored()
    objects = Away()
    objects._objects = whole._objects
    prepared = prepare_version(objects, "default", GPT, VersionParts(files))
    objects.away, objects.now_s = True, objects.now_s + 9 * 24 * GRACE_S
    assert sweep_artifacts(objects, GRACE_S).objects == 0 and sweep_artifacts(objects, GRACE_S).unclear
    objects.away = False
    everything_is_there(objects, prepared.content)


def test_a_content_of_another_client_is_checked_and_kept(files: dict[str, Path]) -> None:
    objects = stored()
    prepared = prepare_version(objects, "default", GPT, VersionParts(files))
    pin, tag = pin_key("default", "gpt", 2, prepared.sha256), model_tag_key("gpt", prepared.sha256)
    for key in (pin, tag):
        objects.delete(key)
        assert check_version(objects, "default", prepared.sha256) == prepared.content
        assert objects.stat(pin) is not None and objects.stat(tag) is not None
    everything_is_there(objects, prepared.content)


@pytest.mark.parametrize("ruin", ["no content", "no checkpoint", "chunk", "file", "artifact", "step", "another project's job"])
def test_a_content_that_names_what_is_not_there_is_refused(files: dict[str, Path], ruin: str) -> None:
    objects = stored()
    prepared = prepare_version(objects, "default", GPT, VersionParts(files))
    sha256, project = prepared.sha256, "default"
    manifest = manifest_of(objects)
    match ruin:
        case "no content":
            sha256 = "ab" * 32
        case "no checkpoint":
            objects.delete(pin_key("default", "gpt", 2, sha256))
            objects.delete(commit_key("gpt", 2))
        case "chunk":
            objects.delete(chunk_key(manifest.chunks[0].sha256, prefix_of(manifest)))
        case "file":
            objects.delete(next(stat.key for stat in objects.list("project-artifacts/default/objects/")))
        case "artifact":
            objects.delete(next(stat.key for stat in objects.list("project-artifacts/default/manifests/")))
        case "step":
            forged = ModelContent.model_validate(prepared.content.model_dump() | {"step": 99})
            sha256 = forged.sha256()
            objects.put(content_key("default", sha256), forged.canonical_json())
            objects.put(pin_key("default", "gpt", 2, sha256), objects.get(commit_key("gpt", 2)))
        case _:
            project = "theirs"
            forged = ModelContent.model_validate(prepared.content.model_dump() | {"project": project})
            sha256 = forged.sha256()
            objects.put(content_key(project, sha256), forged.canonical_json())
    with pytest.raises((DamagedError, NoCheckpointError)):
        check_version(objects, project, sha256)

"""Versions that are files alone: no byte is copied, no pickle gets in, and they outlive the run that logged them."""

from __future__ import annotations

import hashlib
import io
import pickle  # nosec B403
import zipfile
from pathlib import Path

import orjson
import pytest

from tests.support.fakes.memory_store import MemoryObjectStore
from trainhouse.checkpointing.artifacts.artifact_store import ArtifactStore
from trainhouse.checkpointing.artifacts.artifact_sweep import sweep_artifacts
from trainhouse.checkpointing.errors import DamagedError, InvalidStateError
from trainhouse.checkpointing.exchange.export import PROVENANCE, Format
from trainhouse.checkpointing.models.fetch import checkpoint_of, fetch
from trainhouse.checkpointing.models.model_card import card_of
from trainhouse.checkpointing.models.named_version import NamedVersion, find_version, parse_reference
from trainhouse.checkpointing.models.stage_chain import StagedVersion, StageRecord, append
from trainhouse.checkpointing.models.verify import identify
from trainhouse.checkpointing.models.version_content import PreparedVersion, VersionParts, check_version, prepare_files, read_content
from trainhouse.checkpointing.stores.stored_file import StoredFile
from trainhouse.events.model.artifact import ArtifactError, ArtifactFile
from trainhouse.events.model.artifact_keys import object_key
from trainhouse.events.model.model_content import MOST_FILES_BYTES, ModelContent, ModelContentError

DAY_S = 86_400.0
RUN = "m-" + "ab" * 16
MLMODEL = b"flavors: {}\n"


class Aging(MemoryObjectStore):
    """Its clock is moved by tests."""

    def __init__(self) -> None:
        self.now_s = 1e9
        super().__init__(lambda: self.now_s)


def logged(objects: MemoryObjectStore, path: str, content: bytes, project: str = "vision") -> ArtifactFile:
    """A file as a client logs it."""
    sha256 = hashlib.sha256(content).hexdigest()
    artifacts = ArtifactStore(objects, project)
    artifacts.put_run_file(RUN, path, io.BytesIO(content), sha256, len(content))
    artifacts.settle_run_file(RUN, path, sha256)
    return ArtifactFile(path=path, bytes=len(content), sha256=sha256)


def array(descr: str) -> bytes:
    """An array as NumPy writes one."""
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': (3,), }}".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(24)


def packed(content: bytes, name: str = "a/x.npy", how: int = zipfile.ZIP_DEFLATED, before: bytes = b"") -> bytes:
    """An archive of one file."""
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w", how) as opened:
        opened.writestr(name, content)
    return before + body.getvalue()


def archive(*names: str) -> bytes:
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w") as opened:
        for name in names:
            opened.writestr(name, array("<f8") if name.endswith(".npy") else b"x" * 300_000)
    return body.getvalue()


def prepared(objects: MemoryObjectStore) -> PreparedVersion:
    files = [logged(objects, "MLmodel", MLMODEL), logged(objects, "data/model.skops", archive("schema.json", "0.npy"))]
    return prepare_files(objects, "vision", RUN, files, VersionParts(framework="mlflow"))


def staged(objects: MemoryObjectStore, version: PreparedVersion) -> NamedVersion:
    found = StagedVersion(version=1, semver="1.0.0", content=version.sha256)
    append(objects, StageRecord(project="vision", name="m", decision=1, kind="promoted", subject=found, champion=found, at_ms=10**12))
    return find_version(objects, parse_reference("vision/m@champion"))


def test_a_content_names_files_that_the_store_has_and_a_repeat_stores_nothing_new() -> None:
    objects = Aging()
    first = prepared(objects)
    keys = {stat.key for stat in objects.list("")}
    assert prepared(objects) == first and {stat.key for stat in objects.list("")} == keys
    content = read_content(objects, "vision", first.sha256)
    assert (content.checkpoint, content.commit, content.step, content.bytes, content.job_id) == (None, 0, 0, 0, RUN)
    assert [file.path for file in content.files] == ["MLmodel", "data/model.skops"]
    assert check_version(objects, "vision", first.sha256) == content
    assert not list(objects.list("model-pins/"))


def test_its_files_outlive_the_model_that_a_client_logged_and_deleted() -> None:
    objects = Aging()
    version = prepared(objects)
    ArtifactStore(objects, "vision").mark_run(RUN, deleted=True)
    for _ in range(3):
        objects.now_s += 2 * DAY_S
        sweep_artifacts(objects)
    assert not list(objects.list("project-artifacts/vision/run-files/"))
    assert not ArtifactStore(objects, "vision").verify(ArtifactStore(objects, "vision").manifest(str(version.content.artifact)))
    assert check_version(objects, "vision", version.sha256) == version.content


def test_it_is_fetched_verified_and_described(tmp_path: Path) -> None:
    objects = Aging()
    named = staged(objects, prepared(objects))
    done = fetch(objects, named, Format.SAFETENSORS, tmp_path / "out")
    assert [file.name for file in done.files] == ["MLmodel", "data/model.skops"]
    assert (tmp_path / "out" / "MLmodel").read_bytes() == MLMODEL
    described = orjson.loads((tmp_path / "out" / PROVENANCE).read_bytes())
    assert "checkpoint" not in described and described["version"]["model"] == "model:vision/m@1"
    assert fetch(objects, named, Format.SAFETENSORS, tmp_path / "out").was_there
    assert identify(objects, tmp_path / "out").version == named
    (tmp_path / "out" / "MLmodel").write_bytes(b"flavors: {x: 1}\n")
    assert "MLmodel has other contents" in identify(objects, tmp_path / "out").problems[1]
    with pytest.raises(InvalidStateError, match="leave --format out"):
        fetch(objects, named, Format.DCP, tmp_path / "other")
    content = read_content(objects, "vision", named.staged.content)
    card = card_of(named, content, checkpoint_of(objects, named.staged.content, content))
    assert f"run `{RUN}`, files that its client logged" in card and "`data/model.skops`" in card


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("python_model.pkl", b"whatever it has"),
        ("weights", pickle.dumps({"a": 1})),
        ("data/model.pt2", archive("data/sample_inputs/model.pt")),
        ("archive.zip", archive("a/b.json", "a/model.joblib")),
        ("a/model.CloudPickle", b"(dp0\n."),
        ("model.joblib.gz", b"\x1f\x8b"),
        ("a/objects.npy", array("|O")),
        ("a/objects.npy", array("object")),
        ("a/objects.NPY", array("\\x4f")),
        ("a/text.npy", b"(dp0\n."),
        ("a/cut.npy", array("<f8")[:30]),
        ("a/text.npz", b"(dp0\n."),
        ("a/objects.npz", packed(array("|O"))),
        ("a/named", packed(b"(dp0\n.", "a\nb.pkl")),
        ("a/hidden", packed(b"(dp0\n.", "b.pkl", before=b"GIF89a")),
    ],
)
def test_a_pickle_is_refused_with_what_to_do(path: str, content: bytes) -> None:
    objects = Aging()
    files = [logged(objects, "MLmodel", MLMODEL), logged(objects, path, content)]
    with pytest.raises(InvalidStateError, match=f"{path} is a pickle, which runs code.*skops for scikit-learn"):
        prepare_files(objects, "vision", RUN, files)
    assert not list(objects.list("models/")) and not list(objects.list("project-artifacts/vision/references/"))


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("a/numbers.npy", array("<f8")),
        ("a/numbers.NPZ", packed(array("<f4"))),
        ("a/short.txt", b""),
        ("a/notes.txt", b"no archive, and PK\x05\x06 in it"),
    ],
)
def test_arrays_of_numbers_and_texts_are_no_pickles(path: str, content: bytes) -> None:
    objects = Aging()
    files = [logged(objects, "MLmodel", MLMODEL), logged(objects, path, content)]
    assert len(prepare_files(objects, "vision", RUN, files).content.files) == 2


def test_what_may_unpack_to_any_size_is_not_unpacked() -> None:
    objects = Aging()
    files = [logged(objects, "MLmodel", MLMODEL), logged(objects, "a.npz", packed(array("<f8"), how=zipfile.ZIP_BZIP2))]
    with pytest.raises(InvalidStateError, match="packed neither by deflate nor not at all"):
        prepare_files(objects, "vision", RUN, files)


def with_directory_of(size_bytes: int) -> bytes:
    """An archive whose list of files says that it has so many bytes, and has."""
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w") as opened:
        opened.writestr("a" * 100, b"")
    whole = body.getvalue()
    end = whole.rindex(b"PK\x05\x06")
    ended = bytearray(whole[end:])
    ended[12:16] = size_bytes.to_bytes(4, "little")
    begin = int.from_bytes(whole[end + 16 : end + 20], "little")
    return whole[:begin] + bytes(size_bytes) + bytes(ended)


def test_a_list_of_files_that_fills_the_memory_is_not_read() -> None:
    objects = Aging()
    content = with_directory_of((16 << 20) + 1)
    files = [logged(objects, "MLmodel", MLMODEL), logged(objects, "data/model.zip", content)]
    with pytest.raises(
        InvalidStateError, match=r"data/model\.zip is an archive whose list of files cannot be read .*16777217 bytes at once"
    ):
        prepare_files(objects, "vision", RUN, files)
    with StoredFile(objects, object_key("vision", files[1].sha256), len(content)) as opened:
        with pytest.raises(ValueError, match="at once"):
            opened.read()
        assert opened.read(4) == content[:4]
        assert len(opened.read(16 << 20)) == 16 << 20
        with pytest.raises(OSError, match="before the beginning"):
            opened.seek(-len(content) - 1, io.SEEK_END)


def test_what_the_project_does_not_have_is_refused() -> None:
    objects = Aging()
    file = logged(objects, "MLmodel", MLMODEL, project="speech")
    with pytest.raises(ArtifactError, match="MLmodel is not in the store"):
        prepare_files(objects, "vision", RUN, [file])
    with pytest.raises(ModelContentError, match="has no files"):
        prepare_files(objects, "vision", RUN, [])
    for path in ("../x", "trainhouse.json"):
        with pytest.raises((ModelContentError, ArtifactError)):
            prepare_files(objects, "vision", RUN, [file.model_copy(update={"path": path})])
    version = prepared(objects)
    objects.delete(object_key("vision", version.content.files[0].sha256))
    with pytest.raises(DamagedError, match="not in the store"):
        check_version(objects, "vision", version.sha256)


@pytest.mark.parametrize("forged", [{"commit": 1}, {"step": 1}, {"bytes": 1}, {"files": ()}])
def test_files_alone_have_no_commit_and_no_chunks(forged: dict[str, object]) -> None:
    fields = {"commit": 0, "step": 0, "checkpoint": None, "bytes": 0, "project": "vision", "job_id": RUN}
    large = ArtifactFile(path="model.safetensors", bytes=MOST_FILES_BYTES + 1, sha256="ab" * 32)
    assert ModelContent.model_validate(fields | {"files": (large,)}).checkpoint is None, "weights among them, of any size"
    with pytest.raises(ValueError, match="files alone"):
        ModelContent.model_validate(fields | {"files": (large,)} | forged)

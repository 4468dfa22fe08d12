"""Artifacts in the store: one id for equal files, each file once, nothing visible that is not whole, nothing taken that is named."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fakes.memory_store import MemoryObjectStore
from tests.support.profiles import examples
from trainhouse.checkpointing.artifacts.artifact_store import ArtifactStore, files_below
from trainhouse.checkpointing.artifacts.artifact_sweep import sweep_artifacts
from trainhouse.checkpointing.errors import DamagedError, HeldError, NoArtifactError, ObjectStoreRefusedError, ObjectStoreUnavailableError
from trainhouse.checkpointing.stores.object_store import ObjectStat
from trainhouse.events.model import artifact
from trainhouse.events.model.artifact import (
    BY_USER,
    MOST_FILES,
    MOST_FOLDERS,
    MOST_MANIFEST_BYTES,
    ArtifactError,
    ArtifactFile,
    ArtifactManifest,
    check_paths,
    is_kept,
)
from trainhouse.events.model.artifact_keys import (
    artifacts_prefix,
    deleted_run_key,
    manifest_key,
    name_key,
    object_key,
    reference_key,
    run_file_key,
    storing_key,
)

DAY_S = 24 * 3600.0
SHA = "ab" * 32


class KilledError(Exception):
    """The process ended here."""


class Store(MemoryObjectStore):
    """Ends its process at the write with the number `killed_at`; `away`: answers no listing and no read."""

    def __init__(self) -> None:
        self.now_s, self.killed_at, self.away = 1e9, -1, False
        self.sent: list[str] = []
        self.read: list[str] = []
        super().__init__(clock=lambda: self.now_s)

    def put_hashed(self, key: str, file: IO[bytes], sha256: str) -> None:
        super().put_hashed(key, file, sha256)
        self.sent.append(key)

    def put(self, key: str, body: bytes | bytearray | memoryview) -> None:
        self.killed_at -= 1
        if self.killed_at == -1:
            raise KilledError
        super().put(key, body)

    def get(self, key: str) -> bytes:
        if self.away:
            raise ObjectStoreUnavailableError("away")
        self.read.append(key)
        return super().get(key)

    def below(self, prefix: str = "") -> list[str]:
        return [stat.key for stat in self.list(prefix)]


@pytest.fixture
def store() -> Store:
    return Store()


def folder(root: Path, **files: str) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (root / name.replace("__", ".")).write_text(content)
    return root


def test_equal_files_have_one_id_and_are_stored_once(store: Store, tmp_path: Path) -> None:
    one = ArtifactStore(store, "vision").put("tok", "tokenizer", folder(tmp_path / "a", vocab__json="v", merges__txt="m"), BY_USER)
    other = ArtifactStore(store, "vision").put("tok2", "tokenizer", folder(tmp_path / "b", merges__txt="m", vocab__json="v"), "job.j1")
    ArtifactStore(store, "vision").put("more", "model", folder(tmp_path / "c", renamed="v"), BY_USER)
    assert one.sha256() == other.sha256() and one == other
    objects = [key for key in store.sent if "/objects/" in key]
    assert len(objects) == len(set(objects)) == 2
    assert [version.name for version in ArtifactStore(store, "vision").names()] == ["more", "tok", "tok2"]
    one_file = ArtifactManifest.of("file", [ArtifactFile(path="f", bytes=1, sha256=SHA)])
    canonical = f'{{"files":[{{"bytes":1,"path":"f","sha256":"{SHA}"}}],"format":1,"kind":"file"}}'
    assert one_file.sha256() == hashlib.sha256(canonical.encode()).hexdigest()


def test_room_is_asked_for_what_is_not_there_yet_before_anything_is_stored(store: Store, tmp_path: Path) -> None:
    artifacts, asked = ArtifactStore(store, "vision"), list[int]()

    def refuse(more_bytes: int) -> None:
        asked.append(more_bytes)
        raise KilledError

    files = folder(tmp_path / "a", one="12345", same="12345", two="123")
    with pytest.raises(KilledError):
        artifacts.put("tok", "tokenizer", files, BY_USER, refuse)
    assert asked == [8] and store.below() == []
    artifacts.put("tok", "tokenizer", folder(tmp_path / "b", one="12345"), BY_USER, asked.append)
    artifacts.put("tok", "tokenizer", files, BY_USER, asked.append)
    artifacts.put("tok", "tokenizer", files, BY_USER, asked.append)
    assert asked == [8, 5, 3, 0], "equal files and those that are there need no room"


def test_projects_share_nothing_and_see_nothing_of_each_other(store: Store, tmp_path: Path) -> None:
    manifest = ArtifactStore(store, "vision").put("tok", "file", folder(tmp_path / "a", x="secret"), BY_USER)
    speech = ArtifactStore(store, "speech")
    with pytest.raises(NoArtifactError, match="project speech has no artifact"):
        speech.find(f"tok@sha256:{manifest.sha256()}")
    with pytest.raises(NoArtifactError), speech.storing():
        speech.manifest(manifest.sha256())
    with pytest.raises(ArtifactError, match="not in the store"), speech.storing():
        speech.name("tok", manifest, BY_USER)
    assert not speech.names() and not store.below(f"{artifacts_prefix('speech')}names/")
    assert not any(ArtifactStore(store, f"p{number}").has(manifest.files[0]) for number in range(200))


def test_a_storing_that_was_killed_anywhere_shows_nothing_and_the_next_completes(tmp_path: Path) -> None:
    path = folder(tmp_path / "a", one="1", two="2", three="3")
    ended = False
    for killed_at in range(20):
        store = Store()
        store.killed_at = killed_at
        artifacts = ArtifactStore(store, "p", threads=1)
        try:
            artifacts.put("m", "model", path, BY_USER)
            ended = True
        except KilledError:
            assert not artifacts.names()
        store.killed_at = -1
        manifest = artifacts.put("m", "model", path, BY_USER)
        assert [version.sha256 for version in artifacts.names()] == [manifest.sha256()]
        artifacts.fetch(manifest, tmp_path / f"out{killed_at}")
        assert sorted(file.read_text() for file in (tmp_path / f"out{killed_at}").iterdir()) == ["1", "2", "3"]
        if ended:
            return
    raise AssertionError("never whole")


@pytest.mark.parametrize("path", ["../x", "/x", "a/../b", "a//b", "./a", "a/.", "", "a\0b", "a\\b", "a\nb", "x" * 1025, "a/", "~\u202e/b"])
def test_paths_that_climb_or_are_none(path: str) -> None:
    with pytest.raises(ArtifactError, match="is no path of an artifact"):
        check_paths(["fine", path])


def test_names_in_two_cases_and_files_that_are_folders() -> None:
    with pytest.raises(ArtifactError, match="where case does not count"):
        check_paths(["Vocab.json", "vocab.json"])
    with pytest.raises(ArtifactError, match="where case does not count"):
        check_paths(["caf\u00e9", "cafe\u0301"])
    with pytest.raises(ArtifactError, match="needs a folder of that name"):
        check_paths(["a", "A/b"])
    with pytest.raises(ArtifactError, match="at least one file"):
        check_paths([])
    with pytest.raises(ArtifactError, match="10000 at most"):
        check_paths([str(number) for number in range(MOST_FILES + 1)])


def test_a_file_is_in_64_folders_at_most_and_each_folder_is_looked_at_once() -> None:
    deepest = "/".join(["a"] * MOST_FOLDERS + ["file"])
    check_paths([deepest])
    with pytest.raises(ArtifactError, match="is in 65 folders, one inside the other, and may be in 64"):
        check_paths([f"a/{deepest}"])
    with pytest.raises(ArtifactError, match="needs a folder of that name"):
        check_paths([deepest, f"{deepest}/x".removeprefix("a/"), deepest.removeprefix("a/")])

    class Counted(str):
        """Counts how often a part is taken off, of itself and of what is left of it."""

        taken = 0

        def rpartition(self, sep: str) -> tuple[str, str, str]:
            Counted.taken += 1
            above, found, last = super().rpartition(sep)
            return Counted(above), found, last

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(artifact, "_folded", Counted)
        check_paths(["/".join(["a"] * MOST_FOLDERS + [str(number)]) for number in range(1000)])
    assert Counted.taken <= 1000 + MOST_FOLDERS


def test_links_are_refused_and_four_thousand_files_are_stored(store: Store, tmp_path: Path) -> None:
    many = tmp_path / "many"
    many.mkdir()
    for number in range(4000):
        (many / f"{number}").write_text(str(number % 7))
    manifest = ArtifactStore(store, "p").put("m", "file", many, BY_USER)
    assert len(manifest.files) == 4000 and len([key for key in store.sent if "/objects/" in key]) == 7
    (many / "link").symlink_to("/etc/passwd")
    with pytest.raises(ArtifactError, match="is a link"):
        files_below(many)
    (many / "link").unlink()
    (many / "folder").symlink_to("/etc", target_is_directory=True)
    with pytest.raises(ArtifactError, match="is a link"):
        files_below(many)
    with pytest.raises(ArtifactError, match="it is a link"):
        files_below(many / "folder")


def test_what_is_damaged_is_named_and_never_put_under_its_path(store: Store, tmp_path: Path) -> None:
    artifacts = ArtifactStore(store, "p")
    manifest = artifacts.put("m", "file", folder(tmp_path / "a", x="right", y="fine"), BY_USER)
    key = object_key("p", hashlib.sha256(b"right").hexdigest())
    store.put(key, b"wrong")
    assert "x: memory://" in artifacts.verify(manifest)[0] and "has other contents than its hash says" in artifacts.verify(manifest)[0]
    with pytest.raises(DamagedError, match="other contents"):
        artifacts.fetch(manifest, tmp_path / "out")
    assert not (tmp_path / "out").exists() and sorted(path.name for path in tmp_path.iterdir()) == ["a"]
    store.put(manifest_key("p", manifest.sha256()), b"{}")
    with pytest.raises(DamagedError, match="other contents than its name says"):
        artifacts.manifest(manifest.sha256())


def test_a_reference_is_a_name_and_enough_of_a_hash(store: Store, tmp_path: Path) -> None:
    artifacts = ArtifactStore(store, "p")
    first = artifacts.put("m", "file", folder(tmp_path / "a", x="1"), BY_USER)
    store.now_s += 1
    second = artifacts.put("m", "file", folder(tmp_path / "b", x="2"), BY_USER)
    assert artifacts.find("m").sha256 == second.sha256()
    assert artifacts.find(f"m@{first.sha256()[:8]}").sha256 == artifacts.find(f"m@sha256:{first.sha256()}").sha256 == first.sha256()
    for wrong in ("", "m@", "m@xyz", "../m", "m@sha256:12", "a/b"):
        with pytest.raises(ArtifactError, match="names no artifact"):
            artifacts.find(wrong)


def test_the_sweep_takes_what_nothing_names_and_keeps_the_rest(store: Store, tmp_path: Path) -> None:
    artifacts = ArtifactStore(store, "p")
    kept = artifacts.put("kept", "file", folder(tmp_path / "a", x="shared", y="of kept"), BY_USER)
    gone = artifacts.put("gone", "file", folder(tmp_path / "b", x="shared", z="of gone"), BY_USER)
    held = artifacts.put("held", "tokenizer", folder(tmp_path / "c", t="of held"), "job.old")
    store.put(reference_key("p", held.sha256(), f"dataset.{SHA}"), b"")
    store.put(f"datasets/p/manifests/{SHA}.json", b"{}")
    with pytest.raises(HeldError, match=f"kept by dataset.{SHA}"):
        artifacts.forget(artifacts.find("held"))
    artifacts.forget(artifacts.find("gone"))
    store.put(deleted_run_key("p", "old"), b"")
    assert sweep_artifacts(store).objects == 0, "all of it is young"
    store.now_s += DAY_S + 1
    sweep_artifacts(store)
    assert not artifacts.verify(kept) and not artifacts.verify(held), "a name, and a dataset's manifest, keep"
    assert artifacts.verify(gone) and [version.name for version in artifacts.names()] == ["kept"], "a deleted run keeps nothing"
    assert manifest_key("p", gone.sha256()) not in store.below()
    store.delete(f"datasets/p/manifests/{SHA}.json")
    assert sweep_artifacts(store).objects == 3 and artifacts.verify(held), "the reference, the manifest and the file"
    assert sweep_artifacts(store).objects == 0


def test_files_of_runs_go_with_their_run_alone(store: Store) -> None:
    for job in ("j1", "j2"):
        store.put(run_file_key("p", job, "notes.txt", SHA), b"")
        store.put(f"artifacts/{job}/{SHA}", b"trace")
    store.put(object_key("p", SHA), b"x")
    store.put(deleted_run_key("p", "j1"), b"")
    store.now_s += DAY_S + 1
    assert sweep_artifacts(store).objects == 2
    assert object_key("p", SHA) in store.below() and store.below("artifacts/") == [f"artifacts/j2/{SHA}"]
    store.put(deleted_run_key("p", "j2"), b"")
    assert sweep_artifacts(store).objects == 0, "it was deleted just now, and can be restored"
    store.now_s += DAY_S + 1
    sweep_artifacts(store)
    assert not store.below("artifacts/") and not store.below(object_key("p", SHA))


def test_what_is_being_stored_is_never_taken(store: Store, tmp_path: Path) -> None:
    artifacts = ArtifactStore(store, "p")
    path = folder(tmp_path / "a", x="1")
    manifest = artifacts.put("m", "file", path, BY_USER)
    artifacts.forget(artifacts.find("m"))
    store.now_s += DAY_S + 1
    with artifacts.storing():
        found = sweep_artifacts(store)
        assert found.objects == 0 and "an artifact is being stored" in found.unclear[0] and " UTC" in found.unclear[0]
        assert artifacts.has(manifest.files[0])
        artifacts.name("m", manifest, BY_USER)
    assert sweep_artifacts(store).objects == 0 and not artifacts.verify(manifest)
    store.put(storing_key("p", "killed"), b"")
    store.now_s += DAY_S + 1
    assert sweep_artifacts(store).objects == 1, "the note of one that was killed"


def test_a_file_that_a_kill_left_counts_until_it_is_named_or_swept(store: Store) -> None:
    artifacts, body = ArtifactStore(store, "p"), b"x" * 5000
    sha256 = hashlib.sha256(body).hexdigest()
    artifacts.put_file(io.BytesIO(body), sha256, len(body))
    artifacts.put_file(io.BytesIO(body), sha256, len(body))
    artifacts.put_file(io.BytesIO(b""), hashlib.sha256(b"").hexdigest(), 0)
    assert artifacts.unnamed_bytes() == 5000 + 1024, "each counts once, an empty one too"
    logged = b"y" * 2000
    logged_sha256 = hashlib.sha256(logged).hexdigest()
    artifacts.put_run_file("run", "a", io.BytesIO(logged), logged_sha256, 2000)
    assert artifacts.unnamed_bytes() == 8024
    artifacts.settle_run_file("run", "a", logged_sha256)
    artifacts.settle_files({sha256})
    assert artifacts.unnamed_bytes() == 1024
    store.now_s += DAY_S + 1
    sweep_artifacts(store)
    assert artifacts.unnamed_bytes() == 0


def test_a_sweep_right_under_a_storing_costs_a_second_try_alone(store: Store, tmp_path: Path) -> None:
    artifacts = ArtifactStore(store, "p", threads=1)
    path = folder(tmp_path / "a", x="1", y="2")
    manifest = artifacts.put("m", "file", path, BY_USER)
    removed = iter([object_key("p", manifest.files[0].sha256)])
    put_hashed, stat = store.put_hashed, store.stat

    def stat_and_removed(key: str):  # type: ignore[no-untyped-def]
        found = stat(key)
        if key == manifest_key("p", manifest.sha256()):  # what was looked at before is removed after
            store.delete(next(removed, "none"))
        return found

    store.stat = stat_and_removed  # type: ignore[method-assign]
    assert artifacts.put("m", "file", path, BY_USER) == manifest and store.put_hashed == put_hashed
    assert not artifacts.verify(manifest)


def test_a_sweep_that_cannot_read_a_manifest_takes_nothing_of_that_project(store: Store, tmp_path: Path) -> None:
    for project in ("p", "q"):
        artifacts = ArtifactStore(store, project)
        artifacts.put("m", "file", folder(tmp_path / "a", x="1"), BY_USER)
        artifacts.put("gone", "file", folder(tmp_path / "b", x="2"), BY_USER)
        artifacts.forget(artifacts.find("gone"))
    manifest = ArtifactStore(store, "p").find("m").sha256
    store.now_s += DAY_S + 1
    store.put(manifest_key("p", manifest), b"damaged")
    found = sweep_artifacts(store)
    assert found.objects == 2 and len(found.unclear) == 1 and "project-artifacts/p/ is removed" in found.unclear[0]
    store.delete(manifest_key("p", manifest))
    assert "has a name and is missing" in sweep_artifacts(store).unclear[0]
    store.put(manifest_key("p", manifest), bytes(MOST_MANIFEST_BYTES + 1))
    store.read.clear()
    assert "more than a manifest has" in sweep_artifacts(store).unclear[0]
    assert manifest_key("p", manifest) not in store.read, "it is too large to be read"
    store.delete(manifest_key("p", manifest))
    before = store.below()
    store.away = True
    with pytest.raises(ObjectStoreUnavailableError):
        sweep_artifacts(store)
    assert store.below() == before


def test_an_error_in_one_project_leaves_the_others_swept(store: Store, tmp_path: Path) -> None:
    for project in ("p", "q"):
        artifacts = ArtifactStore(store, project)
        artifacts.put("gone", "file", folder(tmp_path / "b", x="2"), BY_USER)
        artifacts.forget(artifacts.find("gone"))
    store.now_s += DAY_S + 1
    delete = store.delete

    def refused(key: str) -> None:
        if key.startswith(artifacts_prefix("p")):
            raise ObjectStoreRefusedError(f"{key}: no right to it")
        delete(key)

    store.delete = refused  # type: ignore[method-assign]
    found = sweep_artifacts(store)
    assert found.objects == 2 and not store.below(artifacts_prefix("q")) and "no right to it" in found.unclear[0]


def test_a_name_that_a_job_gave_to_nothing_neither_keeps_anything_nor_holds_up_the_sweep(store: Store, tmp_path: Path) -> None:
    artifacts = ArtifactStore(store, "p")
    artifacts.put("gone", "file", folder(tmp_path / "a", x="1"), BY_USER)
    artifacts.forget(artifacts.find("gone"))
    store.put(name_key("p", "none", SHA, "job.j1"), b"")
    store.put(reference_key("p", SHA, f"dataset.{SHA}"), b"")
    store.now_s += DAY_S + 1
    found = sweep_artifacts(store)
    assert found.objects == 4 and not found.unclear and not store.below()
    store.put(name_key("p", "none", SHA, "job.j1"), b"")
    assert artifacts.readable_manifest(SHA) is None
    artifacts.forget(artifacts.find("none"))
    assert not store.below()
    store.put(name_key("p", "lost", SHA, BY_USER), b"")
    store.now_s += DAY_S + 1
    assert "has a name and is missing" in sweep_artifacts(store).unclear[0], "a person's: its files are not known"


def test_a_version_that_comes_while_the_sweep_lists_keeps_its_old_files(store: Store, tmp_path: Path) -> None:
    artifacts = ArtifactStore(store, "p")
    path = folder(tmp_path / "a", x="1")
    artifacts.put("m", "file", path, BY_USER)
    artifacts.forget(artifacts.find("m"))
    store.delete(manifest_key("p", described := ArtifactManifest.of("file", artifacts.described({"x": path / "x"})).sha256()))
    store.now_s += DAY_S + 1
    listing = store.list

    def list_and_put(prefix: str, start_after: str = "") -> Iterator[ObjectStat]:
        store.list = listing  # type: ignore[method-assign]
        artifacts.put("m", "file", path, "job.j1")
        return (stat for stat in listing(prefix, start_after) if "/manifests/" not in stat.key)

    store.list = list_and_put  # type: ignore[method-assign]
    assert sweep_artifacts(store).objects == 0
    assert not artifacts.verify(artifacts.manifest(described))


def test_a_dataset_keeps_an_artifact_for_as_long_as_it_is_there_or_comes(store: Store, tmp_path: Path) -> None:
    artifacts = ArtifactStore(store, "p")
    manifest = artifacts.put("tok", "tokenizer", folder(tmp_path / "a", x="1"), "job.old")
    store.put(deleted_run_key("p", "old"), b"")
    store.now_s += DAY_S + 1
    store.put(reference_key("p", manifest.sha256(), f"dataset.{SHA}"), b"")
    assert artifacts.kept_by(manifest.sha256()) == (f"dataset.{SHA}",), "its manifest is put after its references"
    sweep_artifacts(store)
    assert not artifacts.verify(artifacts.manifest(manifest.sha256()))
    artifacts.put("tok", "tokenizer", tmp_path / "a", BY_USER)
    store.put(f"datasets/p/manifests/{SHA}.json", b"{}")
    store.now_s += DAY_S + 1
    with pytest.raises(HeldError):
        artifacts.forget(artifacts.find("tok"))
    store.delete(f"datasets/p/manifests/{SHA}.json")
    assert artifacts.kept_by(manifest.sha256()) == ()
    artifacts.forget(artifacts.find("tok"))
    assert sweep_artifacts(store).objects == 3 and not store.below(f"{artifacts_prefix('p')}references/")


@given(
    st.lists(st.sampled_from(["user", "job.a", "job.b", f"dataset.{SHA}", "dataset.none", f"model.{SHA}", "model.none", "tag.t"])),
    st.frozensets(st.sampled_from(["a", "b"])),
    st.frozensets(st.just(SHA)),
)
@settings(max_examples=examples(100))
def test_one_rule_says_what_stays(named_by: list[str], deleted: frozenset[str], roots: frozenset[str]) -> None:
    live = [by for by in named_by if by in ("user", "tag.t")]
    live += [by for by in named_by if by[:4] == "job." and by[4:] not in deleted]
    live += [by for by in named_by if by.partition(".")[0] in ("dataset", "model") and by.partition(".")[2] in roots]
    assert is_kept(named_by, deleted, roots) == bool(live)

"""Artifacts of a session: stored beside training, whole or not at all, and read with the name that the dataset gives them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from tests.support.fakes.memory_store import MemoryObjectStore
from tests.unit.workers.session.test_session_boundary import lines
from trainhouse.checkpointing.artifacts.artifact_store import ArtifactStore
from trainhouse.checkpointing.errors import ObjectStoreUnavailableError, StaleEpochError
from trainhouse.events.model.artifact import ArtifactRecorded
from trainhouse.events.model.artifact_keys import artifacts_prefix
from trainhouse.events.wire.topics import ENVIRONMENTS
from trainhouse.workers.agent.core.spool import SpoolEvent
from trainhouse.workers.agent.core.telemetry import RankIdentity
from trainhouse.workers.session import Context
from trainhouse.workers.session.errors import InvalidUseError
from trainhouse.workers.session.logging.sink import open_sink
from trainhouse.workers.session.process_groups import Gang
from trainhouse.workers.session.saving.checkpoint_saver import Unsaved
from trainhouse.workers.session.session import Session


class Store(MemoryObjectStore):
    """Fails `failures` times, holds puts of files back until `go` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: list[Exception] = []
        self.go = threading.Event()
        self.go.set()

    def put_hashed(self, key: str, file: IO[bytes], sha256: str) -> None:
        assert self.go.wait(60)
        if self.failures:
            raise self.failures.pop()
        super().put_hashed(key, file, sha256)


class Run:
    """A session of rank 0 of job j, of project p."""

    def __init__(self, folder: Path) -> None:
        self.rank = folder / "rank-0"
        self.rank.mkdir()
        self.store = Store()
        context = Context(job_id="j", epoch=3, project="p", spool=self.rank / "spool.jsonl", rank_folders=(self.rank,), step_figures=False)
        self.session = Session(context, Gang(context), open_sink(context), Unsaved())
        self.session._artifacts._store = lambda: self.store

    def recorded(self) -> list[Any]:
        return [event for event in lines(self.rank, "e") if event[1] == "ArtifactRecorded"]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    found = Run(tmp_path)
    yield found
    found.store.go.set()
    found.session.close()


def test_what_is_stored_is_what_the_files_were_and_training_goes_on_meanwhile(run: Run, tmp_path: Path) -> None:
    (tmp_path / "tok").mkdir()
    (tmp_path / "tok" / "vocab.json").write_text("first")
    run.store.go.clear()
    logged = run.session.log_artifact(tmp_path / "tok", name="bpe", kind="tokenizer")
    (tmp_path / "tok" / "vocab.json").write_text("second")
    with pytest.raises(TimeoutError, match="is not stored after"):
        logged.wait(0.0)
    assert not ArtifactStore(run.store, "p").names() and not run.recorded()
    run.store.go.set()
    reference = logged.wait()
    (version,) = ArtifactStore(run.store, "p").names()
    assert str(version) == reference and version.by == ("job.j",)
    assert not list(run.store.list(f"{artifacts_prefix('p')}storing/"))
    (event,) = run.recorded()
    told = RankIdentity("j", 2, 3, "n1", "pool", 0).record_of(SpoolEvent(0, "ArtifactRecorded", event[2], event[3]), 1)  # type: ignore[arg-type]
    assert told is not None and told[0] == ENVIRONMENTS and isinstance(told[1], ArtifactRecorded)
    assert (told[1].name, told[1].kind, told[1].files, told[1].action) == ("bpe", "tokenizer", 1, "stored")
    assert (
        (run.session.artifact("bpe") / "vocab.json").read_text() == (run.session.artifact(reference) / "vocab.json").read_text() == "first"
    )
    assert [event[2]["action"] for event in run.recorded()] == ["stored", "used", "used"]


def test_a_store_that_is_away_for_a_moment_costs_nothing_and_for_long_costs_the_version_alone(
    run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "f").write_text("x")
    run.store.failures = [ObjectStoreUnavailableError("away")] * 2
    assert run.session.log_artifact(tmp_path / "f", name="a").wait().startswith("a@sha256:")
    (tmp_path / "f").write_text("y")
    run.store.failures = [ObjectStoreUnavailableError("away for long")] * 9
    with pytest.raises(ObjectStoreUnavailableError, match="away for long"):
        run.session.log_artifact(tmp_path / "f", name="b").wait()
    assert "artifact b is not stored: away for long" in capfd.readouterr().err
    run.store.failures = [StaleEpochError("a newer attempt runs")]
    with pytest.raises(StaleEpochError):
        run.session.log_artifact(tmp_path / "f", name="c").wait()
    assert [version.name for version in ArtifactStore(run.store, "p").names()] == ["a"] and len(run.recorded()) == 1


def test_misuse_is_a_sentence(run: Run, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    (tmp_path / "link").symlink_to("/etc/passwd")
    for path, name, kind, why in (
        (tmp_path / "f", "../x", "file", "names no artifact"),
        (tmp_path / "f", "a@sha256:12345678", "file", "give a name alone"),
        (tmp_path / "f", "a", "A kind", "a kind of small letters"),
        (tmp_path / "none", "a", "file", "is no file and no folder"),
        (tmp_path / "link", "a", "file", "it is a link"),
    ):
        with pytest.raises(InvalidUseError, match=why):
            run.session.log_artifact(path, name=name, kind=kind)
    with pytest.raises(InvalidUseError, match="project p has no artifact none"):
        run.session.artifact("none")


def test_outside_of_trainhouse_files_go_to_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f").write_text("x")
    context = Context()
    with Session(context, Gang(context), open_sink(context), Unsaved()) as session:
        assert session.log_artifact("f", name="a").wait().startswith("a@sha256:")
        assert (session.artifact("a") / "f").read_text() == "x"
        with pytest.raises(InvalidUseError, match="which is not there"):
            session.artifact("b")

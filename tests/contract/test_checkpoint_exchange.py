"""`trainhouse checkpoint export` and `import` against a real object store: to a folder, to a prefix, and back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import pytest
import torch
import torch.distributed.checkpoint as dcp
from typer.testing import CliRunner

from trainhouse.checkpointing.chain.chunks import chunks_prefix
from trainhouse.checkpointing.checkpointer import Checkpointer, CheckpointerSettings
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.checkpointing.stores.s3 import S3ObjectStore
from trainhouse.cli.main import build
from trainhouse.cli.shared.exit_codes import CliError, Exit, explain
from trainhouse.events import JobState, JobStatus, ProjectApplied, envelope_of
from trainhouse.events.bus.admin import create_topics
from trainhouse.events.bus.kafka import EventProducer
from trainhouse.events.model.ids import JobId
from trainhouse.events.model.project import Project
from trainhouse.events.runtime.clock import wall_ms
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire import topics

if TYPE_CHECKING:
    from trainhouse.deploy.local.servers.seaweedfs import StoreServer

pytestmark = pytest.mark.stack


@pytest.fixture(scope="module")
def own_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaSettings]:
    """A Kafka with all topics, where one job waits, and where projects that were not declared are closed."""
    from trainhouse.deploy.local.servers.kafka_broker import KafkaServer

    with KafkaServer(tmp_path_factory.mktemp("kafka")) as server:
        settings = KafkaSettings(bootstrap=server.bootstrap)
        create_topics(settings)
        producer = EventProducer(settings)
        queued = JobStatus(job_id=JobId("queued"), status_seq=1, state=JobState.PENDING, updated_at_ms=1)
        producer.send(topics.STATUS, envelope_of(queued, id="s1", source="test", now_ms=wall_ms()))
        for name in ("default", "*"):
            applied = ProjectApplied(project=Project(name=name, closed=name == "*"), version=1, applied_at_ms=1)
            producer.send(topics.PROJECTS, envelope_of(applied, id=name, source="test", now_ms=wall_ms()))
        producer.flush()
        yield settings


@pytest.fixture
def store(object_store_endpoint: StoreServer, own_kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> S3ObjectStore:
    """The store of the command line's settings, beside a Kafka that knows no jobs but those of a test."""
    server = object_store_endpoint
    for name, value in (("ENDPOINT", server.endpoint), ("BUCKET", server.bucket), ("ACCESS_KEY", server.access_key)):
        monkeypatch.setenv(f"TRAINHOUSE_S3_{name}", value)
    monkeypatch.setenv("TRAINHOUSE_S3_SECRET_KEY", server.secret_key)
    monkeypatch.setenv("TRAINHOUSE_KAFKA_BOOTSTRAP", own_kafka.bootstrap)
    return S3ObjectStore(StoreSettings())


def rows(*arguments: str) -> dict[str, object]:
    """The answer of a command in JSON."""
    done = CliRunner().invoke(build(), ["checkpoint", *arguments, "--json"], catch_exceptions=False)
    found: dict[str, object] = orjson.loads(done.stdout)
    return found


def failure(*arguments: str) -> CliError:
    """The error of a command."""
    error = CliRunner().invoke(build(), ["checkpoint", *arguments]).exception
    assert isinstance(error, CliError), error
    return error


def test_a_checkpoint_goes_out_and_comes_back(store: S3ObjectStore, object_store_endpoint: StoreServer, tmp_path: Path) -> None:
    state = {"model": {"w": torch.randn(3000, 1000), "b": torch.randn(7)}, "note": "kept"}
    at = Checkpointer(CheckpointerSettings("exchanged", 1, 0, "spec"), store)
    at.save(state, {}, 10, 1.0, metrics={"loss": 0.5})
    out = tmp_path / "dcp"
    found = rows("export", "exchanged@best", "--format", "dcp", "--out", str(out))
    assert (found["checkpoint"], found["out"], found["left_out"]) == ("exchanged@1", str(out), [])
    target = {"model": {"w": torch.zeros(3000, 1000), "b": torch.zeros(7)}, "note": ""}
    dcp.load(target, checkpoint_id=out)
    assert target["model"]["w"].equal(state["model"]["w"]) and target["note"] == "kept"  # type: ignore[index]
    prefix = f"s3://{object_store_endpoint.bucket}/models/exchanged"
    rows("export", "exchanged@step:10", "--format", "hf", "--out", prefix, "--spool", str(tmp_path), "--shard-gb", "0.001")
    keys = sorted(stat.key.removeprefix("models/exchanged/") for stat in store.list("models/exchanged/"))
    shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"]
    assert keys == [*shards, "trainhouse.json"]
    assert "name another prefix" in str(failure("export", "exchanged", "--format", "hf", "--out", prefix))
    for own in ("jobs/exchanged/out", "chunks/out", "jobs"):
        swept = failure("export", "exchanged", "--format", "hf", "--out", f"s3://{object_store_endpoint.bucket}/{own}")
        assert "where the stack keeps its own checkpoints" in str(swept) and swept.code == Exit.FAILED
    back = rows("import", prefix, "--job", "back", "--spool", str(tmp_path))
    assert back == {"checkpoint": "back@1", "step": 10, "tensors": 2, "bytes_total": back["bytes_total"], "parts": ["model"]}
    again = {"model": {"w": torch.zeros(3000, 1000), "b": torch.zeros(7)}}
    report = Checkpointer(CheckpointerSettings("child", 1, 0, "spec"), store).restore(dict(again), lambda own: None, "back@best")
    assert report.step == 10
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dcp"]


def test_failures_say_what_to_do_and_have_their_codes(store: S3ObjectStore, tmp_path: Path) -> None:
    at = Checkpointer(CheckpointerSettings("broken", 1, 0, "spec"), store)
    at.save({"model": {"w": torch.randn(300, 1000)}}, {}, 10, 1.0)
    large = max(store.list(chunks_prefix("broken")), key=lambda stat: stat.size_bytes)
    store.put(large.key, b"x" * large.size_bytes)
    out = str(tmp_path / "out")
    damaged = failure("export", "broken", "--format", "hf", "--out", out)
    assert damaged.code is Exit.FAILED and "it holds model.w of model.safetensors" in str(damaged) and not Path(out).exists()
    unknown = failure("export", "broken@7", "--format", "hf", "--out", out)
    assert unknown.code is Exit.NOT_FOUND and "`trainhouse checkpoints broken` lists them" in str(unknown)
    assert "write one of safetensors, hf, dcp, torch" in str(failure("export", "broken", "--format", "onnx", "--out", out))
    assert "write s3://BUCKET/PREFIX" in str(failure("export", "broken", "--format", "hf", "--out", "s3://models"))
    assert failure("import", str(tmp_path / "none"), "--job", "x").code is Exit.NOT_FOUND
    assert failure("import", str(tmp_path), "--job", "a b").code is Exit.USAGE
    taken = failure("import", str(tmp_path), "--job", "x")
    assert taken.code is Exit.USAGE and "holds neither .metadata" in str(taken)


def test_ids_of_jobs_and_unknown_projects_are_refused(store: S3ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = str(tmp_path / "dcp")
    dcp.save({"model": {"w": torch.ones(2)}, "config": {"width": 3}}, checkpoint_id=source)
    known = failure("import", source, "--job", "queued")
    assert known.code is Exit.REJECTED and "there is a job queued, which is PENDING: import under another id" in str(known)
    unknown = failure("import", source, "--job", "fresh", "--project", "nowhere")
    assert unknown.code is Exit.NOT_FOUND and "there is no project 'nowhere'" in str(unknown)
    done = CliRunner().invoke(build(), ["checkpoint", "import", source, "--job", "fresh"], catch_exceptions=False)
    assert "fresh@1 is imported: 1 tensors" in done.stdout
    assert "parts: config, model; a job that starts from it begins anew with: optimizer, schedule, scaler, ema" in done.output
    monkeypatch.setenv("TRAINHOUSE_KAFKA_BOOTSTRAP", "127.0.0.1:1")
    away = explain(CliRunner().invoke(build(), ["checkpoint", "import", source, "--job", "other"]).exception or AssertionError())
    assert away is not None and away.code is Exit.UNAVAILABLE and "127.0.0.1:1" in str(away)
    assert list(store.list("jobs/queued/")) == list(store.list("jobs/other/")) == []

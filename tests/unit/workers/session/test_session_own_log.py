"""What a session logs by itself: code, packages, machine, and samples of the system."""

import os
import subprocess
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.support.waiting import until
from trainhouse.events import JobId, NodeId
from trainhouse.events.model.ids import AttemptNumber, Epoch
from trainhouse.events.model.spec import CodeArchive
from trainhouse.events.model.tracking import EnvironmentCaptured
from trainhouse.events.wire.topics import ENVIRONMENTS
from trainhouse.workers.agent.core.spool import cut_spool
from trainhouse.workers.agent.core.telemetry import RankIdentity
from trainhouse.workers.session.context import Context
from trainhouse.workers.session.logging import environment
from trainhouse.workers.session.logging.auto_logging import OwnLog
from trainhouse.workers.session.logging.sink import open_sink
from trainhouse.workers.session.logging.system_metrics import Counters, SystemMetrics, environment_wanted, interval_of, rates

WHO = RankIdentity(JobId("j"), AttemptNumber(1), Epoch(2), NodeId("n"), "default", 0)


def git(folder: Path, *arguments: str) -> None:
    author = ["-c", "user.name=ada", "-c", "user.email=ada@example.org"]
    subprocess.run(["git", "-C", str(folder), *author, *arguments], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-b", "main")
    (tmp_path / "train.py").write_text("print(1)\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    git(tmp_path, "remote", "add", "origin", "https://ada:secret@example.org/a.git")  # pragma: allowlist secret
    return tmp_path


def test_a_folders_git_is_told_with_what_was_not_committed(repository: Path) -> None:
    clean = environment.capture(None, repository)
    assert len(clean["git_commit"]) == 40 and clean["git_branch"] == "main" and not clean["git_dirty"]
    assert clean["git_remote"] == "https://example.org/a.git"
    (repository / "train.py").write_text("print(2)\n")
    dirty = environment.capture(None, repository)
    assert dirty["git_dirty"] and "+print(2)" in dirty["git_diff"] and dirty["environment_id"] == clean["environment_id"]


def test_a_submitted_folder_is_known_by_its_submission(repository: Path) -> None:
    code = CodeArchive(uri="s3://b/c", sha256="0" * 64, git_commit="1" * 40, git_dirty=True, git_diff_uri="s3://b/d")
    told = environment.capture(code, repository)
    assert (told["git_commit"], told["git_dirty"], told["git_diff_uri"]) == ("1" * 40, True, "s3://b/d")
    assert "git_diff" not in told


def test_a_folder_without_git_is_no_trouble(tmp_path: Path) -> None:
    told = environment.capture(None, tmp_path)
    assert "git_commit" not in told and told["packages"]["numpy"] and told["cpus"] > 0 and told["memory_bytes"] > 0


def test_an_environment_is_named_by_its_packages() -> None:
    first = environment.environment_id({"a": "1", "b": "2"}, "3.11.1")
    assert first == environment.environment_id({"b": "2", "a": "1"}, "3.11.1") != environment.environment_id({"a": "1"}, "3.11.1")


def test_rates_are_of_the_time_between() -> None:
    before, after = Counters(1.0, 100, 0, 0, 50), Counters(3.0, 300, 10, 0, 40)
    assert rates(before, after) == {
        "system/network_sent_bytes_per_s": 100.0,
        "system/network_received_bytes_per_s": 5.0,
        "system/disk_read_bytes_per_s": 0.0,
    }
    assert rates(before, before) == {}


def test_the_interval_is_an_option_with_a_floor() -> None:
    asked = {text: interval_of({"TRAINHOUSE_SYSTEM_METRICS_S": text}, 10.0) for text in ("", "0", "0.1", "30", "-1", "often")}
    assert asked == {"": 10.0, "0": 0.0, "0.1": 1.0, "30": 30.0, "-1": 0.0, "often": 10.0}
    assert environment_wanted({}) and not environment_wanted({"TRAINHOUSE_CAPTURE_ENVIRONMENT": "0"})


def test_a_sample_tells_of_process_and_machine() -> None:
    system = SystemMetrics(0, {})
    system.sample(1.0)
    found = system.sample(2.0)
    assert found["system/process_memory_bytes"] > 1e6 and "system/network_sent_bytes_per_s" in found
    assert "system/node_memory_used_bytes" not in SystemMetrics(1, {}).sample(1.0)


def test_it_goes_by_the_spool_and_the_agent_reads_it(tmp_path: Path) -> None:
    context = Context(spool=tmp_path / "spool.jsonl")
    sink = open_sink(context)
    steps: list[int | None] = [None]
    spent_ns = [0]
    own = OwnLog(context, sink, lambda: steps[0], {"TRAINHOUSE_SYSTEM_METRICS_S": "1"}, lambda: spent_ns[0])
    own.start()
    spool = tmp_path / "spool.jsonl"
    until(lambda: b"EnvironmentCaptured" in spool.read_bytes())
    steps[0], spent_ns[0] = 7, 500_000_000
    until(lambda: b'["m"' in spool.read_bytes())
    assert own.stop(10)
    cut = cut_spool(spool.read_bytes(), 0)
    assert cut.batches[0].steps[0] == 7 and "system/process_cpu_pct" in cut.batches[0].metrics and cut.unreadable == 0
    (share_pct, *_) = cut.batches[0].metrics["system/tracking_pct"]
    assert 0 < share_pct <= 50  # half a second of one second, or of more
    told = WHO.record_of(cut.events[0], 5)
    assert told is not None
    topic, event, event_id = told
    assert (
        topic == ENVIRONMENTS and isinstance(event, EnvironmentCaptured) and event.packages["numpy"] and (event.epoch, event.rank) == (2, 0)
    )
    assert event_id == "j:2:0:spool:0"


@pytest.mark.parametrize(
    "environ", [{"TRAINHOUSE_SYSTEM_METRICS_S": "0", "TRAINHOUSE_CAPTURE_ENVIRONMENT": "0"}, {"TRAINHOUSE_SYSTEM_METRICS_S": "0"}]
)
def test_it_can_be_turned_off(tmp_path: Path, environ: dict[str, Any]) -> None:
    context = Context(rank=1 if len(environ) == 1 else 0, spool=tmp_path / "spool.jsonl")
    own = OwnLog(context, open_sink(context), lambda: 1, environ)
    own.start()
    assert own.stop() and (tmp_path / "spool.jsonl").read_bytes() == b""


def test_what_is_no_text_is_told_as_far_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken-1.0.dist-info"
    broken.mkdir()
    (broken / "METADATA").write_bytes(b"Metadata-Version: 2.1\nName: broken\nVersion: 1.0\nAuthor: Andr\xe9\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("sys.argv", ["train.py", os.fsdecode(b"data-\xff")])
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xfe"))
    told = environment.capture(None, folder)
    assert told["packages"]["numpy"] and "broken" not in told["packages"]
    assert orjson.loads(orjson.dumps(told))["command"][1:] == ["train.py", "data-\ufffd"]
    assert told["folder"].endswith("/\ufffd")


def test_a_working_folder_that_is_gone_leaves_the_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    spool, gone = tmp_path / "spool.jsonl", tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    own = OwnLog(Context(spool=spool), open_sink(Context(spool=spool)), lambda: 3, {"TRAINHOUSE_SYSTEM_METRICS_S": "1"})
    own.start()
    until(lambda: b'["m",3' in spool.read_bytes())
    assert own.stop(10) and b"EnvironmentCaptured" not in spool.read_bytes()
    assert "is not captured" in capfd.readouterr().err

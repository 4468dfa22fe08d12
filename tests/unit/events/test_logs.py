"""Lines of the log: JSON with process and ids, in threads too; console for people; what is decided about jobs."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from trainhouse.events.model.decisions import JobForgotten
from trainhouse.events.model.job import JobRejected
from trainhouse.events.runtime.logs import configure_logs, ids_of
from trainhouse.events.wire.journal import JournalRecord
from trainhouse.scheduler.stream.journal import decision_log

Lines = pytest.CaptureFixture[str]


@pytest.fixture
def lines(capsys: Lines) -> Iterator[Lines]:
    root = logging.getLogger()
    before, level, configured = root.handlers, root.level, structlog.get_config()
    yield capsys
    root.handlers, root.level = before, level
    structlog.configure(**configured)


def read(lines: Lines) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines.readouterr().err.splitlines()]


def test_every_line_is_json_with_its_process_also_in_threads_and_libraries(lines: Lines) -> None:
    configure_logs("info", "agent", node_id="n1")
    log = structlog.get_logger("mine")
    log.info("finished", attempt="train-7:3")
    thread = threading.Thread(target=lambda: log.warning("from a thread", attempt=2))
    thread.start()
    thread.join()
    logging.getLogger("library").warning("theirs")
    log.debug("too fine")
    first, second, third = read(lines)
    assert (first["event"], first["job_id"], first["epoch"], first["level"]) == ("finished", "train-7", 3, "info")
    assert (second["attempt"], "job_id" in second) == (2, False)
    assert third["event"] == "theirs" and third["logger"] == "library"
    assert {(line["process"], line["node_id"]) for line in (first, second, third)} == {("agent", "n1")}
    assert all(line["timestamp"].endswith("Z") for line in (first, second, third))


def test_people_may_have_plain_lines_and_nothing_else_is_known(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINHOUSE_LOG_FORMAT", "console")
    configure_logs("info", "alerts")
    structlog.get_logger("mine").info("hello", job_id="j")
    told = lines.readouterr().err
    assert "hello" in told and not told.startswith("{")
    monkeypatch.setenv("TRAINHOUSE_LOG_FORMAT", "xml")
    with pytest.raises(ValueError, match="json or console"):
        configure_logs("info", "alerts")


def test_what_moved_a_job_is_a_line_and_lines_are_bounded(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    configure_logs("info", "intake")
    monkeypatch.setattr(decision_log, "log_", structlog.get_logger(decision_log.__name__))
    rejected = [
        JobRejected.model_validate({"job_id": f"j{n}", "submission_id": f"s{n}", "reason": "no", "rejected_at_ms": 1})
        for n in range(decision_log.MOST + 2)
    ]
    decisions = (JobForgotten.model_validate({"job_id": "x"}), *rejected)
    record = JournalRecord(
        seq=5,
        owner="o",
        now_ms=1,
        cursor=0,
        inputs=(),
        decisions=decisions,
        published_up_to=0,
        decide_version=1,
        fold_version=1,
        previous_hash="",
    )
    decision_log.log_decisions(record, 3)
    told = read(lines)
    assert [line.get("job_id") for line in told] == [*(f"j{n}" for n in range(decision_log.MOST)), None]
    assert (told[0]["seq"], told[0]["partition"], told[0]["reason"]) == (5, 3, "no") and told[-1]["left_out"] == 2
    assert ids_of(rejected[0]) == {"job_id": "j0"}

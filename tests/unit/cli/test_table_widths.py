"""Every table of the command line at 80, 100 and 160 columns: no line is too long, no word is broken, what matters most is there."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainhouse.cli.data import alerts, snapshot_tables
from trainhouse.cli.fleet import node_list
from trainhouse.cli.jobs import job_events, job_table
from trainhouse.cli.shared import output, table_layout
from trainhouse.cli.stack import local_stack
from trainhouse.deploy.local.stack_state import PartRow
from trainhouse.projections.alerts.causes import Links, by_cause

NOW_MS = 1_795_635_855_000
REASON = "the gang can never be held: it needs 99 devices; pool default has 2 of type cpu in all"
JOB = {
    "job_id": "train-1m8a3sg4r7yy7",
    "submission_id": "s",
    "name": "lr-sweep lr=0.1 width=64",
    "state": "INITIALIZING",
    "user": "somebody",
    "project": "speech-recognition",
    "world_size": 99,
    "step": 200_000,
    "total_steps": 200_000,
    "loss": 3.022e-12,
    "steps_per_s": 1194.0,
    "elapsed_s": 700_000.0,
    "submitted_at_ms": NOW_MS,
    "updated_at_ms": 0,
    "reason": REASON,
}
NODE = {
    "node_id": "gpu-rack12-node0417",
    "state": "SUSPECTED",
    "restriction": "CORDONED",
    "restriction_reason": "memory errors on device 3, waits for its repair",
    "pool": "speech",
    "address": "10.17.204.117:29500",
    "devices": 8,
    "device_type": "nvidia-h100-80gb",
    "ranks_running": 8,
    "cpus": 192,
    "memory_bytes": 2**41,
    "last_heartbeat_at_ms": NOW_MS - 12_300,
    "registered_at_ms": NOW_MS - 10**9,
    "lost_reason": "",
}
PART = PartRow(
    "projector", 1_234_567, "RUNNING", 12, ["http://127.0.0.1:19100", "http://127.0.0.1:19113"], "/var/lib/x/.trainhouse/logs/projector.log"
)
ALERT: dict[str, Any] = {
    "key": "job",
    "labels": {},
    "state": "FIRING",
    "severity": "CRITICAL",
    "rule": "checkpoint-uploads-slow",
    "since_ms": NOW_MS - 10**7,
    "resolved_at_ms": None,
    "summary": "uploads of train-1m8a3sg4r7yy7 took 99% of the time between the last saves: the object store sets their pace",
    "owner": "platform",
    "runbook": "https://runbooks.example/checkpoint-uploads-slow",
}
HELD = [{"job_id": "train-1m8a3sg4r7yy7", "devices": [0, 1, 2, 3]}]
AT = {
    "nodes": {
        "node_id": "gpu-rack12-node0417",
        "pool": "speech",
        "health": "ALIVE",
        "restriction": "CORDONED",
        "restricted_by": "ops",
        "restricted_for": "memory errors",
        "devices": {"nvidia-h100-80gb": {"total": 8, "held": 4, "free": 4}},
        "holds": HELD * 3,
    },
    "running": {
        "job_id": "train-1m8a3sg4r7yy7",
        "state": "RUNNING",
        "pool": "speech",
        "team": "acoustics",
        "priority": 50,
        "ranks": 64,
        "since_ms": NOW_MS - 10**7,
        "nodes": [{"node_id": f"gpu-rack12-node{n:04}", "ranks": 8} for n in range(8)],
    },
    "queue": {
        "place": 17,
        "job_id": "train-1m8a3sg4r7yy7",
        "pool": "speech",
        "team": "acoustics",
        "priority": 50,
        "ranks": 64,
        "device_type": "nvidia-h100-80gb",
        "waits_since_ms": NOW_MS - 10**7,
        "reason": REASON,
    },
    "policies": {"pool": "speech", "name": "fair-share", "version": 3, "policy": {"order": "FAIR_SHARE", "blocking": "BACKFILL"}},
    "reservations": {"job_id": "train-1m8a3sg4r7yy7", "start_ms": NOW_MS + 10**7, "node_ids": [f"gpu-rack12-node{n:04}" for n in range(8)]},
    "claims": {
        "job_id": "train-1m8a3sg4r7yy7",
        "made_at_ms": NOW_MS - 10**5,
        "parts": [{"node_id": f"gpu-rack12-node{n:04}", "devices": [0, 1]} for n in range(8)],
        "victims": [f"other-{n}m8a3sg4r7yy7" for n in range(4)],
    },
}
EVENTS = [(NOW_MS, "trainhouse.tracking.environment-captured.v1", REASON), (NOW_MS, "trainhouse.job.submitted.v1", "by ada")]


def _at(kind: str) -> Callable[[], None]:
    return lambda: snapshot_tables.print_cluster({each: [] for each in AT} | {kind: [AT[kind]]}, NOW_MS)


TABLES: dict[str, tuple[Callable[[], None], tuple[str, ...]]] = {
    "status": (lambda: job_table.show([JOB]), ("job", "state", "train-1m8a3sg4r7yy7", "INITIALIZING", "200000/200000", "devices;")),
    "nodes": (lambda: node_list.show([node_list.shown(NODE, NOW_MS)]), ("node", "gpu-rack12-node0417", "SUSPECTED", "CORDONED", "devices")),
    "ps": (lambda: local_stack.show_parts([PART]), ("name", "projector", "state", "RUNNING", "log", PART.log)),
    "alerts": (
        lambda: alerts.show_causes(by_cause([ALERT], Links()), NOW_MS),
        ("CRITICAL", "checkpoint-uploads-slow", "summary", "uploads"),
    ),
    "alerts --all": (lambda: alerts.show([ALERT], NOW_MS), ("FIRING", "CRITICAL", "checkpoint-uploads-slow", "uploads")),
    "nodes then": (_at("nodes"), ("gpu-rack12-node0417", "ALIVE", "held", "free")),
    "running then": (_at("running"), ("train-1m8a3sg4r7yy7", "RUNNING", "ranks")),
    "queue then": (_at("queue"), ("place", "train-1m8a3sg4r7yy7", "ranks", "64")),
    "policies then": (_at("policies"), ("speech", "fair-share", "FAIR_SHARE")),
    "reservations then": (_at("reservations"), ("train-1m8a3sg4r7yy7",)),
    "claims then": (_at("claims"), ("train-1m8a3sg4r7yy7",)),
}


def on_terminal(capsys: pytest.CaptureFixture[str], width: int, show: Callable[[], None]) -> list[str]:
    """The lines that `show` prints on a terminal without colours."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout.isatty", lambda: True)
        patch.setenv("COLUMNS", str(width))
        patch.setenv("TERM", "dumb")
        show()
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("width", [80, 100, 160])
@pytest.mark.parametrize("name", TABLES)
def test_a_table_fits_and_has_whole_words(name: str, width: int, capsys: pytest.CaptureFixture[str]) -> None:
    show, expected = TABLES[name]
    lines = on_terminal(capsys, width, show)
    assert max(map(len, lines)) <= width, "\n".join(lines)
    assert all(any(word in line.split() for line in lines) for word in expected), "\n".join(lines)


def test_a_wider_terminal_has_all_columns_of_a_narrow_one(capsys: pytest.CaptureFixture[str]) -> None:
    heads = [set(on_terminal(capsys, width, TABLES["status"][0])[0].split()) for width in (60, 80, 100, 160)]
    assert heads == sorted(heads, key=len) and all(a <= b for a, b in itertools.pairwise(heads)), heads


@pytest.mark.parametrize("width", [80, 100, 160])
def test_an_event_has_its_type_and_text_apart_in_whole_words(width: int) -> None:
    lines = job_events.lines(EVENTS, width)
    assert max(map(len, lines)) <= width
    words = " ".join(lines).split()
    assert [word for word in words if word in REASON.split()] == [w for w in [*REASON.split()] if w in words]
    assert "tracking.environment-captured.v1" in words and "job.submitted.v1" in words


def test_an_event_for_a_pipe_is_one_line() -> None:
    assert [line.split(maxsplit=2)[2] for line in job_events.lines(EVENTS, None)] == [REASON, "by ada"]


def test_the_log_file_of_a_part_is_there_where_its_path_is_longer_than_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    deep = replace(PART, log=f"/{'deep/' * 20}projector.log")
    lines = on_terminal(capsys, 80, lambda: local_stack.show_parts([deep]))
    assert any(deep.log in line for line in lines), lines


TEXT = st.text(st.sampled_from("ab é漢 "), max_size=60)


@given(st.data(), st.integers(20, 160))
def test_lines_are_no_wider_than_the_terminal_and_hold_every_word(data: st.DataObject, width: int) -> None:
    columns = tuple(data.draw(st.lists(st.sampled_from("pqrstuv"), unique=True, min_size=1, max_size=6)))
    rows = tuple(tuple(data.draw(TEXT) for _ in columns) for _ in range(data.draw(st.integers(1, 4))))
    grid, dropped = table_layout.fit(table_layout.Grid(columns, rows), width, columns[:0:-1])
    assert set(grid.columns) | set(dropped) == set(columns)
    if not table_layout.fits(grid, width):
        assert len(grid.columns) == 1, "all others were given up before"
        return
    sizes = table_layout.widths(grid, width)
    for row in grid.rows:
        lines = table_layout.lines_of(row, grid, sizes)
        assert all(table_layout.cell_len("  ".join(line)) <= width for line in lines)
        for at, text in enumerate(row):
            assert " ".join(line[at] for line in lines).split() == text.split()


def test_only_a_terminal_gets_colours(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[tuple[Any, ...]] = [("j", "FAILED")]
    output.table(("job", "state"), rows)
    assert capsys.readouterr().out == "job  state\nj    FAILED\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    output.table(("job", "state"), rows)
    assert "\x1b[31mFAILED\x1b[0m" in capsys.readouterr().out
    monkeypatch.setenv("NO_COLOR", "1")
    output.table(("job", "state"), rows)
    assert "\x1b" not in capsys.readouterr().out

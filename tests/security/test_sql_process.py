"""The process of guests' SQL: it reads what the writer wrote, and can do nothing else, whatever passes the gate."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trainhouse import landlock
from trainhouse.projections.endpoint.engine import Limits
from trainhouse.projections.endpoint.frames import FrameError, receive, send
from trainhouse.projections.endpoint.guests import GuestProcess
from trainhouse.projections.endpoint.mirror import OF_THE_WRITER, mirror
from trainhouse.projections.errors import QueryRefusedError
from trainhouse.projections.store.clickhouse import ConnectClickHouse, connect_embedded

LIMITS = Limits(time_s=20.0, result_rows=1000, result_bytes=1024**2, memory_bytes=256 * 1024**2)
TABLE = "CREATE TABLE points (step UInt64, loss Float64) ENGINE = ReplacingMergeTree ORDER BY step"

# What a statement could do that passed the gate: the engine is asked directly, in the process as it is before its first question.
UNGATED = """
import os, socket, sys
from pathlib import Path
from trainhouse.projections.endpoint.guest import confine
data, canary, port, outer = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
scratch = data.parent / "scratch"
assert confine(scratch, data)
import chdb
engine = chdb.connect(str(scratch / "engine"))
engine.query("SET http_max_tries = 1, connections_with_failover_max_tries = 1, connect_timeout = 2")
def tried(sql):
    try:
        return "done " + (engine.query(sql, "TSV").bytes() or b"").decode()
    except Exception as error:
        return "refused " + str(error)
for sql in [f"SELECT file('{canary}')", f"SELECT * FROM file('{canary}', 'LineAsString')", f"SELECT 1 INTO OUTFILE '{canary}.out'",
            f"INSERT INTO FUNCTION file('{data}/x', 'CSV', 'a Int8') SELECT 1",
            f"SELECT * FROM url('http://127.0.0.1:{port}/', 'LineAsString', 'a String')",
            f"SELECT * FROM file('/proc/{outer}/environ', 'LineAsString')", f"SELECT * FROM remote('127.0.0.1:{port}', system.one)"]:
    print(tried(sql).replace(chr(10), " ")[:200], flush=True)
def direct(what):
    try:
        what()
        return "done"
    except OSError:
        return "refused"
print(direct(lambda: os.kill(outer, 0)), direct(lambda: Path(canary).read_text()), direct(lambda: (data / "new").write_text("x")),
      direct(lambda: socket.create_server(("127.0.0.1", 0))))
print(tried("SELECT 1 + 1").strip())
os._exit(0)
"""


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[ConnectClickHouse]:
    made = connect_embedded(tmp_path / "data", 1024**3, 2)
    made.command(TABLE)
    made.command("CREATE VIEW losses AS SELECT step, loss FROM points FINAL")
    made.command("CREATE VIEW above AS SELECT * FROM losses WHERE loss > 1")
    made.command("INSERT INTO points SELECT number, number FROM numbers(10)")
    yield made
    made.close()


@pytest.fixture
def guests(writer: ConnectClickHouse, tmp_path: Path) -> Iterator[GuestProcess]:
    made = GuestProcess(tmp_path / "data", [tuple(map(str, row)) for row in writer.rows(OF_THE_WRITER)], LIMITS, 2)
    made.start()
    yield made
    made.close()


def until(condition: Callable[[], bool], within_s: float = 90.0) -> None:
    end_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.1)


def count(guests: GuestProcess) -> int:
    return int(guests.query("SELECT count() FROM losses", "TSV", {}).body)


def test_guests_read_what_the_writer_writes_a_moment_later(writer: ConnectClickHouse, guests: GuestProcess) -> None:
    assert count(guests) == 10
    assert guests.query("SELECT count() FROM above WHERE step = {s:UInt64}", "TSV", {"s": "5"}).body == b"1\n"
    writer.command("INSERT INTO points SELECT number + 10, 1 FROM numbers(5)")
    until(lambda: count(guests) == 15)
    writer.command("OPTIMIZE TABLE points FINAL")
    writer.command("ALTER TABLE points DELETE WHERE step < 5 SETTINGS mutations_sync = 2")
    until(lambda: count(guests) == 10)


def test_errors_limits_and_the_gate_are_those_of_the_endpoint(guests: GuestProcess, tmp_path: Path) -> None:
    for sql, code in (("SELECT nosuch FROM points", 47), (f"SELECT file('{tmp_path}')", 164), ("SELECT number FROM numbers(10000)", 396)):
        with pytest.raises(QueryRefusedError) as refused:
            guests.query(sql, "TSV", {})
        assert refused.value.code == code
    assert count(guests) == 10


def test_a_process_that_dies_is_replaced_and_who_waited_is_told(guests: GuestProcess) -> None:
    assert count(guests) == 10
    told: list[int] = []

    def wait() -> None:
        try:
            guests.query("SELECT sleep(3)", "TSV", {})
        except QueryRefusedError as refused:
            told.append(refused.code)

    asking = threading.Thread(target=wait)
    asking.start()
    until(lambda: bool(guests._waiting))
    first = guests.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    asking.join(90)
    assert told == [202]
    until(lambda: guests.pid != first and count(guests) == 10)


def test_it_begins_with_a_question_and_ends_when_there_are_none(writer: ConnectClickHouse, tmp_path: Path) -> None:
    rows = [tuple(map(str, row)) for row in writer.rows(OF_THE_WRITER)]
    made = GuestProcess(tmp_path / "data", rows, LIMITS, 2, idle_s=0.5)
    made.start()
    try:
        assert made.pid is None
        assert made.query("SELECT sleep(2)", "TSV", {}).body == b"0\n", "one that is answered is not idle"
        first = made.pid
        assert first is not None
        until(lambda: not Path(f"/proc/{first}").exists())
        assert count(made) == 10 and made.pid != first
    finally:
        made.close()


def test_it_inherits_no_secret(guests: GuestProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    assert count(guests) == 10
    environment = Path(f"/proc/{guests.pid}/environ").read_bytes()
    assert b"TRAINHOUSE" not in environment and b"PASSWORD" not in environment


def test_where_the_projector_runs_is_no_library_of_it(writer: ConnectClickHouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The folder of a stack holds its keys: as a library it would be open to the process.
    stack = tmp_path / "stack"
    stack.mkdir()
    (stack / "json.py").write_text("raise SystemExit('a planted module was imported')")
    monkeypatch.chdir(stack)
    made = GuestProcess(tmp_path / "data", [tuple(map(str, row)) for row in writer.rows(OF_THE_WRITER)], LIMITS, 1)
    made.start()
    try:
        assert count(made) == 10
        assert not Path(os.readlink(f"/proc/{made.pid}/cwd")).is_relative_to(tmp_path)
    finally:
        made.close()


@pytest.mark.skipif(landlock.abi() < landlock.SCOPES_SINCE_ABI, reason="Landlock of this kernel knows no ports or no scopes")
def test_an_engine_without_a_gate_can_do_nothing_there(writer: ConnectClickHouse, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    canary.write_text("secret-of-the-canary")
    (tmp_path / "scratch").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.2)
        command = [sys.executable, "-c", UNGATED, str(tmp_path / "data"), str(canary), str(listening.getsockname()[1]), str(os.getpid())]
        done = subprocess.run(command, capture_output=True, text=True, timeout=250)
        assert done.returncode == 0, done.stderr[-2000:]
        *answers, direct, last = done.stdout.splitlines()
        with pytest.raises(TimeoutError):
            listening.accept()
    assert len(answers) == 7 and all(answer.startswith("refused") for answer in answers), answers
    assert direct.split() == ["refused"] * 4
    assert last == "done 2"
    assert "secret-of-the-canary" not in done.stdout and not Path(f"{canary}.out").exists()


def test_frames_are_bounded_and_plain() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        send(ours, {"id": 1}, b"body")
        assert receive(theirs, 100) == ({"id": 1}, b"body")
        send(ours, {"id": 1}, b"x" * 101)
        with pytest.raises(FrameError, match="longer"):
            receive(theirs, 100)
    made = mirror(
        [("t", "MergeTree", "CREATE TABLE t (a Int8) ENGINE = MergeTree ORDER BY a", "/d/'x/"), ("m", "MaterializedView", "…", "")]
    )
    assert "readonly = 1" in made.tables[0] and "'/d/\\'x/'" in made.tables[0] and made.views == ()

"""Texts of the grammar against gate and engine: `python -m tests.chaos.sql_fuzz --seed 1 --texts 100000`; `make chaos` runs it.

Holds: judged by what happened, not by what was refused: the secret in an answer or an error, a new file, a changed table, a connection
to the port. `bare` asks the same texts of the sealed engine without the gate: it shows that the texts have teeth.
"""

from __future__ import annotations

import argparse
import contextlib
import secrets
import socket
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import chdb

from tests.chaos.sql_grammar import Grammar, Targets
from trainhouse.projections.endpoint.engine import Limits, ReadPool
from trainhouse.projections.errors import QueryRefusedError
from trainhouse.projections.store.clickhouse import ConnectClickHouse, connect_embedded, embedded_options

MEMORY = 1024**3
LIMITS = Limits(time_s=3.0, result_rows=100_000, result_bytes=16 * 1024**2, memory_bytes=256 * 1024**2)


@dataclass
class Tried:
    """What became of the texts: how many ended how, and what went through that must not."""

    ends: Counter[str] = field(default_factory=Counter)
    breaches: list[str] = field(default_factory=list)


@dataclass
class Range:
    """A folder with an engine and what it must not touch."""

    engine: Path
    targets: Targets
    secret: str
    writer: ConnectClickHouse
    reached: list[bytes]

    def rows(self) -> list[tuple[object, ...]]:
        """What the tables hold."""
        tables = self.writer.rows("SELECT name FROM system.tables WHERE database = 'default' ORDER BY name")
        return [*tables, *self.writer.rows("SELECT * FROM points ORDER BY step")]

    def outside(self) -> set[Path]:
        """The files beside the engine's."""
        return {p for p in self.engine.parent.rglob("*") if self.engine not in p.parents}


@contextlib.contextmanager
def shooting_range(folder: Path) -> Iterator[Range]:
    """Makes one in an empty folder."""
    secret, canary = secrets.token_hex(16), folder / "canary"
    canary.write_text(secret + "\n")
    reached: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=_count, args=(listening, reached), daemon=True).start()
        writer = connect_embedded(folder / "engine", MEMORY, 2)
        try:
            writer.command("CREATE TABLE points (step UInt64) ENGINE = MergeTree ORDER BY step")
            writer.command("INSERT INTO points SELECT number FROM numbers(3)")
            targets = Targets(str(canary), listening.getsockname()[1], str(folder / "out"))
            yield Range(folder / "engine", targets, secret, writer, reached)
        finally:
            writer.close()


def fuzz(at: Range, seed: int, texts: int) -> Tried:
    """Through the gate. Blocks."""
    tried, grammar = Tried(), Grammar(seed, at.targets)
    pool = ReadPool(at.engine, embedded_options(MEMORY, 2), LIMITS, 1)
    before, files = at.rows(), at.outside()
    for number in range(texts):
        text = grammar.text()
        try:
            answer = pool.query(text, "TSV", {"v": "x"}).body.decode("utf-8", "replace")
            tried.ends["answered"] += 1
        except QueryRefusedError as refused:
            answer = str(refused)
            tried.ends[f"refused {refused.code}"] += 1
        if at.secret in answer or at.secret[::-1] in answer or at.secret.encode().hex() in answer.lower():
            tried.breaches.append(f"read the canary: {text!r}")
        if at.reached:
            tried.breaches.append(f"reached the port: {text!r}")
            at.reached.clear()
        if number % 500 == 499 or number == texts - 1:
            if at.outside() != files:
                tried.breaches.append(f"wrote {sorted(map(str, at.outside() - files))} within 500 texts before {text!r}")
                files = at.outside()
            if at.rows() != before:
                tried.breaches.append(f"changed tables within 500 texts before {text!r}")
                before = at.rows()
    pool.close()
    return tried


def bare(at: Range, seed: int, texts: int) -> int:
    """How many of the texts read the canary on a sealed connection without the gate."""
    grammar, read = Grammar(seed, at.targets), 0
    connection = _sealed(at)
    for _ in range(texts):
        text = grammar.text()
        if any(word in text.lower() for word in ("outfile", "shutdown", "kill", ";", "http:", "127.0.0.1")):
            continue
        try:
            answer = connection.query(text, "TSV", params={"v": "x"}).bytes() or b""
            read += at.secret.encode() in answer
        except (chdb.ChdbError, RuntimeError, TypeError, UnicodeError):
            connection.close()
            connection = _sealed(at)
    connection.close()
    return read


def _sealed(at: Range) -> chdb.state.sqlitelike.Connection:
    connection = chdb.connect(f"{at.engine.resolve()}")
    for statement in LIMITS.statements():
        connection.query(statement, "TSV")
    return connection


def _count(listening: socket.socket, reached: list[bytes]) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listening.accept()
            reached.append(b"connected")
            connection.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--texts", type=int, default=100_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trainhouse-sql-") as folder, shooting_range(Path(folder)) as at:
        tried = fuzz(at, given.seed, given.texts)
    print(f"seed {given.seed}: {given.texts} texts: " + ", ".join(f"{n} {end}" for end, n in tried.ends.most_common()))
    for breach in tried.breaches:
        print("COMPLAINT:", breach)
    print(f"{len(tried.breaches)} read a file, wrote, or reached a port")
    return 1 if tried.breaches else 0


if __name__ == "__main__":
    sys.exit(main())

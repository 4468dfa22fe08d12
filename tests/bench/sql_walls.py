"""SQL through both walls against the bare engine: the same questions, the same rows, one after the other.

`walls` is a guest's question in the process of guests, over the socket; `bare` is the engine's own connection in this process, which asks
nobody. Asked are a text that was asked before, one that differs from such in a literal, and one that differs in more.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import chdb

from tests.bench import report
from trainhouse.projections.endpoint.engine import Limits
from trainhouse.projections.endpoint.guests import GuestProcess
from trainhouse.projections.endpoint.mirror import OF_THE_WRITER
from trainhouse.projections.store.clickhouse import ConnectClickHouse, connect_embedded

ROWS, TIMES, WARM = 100_000, 300, 20
LIMIT_MS = 3.0
LIMITS = Limits(time_s=20.0, result_rows=100_000, result_bytes=64 * 1024**2, memory_bytes=512 * 1024**2)
QUESTION = "SELECT job, count() AS points, avg(loss) FROM points WHERE step % 7 = {} GROUP BY job ORDER BY job LIMIT 10"


def run() -> None:
    """Prints one JSON line."""
    with tempfile.TemporaryDirectory(prefix="trainhouse-walls-") as folder:
        writer = connect_embedded(Path(folder) / "engine", 2 * 1024**3, 2)
        try:
            _fill(writer)
            rows = [tuple(map(str, row)) for row in writer.rows(OF_THE_WRITER)]
            guests = GuestProcess(Path(folder) / "engine", rows, LIMITS, 2)
            guests.start()
            try:
                _measure(Path(folder) / "engine", guests)
            finally:
                guests.close()
        finally:
            writer.close()


def _fill(writer: ConnectClickHouse) -> None:
    writer.command("CREATE TABLE points (job String, step UInt64, loss Float64) ENGINE = ReplacingMergeTree ORDER BY (job, step)")
    writer.command(f"INSERT INTO points SELECT toString(number % 100), number, 1 / (number + 1) FROM numbers({ROWS})")


def _measure(folder: Path, guests: GuestProcess) -> None:
    connection = chdb.connect(str(folder.resolve()))
    for statement in LIMITS.statements():
        connection.query(statement, "TSV")
    known = QUESTION.format(3)
    texts: dict[str, Callable[[int], str]] = {
        "known": lambda _: known,
        "other_literals": lambda n: known.replace("LIMIT 10", f"LIMIT {10 + n}"),
        "other_shape": lambda n: known.replace("AS points", f"AS points_{n}"),
    }
    ways: dict[str, Callable[[str], object]] = {
        "bare": lambda text: connection.query(text, "JSONCompact").bytes(),
        "walls": lambda text: guests.query(text, "JSONCompact", {}),
    }
    figures: dict[tuple[str, str], list[float]] = {(kind, way): [] for kind in texts for way in ways}
    # By turns, so that whatever else the machine does falls on all of them.
    for n in range(TIMES + WARM):
        for (kind, way), found in figures.items():
            text = texts[kind](n)
            began_s = time.perf_counter()
            ways[way](text)
            if n >= WARM:
                found.append((time.perf_counter() - began_s) * 1000)
    connection.close()
    p50 = {at: statistics.median(times) for at, times in figures.items()}
    p99 = {at: statistics.quantiles(times, n=100)[98] for at, times in figures.items()}
    more = {kind: round(p50[kind, "walls"] - p50[kind, "bare"], 2) for kind in texts}
    report.line(
        "sql_walls",
        questions=TIMES,
        rows=ROWS,
        p50_ms={f"{kind}, {way}": round(value, 2) for (kind, way), value in p50.items()},
        p99_ms={f"{kind}, {way}": round(value, 2) for (kind, way), value in p99.items()},
        more_p50_ms=more,
        aim_ms=LIMIT_MS,
        met={kind: value <= LIMIT_MS for kind, value in more.items()},
    )

"""The view `step_figures` and the objectives over steps, on the real engine: figures that sessions logged, of the newest attempt."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.tables.alert_tables import Tables, tables_in
from trainhouse.events import StepMetrics
from trainhouse.events.wire import topics
from trainhouse.projections.slo.targets import shipped

MINUTE_MS = 60_000
NOW_MS = 1_790_000_000_000 // MINUTE_MS * MINUTE_MS


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tables]:
    with tables_in(tmp_path_factory.mktemp("figures") / "clickhouse") as made:
        for epoch, rank, at_ms, values in (
            (1, 0, 0, {"step/total_ms": 900.0, "step/stall_ms": 0.0, "mfu": 0.1}),
            (2, 0, MINUTE_MS, {"step/total_ms": 100.0, "step/stall_ms": 4.0, "step/data_ms": 10.0, "mfu": 0.4, "tokens_per_s": 1000.0}),
            (2, 1, MINUTE_MS, {"step/total_ms": 100.0, "step/stall_ms": 2.0, "step/data_ms": 30.0, "mfu": 0.2}),
            (2, 0, 2 * MINUTE_MS, {"step/total_ms": 100.0, "step/stall_ms": 50.0, "mfu": float("nan")}),
        ):
            log(made, "a", epoch, rank, at_ms, values)
        log(made, "b", 1, 0, 0, {"step/total_ms": 10.0, "mfu": 41.0})
        log(made, "unmeasured", 1, 0, 0, {"loss": 1.0, "tokens_per_s": 5.0})
        yield made


def log(tables: Tables, job: str, epoch: int, rank: int, at_ms: int, values: dict[str, float]) -> None:
    place = {"job_id": job, "attempt": epoch - 1, "epoch": epoch, "rank": rank, "node_id": "n1", "start": at_ms, "end": at_ms + 1}
    columns: dict[str, Any] = {"steps": (at_ms,), "times_ms": (NOW_MS + at_ms,), "offsets": (at_ms,)}
    columns["metrics"] = {name: (value,) for name, value in values.items()}
    tables.put(topics.METRICS, [StepMetrics.model_validate(place | columns)], NOW_MS + at_ms)


def test_the_newest_attempts_means_over_its_ranks(tables: Tables) -> None:
    rows = tables.ask("SELECT * FROM step_figures ORDER BY job_id", {})
    assert [row["job_id"] for row in rows] == ["a", "b"]
    assert rows[0]["epoch"] == 2 and rows[0]["step_ms"] == 100 and rows[0]["data_ms"] == 20 and rows[0]["tokens_per_s"] == 1000
    assert rows[0]["save_overhead"] == pytest.approx(0.26) and rows[0]["mfu"] == pytest.approx(0.2), "rank 0's newest mfu is no number"
    assert rows[1]["mfu"] == pytest.approx(0.41) and rows[1]["stall_ms"] is None and rows[1]["save_overhead"] is None
    assert rows[0]["estimated_remaining_hours"] is None and rows[0]["gpu_utilization"] is None


@pytest.mark.parametrize(("name", "counted"), [("save-overhead", [1, 1, 0]), ("mfu", [0, 1, 1])])
def test_minutes_of_steps_are_judged(tables: Tables, name: str, counted: list[int]) -> None:
    (target,) = [t for t in shipped() if t.name == name]
    moments = (f"fromUnixTimestamp64Milli({NOW_MS - 1})", f"fromUnixTimestamp64Milli({NOW_MS + 3 * MINUTE_MS})")
    rows = tables.ask(f"SELECT toInt64(good) AS good FROM ({target.between(*moments)}) ORDER BY at, good", {})
    assert [row["good"] for row in rows] == counted

"""The ledger of device time on a real embedded engine, over its HTTP endpoint: jobs whose every second is scripted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.tables.alert_tables import Tables, tables_in
from tests.support.tables.ledger_world import HOUR_MS, IN_LEDGER, Attempt, Told, ended, ms, node, tell
from trainhouse.events.model.job import JobState
from trainhouse.events.model.pool import NodeRestricted
from trainhouse.events.wire import topics

CATEGORIES = set(IN_LEDGER.values()) | {"rework", "quarantined"}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tables]:
    with tables_in(tmp_path_factory.mktemp("ledger") / "clickhouse") as made:
        tell(made, [node("n1", 8), node("n2", 8, spot="true")])
        yield made


def ledger(tables: Tables, job_id: str, epoch: int | None = None) -> dict[str, float]:
    rows = tables.ask(
        "SELECT category, sum(g.gpu_seconds) AS s FROM gpu_seconds AS g WHERE job_id = {job:String} AND {epoch:UInt32} IN (0, epoch) "
        "GROUP BY category",
        {"job": job_id, "epoch": str(epoch or 0)},
    )
    return {row["category"]: row["s"] for row in rows}


def assert_near(found: dict[str, float], expected: dict[str, float]) -> None:
    """Each category within 2 %, the sum within 0.1 %, and nothing elsewhere."""
    total = sum(expected.values())
    assert sum(found.values()) == pytest.approx(total, rel=0.001), (found, expected)
    for category in CATEGORIES:
        wanted = expected.get(category, 0.0)
        assert found.get(category, 0.0) == pytest.approx(wanted, rel=0.02, abs=0.001 * total), (category, found, expected)


LONG = [("start", 90.0), ("data", 30.0), ("steps", 300.0), ("data", 60.0), ("save", 45.0), ("steps", 300.0), ("rest", 30.0), ("idle", 20.0)]


def test_a_scripted_job_lands_in_each_category(tables: Tables) -> None:
    attempt = Attempt("long", 1, 100.0, LONG, {"n1": 2, "n2": 1})
    tell(tables, [*attempt.told(), ended("long", attempt.end_s)])
    assert_near(ledger(tables, "long"), attempt.seconds())


def test_a_short_job_and_waits_that_alternate_with_steps(tables: Tables) -> None:
    script = [("start", 6.0), *[("data", 3.0), ("steps", 4.0)] * 6, ("save", 8.0), ("idle", 2.0)]
    attempt = Attempt("short", 1, 200.0, script)
    tell(tables, [*attempt.told(), ended("short", attempt.end_s)])
    assert_near(ledger(tables, "short"), attempt.seconds())


def test_what_is_done_again_is_rework_and_its_waits_are_waits(tables: Tables) -> None:
    """Of 100 steps the last 40 are lost: the 20 before the waits, and the 20 after them."""
    first = Attempt("again", 1, 0.0, [("start", 50.0), ("steps", 160.0), ("data", 100.0), ("steps", 40.0), ("idle", 5.0)])
    second = Attempt("again", 2, first.end_s + 10, [("start", 30.0), ("steps", 80.0)], first_step=60)
    tell(tables, [*first.told(), *second.told(), ended("again", second.end_s)])
    expected = first.seconds()
    expected["rework"], expected["stepping"] = 80.0 * 2, expected["stepping"] - 80.0 * 2
    assert_near(ledger(tables, "again", 1), expected)
    assert_near(ledger(tables, "again", 2), second.seconds())


def test_a_failed_job_without_a_checkpoint_made_nothing(tables: Tables) -> None:
    attempt = Attempt("failed", 1, 0.0, [("start", 20.0), ("steps", 100.0), ("idle", 2.0)])
    tell(tables, [*attempt.told(), ended("failed", attempt.end_s, JobState.FAILED)])
    assert_near(ledger(tables, "failed"), {"starting": 40.0, "rework": 200.0, "idle": 4.0})


@pytest.mark.parametrize("after", [[], [("steps", 100.0)]])
def test_a_hang_is_hung_until_it_is_over(tables: Tables, after: list[tuple[str, float]]) -> None:
    job_id = f"hung-{len(after)}"
    attempt = Attempt(job_id, 1, 0.0, [("start", 20.0), ("steps", 100.0), ("hang", 120.0), *after, ("idle", 10.0)])
    tell(tables, [*attempt.told(), ended(job_id, attempt.end_s)])
    assert_near(ledger(tables, job_id), attempt.seconds())


def test_without_data_it_is_unknown_never_idle(tables: Tables) -> None:
    blind = Attempt("blind", 1, 0.0, [("start", 10.0), ("steps", 90.0)], beats=False, metrics=False, exits=False)
    tell(tables, [*blind.told(), ended("blind", blind.end_s)])
    found = ledger(tables, "blind")
    assert found == pytest.approx({"starting": 0.4, "unknown": 199.6})


def test_hours_add_up_and_waits_stand_in_their_own(tables: Tables) -> None:
    script = [("start", 100.0), ("steps", 3000.0), ("data", 600.0), ("steps", 3000.0), ("save", 400.0), ("steps", 100.0)]
    attempt = Attempt("hours", 1, 3 * 3600.0, script, beat_s=2.0)
    tell(tables, [*attempt.told(), ended("hours", attempt.end_s)])
    assert_near(ledger(tables, "hours"), attempt.seconds())
    rows = tables.ask("SELECT toUnixTimestamp(hour) AS h, category, gpu_seconds AS s FROM gpu_seconds WHERE job_id = 'hours'", {})
    by_hour: dict[int, dict[str, float]] = defaultdict(dict)
    for row in rows:
        by_hour[(row["h"] * 1000 - ms(0)) // HOUR_MS][row["category"]] = row["s"]
    assert_near(by_hour[3], {"starting": 200.0, "stepping": 6000.0, "data_wait": 1000.0})
    assert_near(by_hour[4], {"stepping": 6200.0, "data_wait": 200.0, "checkpoint_stall": 800.0})


def test_devices_of_a_closed_node_that_nobody_holds_are_quarantined(tables: Tables) -> None:
    tell(tables, [node("q", 4)])
    held = Attempt("on-q", 1, 50.0, [("start", 100.0)], {"q": 3})

    def restricted(at_s: float, restriction: str) -> NodeRestricted:
        about = {"node_id": "q", "pool": "p", "restriction": restriction, "reason": "too often", "at_ms": ms(at_s)}
        return NodeRestricted.model_validate(about)

    tables.put(topics.VERDICTS, [restricted(100, "CORDONED"), restricted(120, "QUARANTINED"), restricted(400, "NONE")])
    tell(tables, [*held.told(), ended("on-q", held.end_s)])
    rows = tables.ask("SELECT job_id, sum(g.gpu_seconds) AS s FROM gpu_seconds AS g WHERE node_id = 'q' GROUP BY job_id", {})
    assert {r["job_id"]: r["s"] for r in rows} == pytest.approx({"": 4 * 300 - 3 * 50, "on-q": 300})


PARTS = st.lists(st.tuples(st.sampled_from(sorted(IN_LEDGER)), st.integers(0, 20).map(float)), min_size=1, max_size=6)
ATTEMPTS = st.lists(st.tuples(PARTS, st.tuples(*[st.booleans()] * 4), st.integers(0, 30), st.floats(0, 5000)), min_size=1, max_size=3)
JOBS = st.lists(st.tuples(ATTEMPTS, st.sampled_from(list(JobState)), st.integers(1, 2)), min_size=1, max_size=12)
_numbers = iter(range(1_000_000))


def drawn_attempts(job_id: str, drawn: list[Any], nodes: int) -> list[Attempt]:
    """Attempts one after the other, of any script, any part of which may never be told."""
    at_s, attempts = 0.0, list[Attempt]()
    for number, (script, (beats, metrics, exits, ends), first_step, pause_s) in enumerate(drawn):
        ranks = {f"n{n + 1}": n + 1 for n in range(nodes)}
        attempts.append(Attempt(job_id, number + 1, at_s, script, ranks, first_step, "p", beats, metrics, exits, ends, 3.0))
        at_s = attempts[-1].end_s + pause_s
    return attempts


@given(JOBS)
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
def test_whatever_is_told_or_not_the_sum_is_what_was_allocated(tables: Tables, drawn: list[Any]) -> None:
    told, expected, batch = list[Told](), dict[str, float](), next(_numbers)
    for number, (scripts, state, nodes) in enumerate(drawn):
        job_id = f"any-{batch}-{number}"
        attempts = drawn_attempts(job_id, scripts, nodes)
        over_s = attempts[-1].end_s
        told += [*(t for a in attempts for t in a.told()), ended(job_id, over_s, state)]
        untils = [*(a.begin_s for a in attempts[1:]), over_s]
        expected[job_id] = sum(a.devices * ((a.end_s if a.ends else until) - a.begin_s) for a, until in zip(attempts, untils, strict=True))
    tell(tables, told)
    rows = tables.ask(
        "SELECT job_id, sum(g.gpu_seconds) AS s, min(g.gpu_seconds) AS least, groupUniqArray(category) AS categories "
        "FROM gpu_seconds AS g WHERE startsWith(job_id, {batch:String}) GROUP BY job_id",
        {"batch": f"any-{batch}-"},
    )
    assert {r["job_id"]: r["s"] for r in rows} == pytest.approx({j: s for j, s in expected.items() if s}, rel=0.001, abs=0.01)
    assert all(r["least"] > 0 and set(r["categories"]) <= CATEGORIES for r in rows)

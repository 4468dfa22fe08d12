"""The report's figures on a real embedded ClickHouse: each is worked out by hand from the history in `report_world`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.tables.report_world import MONDAY, WEEK_S, Database, database, known_week, ms
from trainhouse.projections.report.device_time import device_time
from trainhouse.projections.report.loader import gather, health
from trainhouse.projections.report.model import Compared, Health
from trainhouse.projections.report.period import Period

WEEK = Period(MONDAY, ms(WEEK_S))
NOW = ms(WEEK_S)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with database(tmp_path_factory.mktemp("report") / "clickhouse") as made:
        made.fill(known_week())
        yield made


@pytest.fixture(scope="module")
def found(filled: Database) -> Compared:
    return gather(filled.ask, WEEK, NOW)


def test_a_failed_attempt_is_a_row_with_its_blame_and_its_way_back(filled: Database) -> None:
    columns = "job_id, category, rule, node_id, mine, lost_steps, next_epoch, recovered_by, recovery_s, team, world_size"
    rows = filled.ask(f"SELECT {columns} FROM failures ORDER BY failed_at", {})
    assert [tuple(r.values()) for r in rows] == [
        ("e", "NETWORK", "link-down", "n2", False, 0, 2, "STEP", 30.0, "red", 1),
        ("a", "NODE", "ecc", "n1", False, 4, 2, "STEP", 45.0, "red", 4),
        ("b", "USER_CODE", "python-exception", "", True, None, None, "", None, "blue", 2),
        ("c", "UNKNOWN", "none", "", False, None, 2, "STATUS", 30.0, "blue", 1),
    ]


def test_failures_and_times_to_recover_by_category(found: Compared) -> None:
    total = found.now.total
    assert total is not None
    assert (total.failures, total.jobs, total.recovered, total.by_status, total.lost_steps) == (3, 3, 2, 1, 4)
    assert (total.p50_s, total.p95_s, total.worst_s) == (37.5, 45.0, 45.0)
    by = {c: (r.failures, r.p50_s, r.worst_s) for c, r in found.now.by_category.items()}
    assert by == {"NODE": (1, 45.0, 45.0), "UNKNOWN": (1, 30.0, 30.0), "USER_CODE": (1, None, None)}
    assert [(r["team"], r["failures"], r["own"]) for r in found.now.by_team] == [("blue", 2, 1), ("red", 1, 0)]
    assert {(r["job_id"], r["state"]) for r in found.now.by_job} == {("a", "SUCCEEDED"), ("b", "FAILED"), ("c", "SUCCEEDED")}
    assert found.now.over_time == {(0, "NODE"): 1, (0, "UNKNOWN"): 1, (0, "USER_CODE"): 1}
    assert found.now.unjudged == 1


def test_every_second_of_device_time_has_one_cause(found: Compared) -> None:
    now = found.now
    spent = {cause: now.of(cause) for cause in ("KEPT", "REWORK", "STARTING", "DATA_WAIT", "SAVE_STALL", "ENDING", "UNMEASURED")}
    assert spent == pytest.approx(
        {
            "KEPT": 240 + 400 + 187 + 50,  # a, a again, d less its waits, h since the week began
            "REWORK": 160,  # a: steps 6 to 9
            "STARTING": 400 + 80,  # a twice; d and h began at once
            "DATA_WAIT": 22,
            "SAVE_STALL": 11,
            "ENDING": 80 + 40 + 10,
            "UNMEASURED": 200 + 105 + 100 + 20,  # b, c twice, i
        }
    )
    # Allocated: a 220 and 130 s of 4, b 100 s of 2, c 105 and 100, d 110 of 2 to its last step, h 60, i 20.
    assert now.device_s == pytest.approx(4 * 350 + 200 + 205 + 220 + 60 + 20)
    assert now.node_s == pytest.approx(now.device_s / 4)


def test_mtbf_goodput_and_waste_follow(found: Compared) -> None:
    now = found.now
    assert now.between_failures_s(infrastructure=False) == pytest.approx(2105 / 3)
    assert now.between_failures_s(infrastructure=True) == pytest.approx(2105)
    assert now.between_failures_s(infrastructure=True, nodes=True) == pytest.approx(2105 / 4)
    assert now.goodput == pytest.approx(877 / 1680)
    assert now.wasted_s == pytest.approx(1680 - 877)


def test_the_week_before_ends_where_the_week_begins(found: Compared) -> None:
    before = found.before
    assert (before.failures, before.infrastructure_failures) == (1, 1)
    # e: 10 s starting, 100 s of steps, 10 s after it, twice; h: its 50 s before Monday, all steps.
    assert before.goodput == pytest.approx((200 + 50) / (240 + 50))
    assert before.of("REWORK") == 0


def test_worst_nodes_and_checkpoints(found: Compared) -> None:
    [node] = found.now.nodes
    held = {k: node[k] for k in ("node_id", "blames", "losses", "quarantines", "probes_failed", "probes_passed", "restricted_now")}
    assert held == {"node_id": "n1", "blames": 1, "losses": 1, "quarantines": 1, "probes_failed": 1, "probes_passed": 1} | {
        "restricted_now": "NONE"
    }
    assert (node["rules"], node["newest"]) == ("NODE ecc", "self test 1 of node n1 failed: memory")
    saves = found.now.checkpoints
    assert (saves["completed"], saves["failed"], saves["restored"], saves["damaged"], saves["bytes_new"]) == (1, 1, 1, 1, 50)
    assert (saves["stage_p50_s"], saves["upload_p50_s"], saves["restore_p50_s"]) == (0.5, 2.0, 1.5)
    assert found.now.failed_saves_share == 0.5
    assert [(r["reason"], r["failed"]) for r in found.now.checkpoint_failures] == [("no space left", 1)]


def test_alerts_of_the_week_and_those_open_at_its_end(found: Compared) -> None:
    [alert] = found.now.alerts
    assert (alert["rule"], alert["severity"], alert["fired"], alert["open"]) == ("queue-lag", "WARNING", 2, 1)
    assert found.before.alerts == []


def test_pieces_add_up_and_another_pool_has_nothing(filled: Database, found: Compared) -> None:
    def spent(since_s: float, until_s: float) -> dict[str, float]:
        return {r["cause"]: r["device_s"] for r in filled.ask(*device_time(Period(ms(since_s), ms(until_s)), NOW))}

    assert spent(0, 130) == pytest.approx({"STARTING": 400, "KEPT": 4 * 30 + 50, "ENDING": 10})
    assert spent(130, 210) == pytest.approx({"KEPT": 4 * 30, "REWORK": 4 * 40, "ENDING": 4 * 10})
    assert sum(spent(210, 420).values()) == pytest.approx(4 * 140)
    elsewhere = health(filled.ask, Period(WEEK.since_ms, WEEK.until_ms, "other"), NOW)
    assert elsewhere.empty and elsewhere.goodput is None and elsewhere.between_failures_s(False) is None


def test_nothing_known_is_nothing_not_zero(found: Compared) -> None:
    blank = Health(WEEK)
    assert blank.empty
    assert (blank.goodput, blank.wasted_s, blank.between_failures_s(False), blank.failed_saves_share) == (None, None, None, None)

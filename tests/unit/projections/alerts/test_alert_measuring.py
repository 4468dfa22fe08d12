"""How well ClickHouse answers the rules' questions, put together by the minute, and as a row."""

from trainhouse.events.model.base import Event
from trainhouse.events.model.service_level import ServiceMeasured
from trainhouse.events.wire.envelope import envelope_of
from trainhouse.projections.alerts import measuring
from trainhouse.projections.alerts.measuring import EVERY_MS, LIMIT_S, Measuring
from trainhouse.projections.record import Record
from trainhouse.projections.rows import one_to_one


def test_a_minute_of_questions_is_one_measurement() -> None:
    seen = Measuring("me", 1_000)
    for took_ms in range(1, 101):
        seen.answered(took_ms * LIMIT_S / 50)  # half of them within the limit
    seen.failed()
    assert seen.due(1_000 + EVERY_MS - 1) is None
    told = seen.due(1_000 + EVERY_MS)
    assert told is not None and (told.total, told.good, told.failed) == (101, 50, 1)
    assert (told.since_ms, told.at_ms) == (1_000, 1_000 + EVERY_MS)
    assert told.p50_s == 51 * LIMIT_S / 50 and told.p99_s == told.max_s == 100 * LIMIT_S / 50
    assert seen.due(1_000 + 2 * EVERY_MS) is None  # nothing was asked: nothing is known


def test_an_endpoint_that_is_away_is_measured_too_and_questions_are_bounded() -> None:
    seen = Measuring("me", 0)
    seen.failed()
    away = seen.due(EVERY_MS)
    assert away is not None and (away.total, away.good, away.p99_s) == (1, 0, None)
    for _ in range(measuring.MOST + 5):
        seen.answered(0.001)
    many = seen.due(2 * EVERY_MS)
    assert many is not None and many.total == measuring.MOST


def test_a_measurement_is_one_row_and_other_events_are_none() -> None:
    event = ServiceMeasured(service="sql", source="me", since_ms=1_000, at_ms=61_000, total=3, good=2, failed=1, limit_s=0.1)
    record = Record("t", 0, 1, 0, None, b"")

    def rows_of(told: Event) -> list[dict[str, object]]:
        return [r.values for r in one_to_one.service_measures(envelope_of(told, id="x", source="s", now_ms=1), record)]

    (row,) = rows_of(event)
    assert (row["since"], row["at"], row["good"], row["p99_s"]) == (1_000, 61_000, 2, None) and "since_ms" not in row
    from trainhouse.events.wire.journal import ClockTicked

    assert rows_of(ClockTicked()) == []

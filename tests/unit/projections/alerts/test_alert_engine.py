"""Laws of the engine of alerts: once, after long enough, until it is gone; verdicts and lifts; and the same after a restart."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainhouse.events.model.alert import AlertEvent, AlertFired, AlertResolved
from trainhouse.events.model.ids import EventId
from trainhouse.projections.alerts import alert_case, verdict_cases
from trainhouse.projections.alerts.alert_case import event_id
from trainhouse.projections.alerts.engine import Engine
from trainhouse.projections.alerts.errors import RuleFailedError
from trainhouse.projections.alerts.rules import SqlRule, VerdictRule
from trainhouse.projections.rows.verdict_rows import COLUMNS

EVERY_MS = 30_000
HUNG, LIFTED, BLAMED = "trainhouse.gang.hung.v1", "trainhouse.verdict.lifted.v1", "trainhouse.failure.blamed.v1"
RESTRICTED = "trainhouse.decision.node-restricted.v1"


def sql_rule(**more: Any) -> SqlRule:
    about = {"name": "hot", "severity": "WARNING", "summary": "{node} is at {value:.0f}", "labels": ["node"], "when": "above", "limit": 10}
    return SqlRule.model_validate(about | {"sql": "SELECT node, value FROM t WHERE at <= {now}"} | more)


def verdict_rule(**more: Any) -> VerdictRule:
    about = {"name": "hung", "severity": "WARNING", "summary": "{job_id}: {silent}", "labels": ["job_id", "epoch"], "verdict": HUNG}
    return VerdictRule.model_validate(about | {"summary": "{job_id} hangs, {value:.0f} s"} | more)


def row(kind: str, at_ms: int, **more: Any) -> dict[str, Any]:
    blank: dict[str, Any] = dict.fromkeys(COLUMNS, "") | dict.fromkeys(("attempt", "epoch", "rank", "step", "value", "limit"))
    return blank | {"type": kind, "at": at_ms, "pool": "p"} | more


def hung(at_ms: int, job: str = "j", epoch: int = 1, **more: Any) -> dict[str, Any]:
    return row(HUNG, at_ms, job_id=job, epoch=epoch, value=9.0, limit=3.0, **more)


def lifted(at_ms: int, job: str = "j", epoch: int = 1, of: str = HUNG) -> dict[str, Any]:
    return row(LIFTED, at_ms, lifted=of, job_id=job, epoch=epoch)


def told(events: list[AlertEvent]) -> list[tuple[str, str, int]]:
    return [("fired" if isinstance(e, AlertFired) else "resolved", e.key, e.at_ms) for e in events]


def look(engine: Engine, turn: int, **values: float) -> list[tuple[str, str, int]]:
    return told(engine.rows("hot", [{"node": n, "value": v} for n, v in values.items()], turn * EVERY_MS, EVERY_MS))


def test_it_fires_once_and_resolves_once() -> None:
    engine = Engine([sql_rule()])
    assert look(engine, 1, a=11, b=3) == [("fired", "node=a", EVERY_MS)]
    assert look(engine, 2, a=12, b=3) == []
    assert look(engine, 3, a=10, b=3) == [("resolved", "node=a", 3 * EVERY_MS)]
    assert look(engine, 4, a=10) == []
    assert look(engine, 5, a=11, b=99) == [("fired", "node=a", 5 * EVERY_MS), ("fired", "node=b", 5 * EVERY_MS)]


def test_what_it_says_is_for_a_person() -> None:
    engine = Engine([sql_rule(owner="ops", runbook="r.md#hot")])
    [fired] = engine.rows("hot", [{"node": "a", "value": 11.4}], EVERY_MS, EVERY_MS)
    assert isinstance(fired, AlertFired)
    assert (fired.summary, fired.owner, fired.runbook, fired.value, fired.limit) == ("a is at 11", "ops", "r.md#hot", 11.4, 10)
    [over] = engine.rows("hot", [], 5 * EVERY_MS, 5 * EVERY_MS)
    assert isinstance(over, AlertResolved) and over.summary == "over after 2.0 min: a is at 11" and over.since_ms == fired.since_ms


def test_it_must_hold_for_so_long_without_a_break() -> None:
    engine = Engine([sql_rule(for_s=60)])
    assert [look(engine, n, a=11) for n in (1, 2)] == [[], []]
    assert look(engine, 3) == []
    assert [look(engine, n, a=11) for n in (4, 5)] == [[], []]
    assert look(engine, 6, a=11) == [("fired", "node=a", 6 * EVERY_MS)]
    assert engine.open[0].since_ms == 4 * EVERY_MS


def test_time_in_which_nobody_looked_does_not_count() -> None:
    engine = Engine([sql_rule(for_s=60)])
    assert look(engine, 1, a=11) == []
    assert look(engine, 50, a=11) == [], "it was not seen to hold in between"
    assert look(engine, 51, a=11) == []
    assert look(engine, 52, a=11) == [("fired", "node=a", 52 * EVERY_MS)]


def test_it_must_be_gone_for_so_long() -> None:
    engine = Engine([sql_rule(resolve_after_s=60)])
    look(engine, 1, a=11)
    assert [look(engine, 2), look(engine, 3), look(engine, 4, a=11), look(engine, 5), look(engine, 6)] == [[], [], [], [], []]
    assert look(engine, 7) == [("resolved", "node=a", 7 * EVERY_MS)]


def test_below_and_no_number() -> None:
    engine = Engine([sql_rule(when="below")])
    rows: list[dict[str, Any]] = [{"node": n, "value": v} for n, v in (("a", 9), ("b", 10), ("c", None), ("d", float("nan")))]
    assert told(engine.rows("hot", rows, EVERY_MS, EVERY_MS)) == [("fired", "node=a", EVERY_MS)]


@pytest.mark.parametrize("answer", [{"node": "a"}, {"value": 3}, {"node": "a", "value": "hot"}])
def test_an_answer_that_is_not_what_the_rule_promises_changes_nothing(answer: dict[str, Any]) -> None:
    engine = Engine([sql_rule()])
    look(engine, 1, a=11)
    with pytest.raises(RuleFailedError, match="hot"):
        engine.rows("hot", [answer], 2 * EVERY_MS, EVERY_MS)
    assert [fired.key for fired in engine.open] == ["node=a"]


def test_cases_are_bounded_and_those_that_are_open_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alert_case, "MAX_CASES", 3)
    engine = Engine([sql_rule()])
    look(engine, 1, y=11, z=11)
    assert look(engine, 2, a=11, b=11, y=11, z=11) == [("fired", "node=a", 2 * EVERY_MS)]
    assert len(engine.open) == 3


def test_long_labels_still_make_a_key_and_an_event_id() -> None:
    engine = Engine([sql_rule()])
    found = engine.rows("hot", [{"node": c * 600, "value": 11} for c in "ab"] + [{"node": "a" * 601, "value": 11}], 1, EVERY_MS)
    assert len({e.key for e in found}) == 3 and all(len(e.key) <= 512 for e in found)
    assert len({EventId.parse(event_id(e)) for e in found}) == 3


def test_a_verdict_fires_and_its_lift_resolves() -> None:
    engine = Engine([verdict_rule()])
    engine.on_verdict(hung(1000))
    assert told(engine.tick(1500, {})) == [("fired", "job_id=j epoch=1", 1000)]
    assert engine.open[0].summary == "j hangs, 9 s"
    engine.on_verdict(hung(3000))
    engine.on_verdict(lifted(4000, job="other"))
    engine.on_verdict(lifted(4000, of="trainhouse.rank.straggler.v1"))
    engine.on_verdict(lifted(2500))
    assert told(engine.tick(4500, {})) == [], "another's lift, and one that is older than the last verdict"
    engine.on_verdict(lifted(5000))
    assert told(engine.tick(5500, {})) == [("resolved", "job_id=j epoch=1", 5000)]
    engine.on_verdict(hung(5000))
    assert told(engine.tick(6000, {})) == [], "old news"


def test_what_was_lifted_before_anybody_looked_is_no_alert() -> None:
    engine = Engine([verdict_rule()])
    for each in (hung(1000), lifted(1200)):
        engine.on_verdict(each)
    assert engine.tick(1500, {}) == []


def test_a_verdict_ends_with_its_attempt_with_blame_and_with_time() -> None:
    engine = Engine([verdict_rule(resolve_after_s=60)])
    for epoch in (1, 2, 3):
        engine.on_verdict(hung(1000, epoch=epoch))
    assert len(engine.tick(1000, {})) == 3 and engine.attempts == {("j", 1), ("j", 2), ("j", 3)}
    engine.on_verdict(row(BLAMED, 2000, job_id="j", epoch=1, category="NODE"))
    assert told(engine.tick(3000, {("j", 2): 2500})) == [
        ("resolved", "job_id=j epoch=1", 2000),
        ("resolved", "job_id=j epoch=2", 2500),
    ]
    assert told(engine.tick(60_999, {})) == [] and engine.busy
    assert told(engine.tick(61_000, {})) == [("resolved", "job_id=j epoch=3", 61_000)] and not engine.busy


def test_cases_of_verdicts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdict_cases, "MAX_CASES", 2)
    engine = Engine([verdict_rule()])
    for job in "abca":
        engine.on_verdict(hung(1000, job))
    assert [key for _, key, _ in told(engine.tick(1000, {}))] == ["job_id=a epoch=1", "job_id=b epoch=1"] and engine.left_out == 1


def test_only_what_matches_and_what_another_verdict_ends() -> None:
    ended = {"verdict": RESTRICTED, "where": {"restriction": ["NONE"]}}
    rule = verdict_rule(
        verdict=RESTRICTED, labels=["node_id"], where={"restriction": ["QUARANTINED"]}, ended_by=[ended], summary="{node_id}"
    )
    engine = Engine([rule])
    engine.on_verdict(row(RESTRICTED, 1, node_id="a", restriction="CORDONED"))
    engine.on_verdict(row(RESTRICTED, 1, node_id="b", restriction="QUARANTINED"))
    engine.on_verdict(row(RESTRICTED, 1, node_id="c", restriction="QUARANTINED"))
    assert [key for _, key, _ in told(engine.tick(2, {}))] == ["node_id=b", "node_id=c"]
    engine.on_verdict(row(RESTRICTED, 3, node_id="c", restriction="NONE"))
    assert told(engine.tick(4, {})) == [("resolved", "node_id=c", 3)]


def test_alerts_of_rules_that_are_gone_resolve() -> None:
    before = Engine([sql_rule()])
    events = before.rows("hot", [{"node": "a", "value": 11}], EVERY_MS, EVERY_MS)
    engine = Engine([verdict_rule()])
    engine.restore(events)
    [over] = engine.retire(90_000)
    assert isinstance(over, AlertResolved) and "no more" in over.summary and engine.retire(90_001) == []


Turn = dict[str, float]
turns = st.lists(st.dictionaries(st.sampled_from("abc"), st.sampled_from([9.0, 11.0])), max_size=30)


@given(turns, st.sampled_from([0, 30, 90]), st.sampled_from([0, 60]))
def test_each_alert_begins_once_and_ends_once_in_turn(seen: list[Turn], for_s: int, resolve_after_s: int) -> None:
    engine = Engine([sql_rule(for_s=for_s, resolve_after_s=resolve_after_s)])
    events: list[AlertEvent] = []
    for n, values in enumerate(seen, 1):
        events += engine.rows("hot", [{"node": k, "value": v} for k, v in values.items()], n * EVERY_MS, EVERY_MS)
    assert len({event_id(e) for e in events}) == len(events)
    for key in {e.key for e in events}:
        facts = [isinstance(e, AlertFired) for e in events if e.key == key]
        assert facts == [n % 2 == 0 for n in range(len(facts))], "fired, resolved, fired …"
        assert (key in {fired.key for fired in engine.open}) == facts[-1]


@given(turns, st.integers(0, 30), st.sampled_from([0, 60]))
def test_a_restart_tells_nothing_twice_and_loses_no_end(seen: list[Turn], cut: int, resolve_after_s: int) -> None:
    def play(stop_at: int | None) -> list[tuple[str, str, int]]:
        engine = Engine([sql_rule(resolve_after_s=resolve_after_s)])
        topic: list[AlertEvent] = []
        for n, values in enumerate(seen, 1):
            if n == stop_at:
                engine = Engine([sql_rule(resolve_after_s=resolve_after_s)])
                engine.restore(topic)
            topic += engine.rows("hot", [{"node": k, "value": v} for k, v in values.items()], n * EVERY_MS, EVERY_MS)
        return [(kind, key, 0 if resolve_after_s else at) for kind, key, at in told(topic)]

    whole, restarted = play(None), play(cut)
    if resolve_after_s == 0:
        assert whole == restarted
    for key in {key for _, key, _ in restarted}:
        kinds = [kind for kind, k, _ in restarted if k == key]
        assert kinds == ["fired" if n % 2 == 0 else "resolved" for n in range(len(kinds))]


moves = st.lists(
    st.tuples(st.sampled_from(["hung", "lift", "blame"]), st.sampled_from("jk"), st.sampled_from([1, 2])), min_size=1, max_size=25
)


@given(moves, st.integers(0, 25))
def test_a_restart_reads_verdicts_back_and_says_the_same(made: list[tuple[str, str, int]], cut: int) -> None:
    verdicts = []
    for n, (kind, job, epoch) in enumerate(made):
        at_ms = 1000 * (n + 1)
        if kind == "hung":
            verdicts.append(hung(at_ms, job, epoch))
        else:
            verdicts.append(lifted(at_ms, job, epoch) if kind == "lift" else row(BLAMED, at_ms, job_id=job, epoch=epoch))

    def play(stop_at: int | None) -> list[str]:
        engine = Engine([verdict_rule()])
        topic: list[AlertEvent] = []
        for n, each in enumerate(verdicts):
            if n == stop_at:
                engine = Engine([verdict_rule()])
                engine.restore(topic)
                for before in verdicts[:n]:
                    engine.on_verdict(before)
            engine.on_verdict(each)
            topic += engine.tick(each["at"], {})
        return [event_id(e) for e in topic]

    assert play(None) == play(cut)

"""Budgets and burn rates as the book has them, and objectives from files."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainhouse.cli.data.objectives import shown
from trainhouse.projections.alerts.rule_files import shipped as shipped_rules
from trainhouse.projections.alerts.rules import SqlRule
from trainhouse.projections.slo.attainment import FIRST_DECISION_AT, SPANS_S, as_row, question, standing_of
from trainhouse.projections.slo.burn_rate import PAIRS, Counted, in_words
from trainhouse.projections.slo.targets import load, parse, shipped, shipped_text

MINE = """
objectives:
  - name: mttr
    title: t
    objective: 0.5
    good_means: g
    derived: d
    figure: mean
    figure_limit: 10
    sql: SELECT {now} AS at, 1 AS good, 1 AS total, 1 AS value WHERE at > {since}
"""


def test_a_budget_that_burns_at_the_limits_is_used_as_the_book_says() -> None:
    month_s = 30 * 86_400
    used = {pair.name: pair.limit * pair.long_s / month_s for pair in PAIRS}
    assert used == pytest.approx({"5m-1h": 0.02, "30m-6h": 0.05, "2h-1d": 0.10, "6h-3d": 0.10})
    assert [in_words(pair.short_s) for pair in PAIRS] == ["5m", "30m", "2h", "6h"]


def test_rates_and_budgets() -> None:
    assert Counted(9990, 10_000).burn_rate(0.999) == pytest.approx(1)
    assert Counted(9990, 10_000).budget_left(0.999) == pytest.approx(0)
    assert Counted(0, 10).burn_rate(0.99) == pytest.approx(100)
    assert Counted(98, 100).budget_left(0.99) == pytest.approx(-1)
    assert (Counted(0, 0).share, Counted(0, 0).burn_rate(0.9), Counted(0, 0).budget_left(0.9)) == (None, None, None)


@pytest.mark.parametrize(("good", "figure", "met"), [(60, 5.0, True), (40, 5.0, False), (60, 11.0, False), (0, None, None)])
def test_a_mean_must_be_met_beside_the_share(good: int, figure: float | None, met: bool | None) -> None:
    (target,) = parse(MINE)
    total = 100 if met is not None else 0
    row = {f"{word}_{span_s}": 0 for span_s in SPANS_S for word in ("good", "total")}
    told = standing_of(target, row | {"good_all": good, "total_all": total, "figure": figure, "age_s": 1e6})
    assert told.met is met
    answer = as_row(told)
    assert answer["met"] is met and set(answer["burn_rates"].values()) == {None}


def test_a_rate_of_a_pair_is_what_both_spans_reach() -> None:
    (target,) = parse(MINE)
    row = {f"{word}_{span_s}": 100 for span_s in SPANS_S for word in ("good", "total")} | {"good_300": 0, "good_3600": 90}
    told = as_row(standing_of(target, row | {"good_all": 90, "total_all": 100, "figure": 1.0, "age_s": 1e6}))
    assert told["burn_rates"]["5m-1h"] == pytest.approx(0.2) and told["burn_rates"]["30m-6h"] == 0


@pytest.mark.parametrize(
    ("age_s", "young"),
    [
        (None, ["5m-1h", "30m-6h", "2h-1d", "6h-3d"]),
        (480, ["5m-1h", "30m-6h", "2h-1d", "6h-3d"]),
        (3_599, ["5m-1h", "30m-6h", "2h-1d", "6h-3d"]),
        (3_600, ["30m-6h", "2h-1d", "6h-3d"]),
        (86_400, ["6h-3d"]),
        (259_200, []),
    ],
)
def test_a_stack_too_young_for_a_span_has_no_burn_rate_of_it(age_s: float | None, young: list[str]) -> None:
    (target,) = parse(MINE)
    row = {f"{word}_{span_s}": 10 for span_s in SPANS_S for word in ("good", "total")}
    answer = as_row(standing_of(target, row | {"good_all": 0, "total_all": 10, "figure": None, "age_s": age_s}))
    assert answer["too_young"] == young and answer["age_s"] == age_s
    assert [name for name, rate in answer["burn_rates"].items() if rate is None] == young
    assert [cell == "too young" for cell in shown(answer)[5:7]] == ["5m-1h" in young, "6h-3d" in young]


def test_own_objectives_replace_shipped_ones_by_name(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(MINE)
    loaded = {target.name: target for target in load(file)}
    assert loaded["mttr"].objective == 0.5 and set(loaded) == {target.name for target in shipped()}
    assert "{now}" not in question(loaded["mttr"]).replace("{now:DateTime64(3, 'UTC')}", "")


@pytest.mark.parametrize(
    "wrong", ["[]", "objectives: [", "objectives: 3", MINE.replace("{since}", "now64()"), MINE.replace("0.5", "1"), MINE + "    more: 1\n"]
)
def test_what_is_no_objective_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError):
        parse(wrong)


def test_a_stack_younger_than_the_long_span_burns_no_budget_of_it() -> None:
    for name, rule in shipped_rules().rules.items():
        if name.startswith("slo-burn-"):
            assert isinstance(rule, SqlRule)
            long_s = next(pair.long_s for pair in PAIRS if name.endswith(pair.name))
            guards = rule.sql.count(f"{FIRST_DECISION_AT} <= {{now}} - INTERVAL {long_s} SECOND")
            assert guards == rule.sql.count("HAVING sum(e.total)") > 0


def test_the_shipped_objectives_are_as_their_model_reads_them() -> None:
    assert shipped() == parse(shipped_text())

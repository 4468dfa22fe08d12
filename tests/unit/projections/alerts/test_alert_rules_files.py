"""Rules as files: what is shipped is whole; what is wrong is told with its line, and the others run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from trainhouse.projections.alerts import rule_files as loading
from trainhouse.projections.alerts.errors import InvalidRulesError
from trainhouse.projections.alerts.rule_files import load, parse, shipped
from trainhouse.projections.alerts.rules import SqlRule, VerdictRule
from trainhouse.projections.alerts.service import linked

RULES = shipped().rules
FOLDER = Path(loading.__file__).parent
GOOD = """
rules:
  - name: mine
    severity: INFO
    summary: "{pool} has {value:.0f} of {most}"
    labels: [pool]
    sql: SELECT pool, count() AS value FROM jobs_rows WHERE updated_at <= {now} AND priority < {most} GROUP BY pool
    parameters: {most: 5}
    when: above
    limit: 1
"""


def test_the_shipped_rules_are_those_that_were_asked_for() -> None:
    limits = {name: (rule.when.value, rule.limit) for name, rule in RULES.items() if isinstance(rule, SqlRule)}
    assert limits["device-utilization-low"] == ("below", 80)
    assert limits["pool-utilization-low"] == ("below", 60)
    assert limits["urgent-job-waits"] == ("above", 2) and RULES["urgent-job-waits"].parameters == {"priority": 50}  # type: ignore[union-attr]
    assert limits["mfu-low"] == ("below", 30)
    assert limits["sm-activity-low"] == ("below", 70)
    assert limits["checkpoint-failures"] == ("above", 1)
    assert limits["nodes-lost"] == ("above", 2)
    assert limits["job-failures"] == ("above", 5)
    assert limits["loader-throughput"] == ("below", 80)
    asked = {
        "loader-wait",
        "checkpoint-overdue",
        "queue-lag",
        "store-errors",
        "failure-rate-node",
        "failure-rate-job",
        "failure-rate-shard",
    }
    assert asked | {"cost-over-budget", "failure-rate-shard"} <= set(RULES)


@pytest.mark.parametrize("name", RULES)
def test_a_shipped_rule_names_an_owner_and_a_page_that_says_what_to_do(name: str) -> None:
    rule = RULES[name]
    page, _, anchor = rule.runbook.partition("#")
    headings = re.findall(r"^## (.+)$", (FOLDER / page).read_text(), re.MULTILINE)
    assert rule.owner and rule.labels and anchor == name and name in headings
    assert linked(rule, "https://docs.example/alerts/").runbook == f"https://docs.example/alerts/{rule.runbook}"
    assert linked(rule, "") is rule


def test_places_are_bound_with_their_types() -> None:
    [rule] = parse(GOOD)
    assert isinstance(rule, SqlRule)
    assert "updated_at <= {now:DateTime64(3, 'UTC')} AND priority < {most:Float64}" in rule.bound_sql
    assert rule.values == {"most": "5", "limit": "1.0"}


def changed(**fields: Any) -> str:
    import yaml

    content = yaml.safe_load(GOOD)
    content["rules"][0] |= fields
    return yaml.safe_dump(content, sort_keys=False)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"sql": "SELECT pool, 1 AS value FROM t WHERE at > now() AND at < {now}"}, r"calls now\(\): write \{now\}"),
        ({"sql": "SELECT pool, 1 AS value FROM t"}, "does not name {now}"),
        ({"sql": "SELECT pool, {least} AS value FROM t WHERE at < {now}"}, "{least}"),
        ({"summary": "{node} is bad"}, "{node}"),
        ({"summary": "{pool"}, "no template"),
        ({"severity": "LOUD"}, "CRITICAL"),
        ({"limits": 3}, "unknown field; the fields here are .*limit"),
        ({"name": "Not A Name"}, "pattern"),
        ({"for_s": -1}, "greater than or equal to 0"),
        ({"verdict": "trainhouse.gang.hung.v1"}, "either `sql` or `verdict`"),
    ],
)
def test_a_rule_that_cannot_be_is_refused_with_its_line(fields: dict[str, Any], problem: str) -> None:
    text = changed(**fields)
    with pytest.raises(InvalidRulesError, match=problem) as refused:
        parse(text, "own.yaml")
    [fault] = refused.value.faults
    assert fault.file == "own.yaml" and text.splitlines()[fault.line - 1].strip()
    field = next(iter(fields))
    if field in ("severity", "limits", "name", "for_s"):
        assert text.splitlines()[fault.line - 1].strip(" -").startswith(field)


@pytest.mark.parametrize(
    "fields",
    [{"verdict": "trainhouse.gang.hang.v1"}, {"labels": ["colour"]}, {"where": {"colour": ["red"]}}, {"ended_by": [{"verdict": "x"}]}],
)
def test_a_verdict_rule_knows_the_verdicts_and_their_columns(fields: dict[str, Any]) -> None:
    import yaml

    about: dict[str, Any] = {"name": "v", "severity": "INFO", "summary": "s", "verdict": "trainhouse.gang.hung.v1"}
    assert isinstance(parse(yaml.safe_dump({"rules": [about]}))[0], VerdictRule)
    with pytest.raises(InvalidRulesError, match="there are"):
        parse(yaml.safe_dump({"rules": [about | fields]}))


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("rules:\n  - name: [\n", "own.yaml:3"),
        ("- name: x\n", "own.yaml:1"),
        ("rules: []\nrulez: []\n", "own.yaml:2: rulez"),
        ("rules: 5\n", "own.yaml:1"),
        ("change: {}\nrules:\n  - 5\n", "own.yaml:3"),
        ("rules: []\nrules: []\n", "stands twice"),
        (GOOD + GOOD.replace("\nrules:", ""), "two rules"),
    ],
)
def test_a_file_that_is_none_is_told_with_its_line(text: str, place: str) -> None:
    with pytest.raises(InvalidRulesError, match=re.escape(place)):
        parse(text, "own.yaml")


def test_rules_of_ones_own_replace_change_and_stand_beside(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(GOOD + "  - name: broken\n    severity: INFO\n    sql: SELECT now()\n")
    (tmp_path / "b.yaml").write_text(
        GOOD.replace("name: mine", "name: nodes-lost")
        + "change:\n  cost-over-budget: {limit: 900, parameters: {price_per_device_hour: 4}}\n  straggler: {enabled: false}\n"
        + "  no-such-rule: {limit: 1}\n  mfu-low: {limit: high}\n"
    )
    loaded = load(tmp_path)
    assert len(loaded.rules) == len(RULES) + 1 and loaded.rules["nodes-lost"].severity == "INFO"
    cost = loaded.rules["cost-over-budget"]
    assert isinstance(cost, SqlRule) and (cost.limit, cost.values["price_per_device_hour"]) == (900, "4")
    assert "straggler" not in {rule.name for rule in loaded.enabled} and loaded.rules["mfu-low"] == RULES["mfu-low"]
    told = sorted(str(fault) for fault in loaded.faults)
    assert any("a.yaml:11: broken" in t for t in told) and any("b.yaml" in t and "no-such-rule: is no rule" in t for t in told)
    assert any("b.yaml:15: mfu-low.limit" in t for t in told)


def test_a_file_that_is_not_there_leaves_the_shipped_rules(tmp_path: Path) -> None:
    loaded = load(tmp_path / "none.yaml")
    assert set(loaded.rules) == set(RULES) and "no such file" in str(loaded.faults[0])


def test_files_and_rules_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "MAX_BYTES", 10)
    (tmp_path / "big.yaml").write_text(GOOD)
    assert "more than 10 bytes" in str(load(tmp_path).faults[0])
    monkeypatch.setattr(loading, "MAX_BYTES", 10_000)
    monkeypatch.setattr(loading, "MAX_RULES", len(RULES))
    assert "rules already" in str(load(tmp_path).faults[0])

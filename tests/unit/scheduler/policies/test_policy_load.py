"""Policy files: those of Trainhouse are valid; any fault is told with file, line and field."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from trainhouse.events.model.policy import Blocking, Order, Packing, RunTimes, SchedulingPolicy
from trainhouse.scheduler.core.queue.policy_check import check_against
from trainhouse.scheduler.policies import PolicyError, line_of, load, names, parse, refusal

TEAMS = """\
name: ours
order: submit
teams:
  - name: research
    parent: vision
  - name: vision
    parent: research
"""


@pytest.mark.parametrize("name", names())
def test_a_policy_of_trainhouse_is_valid_and_has_its_own_name(name: str) -> None:
    assert load(name).name == name


def test_the_published_rule_is_what_its_file_says() -> None:
    policy = load("strict-consolidate")
    assert (policy.order, policy.blocking, policy.packing) == (Order.SUBMIT, Blocking.STRICT, Packing.STRICT_CONSOLIDATE)
    assert policy.run_times is RunTimes.TRUE
    assert not policy.elastic.enabled and not policy.preemption.enabled and not policy.defragmentation.enabled
    assert load("strict-consolidate-shortest") == policy.model_copy(update={"name": "strict-consolidate-shortest", "order": Order.SHORTEST})


def faults(text: str) -> list[tuple[int, str, str]]:
    with pytest.raises(PolicyError) as caught:
        parse(text, "p.yaml")
    assert all(f"p.yaml:{f.line}: {f.field}: {f.problem}" in str(caught.value) for f in caught.value.faults)
    return [(f.line, f.field, f.problem) for f in caught.value.faults]


@pytest.mark.parametrize(
    ("text", "line", "field", "problem"),
    [
        ("order: submit\nblokcing: strict\n", 2, "blokcing", "did you mean blocking?"),
        ("score:\n\n  wait_bonus: 3\n", 3, "score.wait_bonus", "did you mean wait_bonus_max?"),
        ("teams:\n- name: a\n  size: 3\n", 3, "teams[0].size", "the fields here are guaranteed, lends, limit, name, parent, weight"),
        ("order: submit\nbackfill:\n  reservations: many\n", 3, "backfill.reservations", "not 'many'"),
        ("order: latest\n", 1, "order", "not 'latest'"),
        ("teams:\n- name: a\n- name: b\n  weight: -1\n", 4, "teams[1].weight", "greater than 0, not -1"),
        ("teams:\n- name: b\n  weight: .nan\n", 3, "teams[0].weight", "not nan"),
        ("teams:\n- name: a\n  guaranteed:\n    any: 1\n    h100: -3\n", 5, "teams[0].guaranteed.h100", "not -3"),
        ("teams:\n- weight: 2\n", 2, "teams[0].name", "field required"),
        ("teams:\n- name: a\n- name: b\n- name: a\n", 4, "teams[2].name", "a is named twice"),
        ("teams:\n- name: a\n  parent: x\n", 3, "teams[0].parent", "x of a is no team"),
        ("teams:\n- name: a\n  guaranteed: {any: 4}\n  limit: {any: 2}\n", 2, "teams[0]", "raise the limit"),
        ("prices:\n  currency: dollars\n  devices: {any: {reserved: 2}}\n", 2, "prices.currency", "not 'dollars'"),
        ("prices:\n  devices:\n    h100: {reserved: -2.4}\n", 3, "prices.devices.h100.reserved", "not -2.4"),
        ("order: submit\nname: x\norder: fair\n", 3, "order", "stands twice (first in line 1)"),
        ("score:\n  wait_bonus_max: 1\n  wait_bonus_max: 2\n", 3, "wait_bonus_max", "stands twice"),
        ("order: submit\nteams: [\n", 3, "policy", "no YAML"),
        ("order: submit\nteams: &t []\nname: *t\n", 3, "policy", "aliases"),
        ("- 1\n", 1, "policy", "fields with values"),
        ("", 1, "policy", "fields with values"),
        ("name: !!python/object:os.system x\n", 1, "policy", "no YAML"),
        ("name: \x00\n", 1, "policy", "no YAML"),
        ("name: 2026-99-99\n", 1, "policy", "no YAML"),
        ("name: &a [1]\n? {b: 1}\n: 2\n", 2, "policy", "no YAML"),
        ("teams: " + "[" * 2000 + "]" * 2000, 1, "policy", "nested more than 32 levels deep"),
    ],
)
def test_a_fault_is_told_with_its_line_and_field(text: str, line: int, field: str, problem: str) -> None:
    (fault,) = faults(text)
    assert fault[:2] == (line, field)
    assert problem in fault[2]


LINES = st.sampled_from(
    ["order: fair", "teams:", "- name: a", "  weight: 1e400", "  parent: a", "score: {}", "score:", "  x: [", "? [a]", "run_times: true"]
)


@given(st.lists(LINES | st.text(max_size=20), max_size=8).map("\n".join))
def test_any_text_is_a_policy_or_refused_with_lines(text: str) -> None:
    try:
        policy = parse(text)
    except PolicyError as error:
        assert error.faults
        assert all(1 <= f.line <= text.count("\n") + text.count("\r") + len(text.splitlines()) + 1 for f in error.faults)
    else:
        assert parse(yaml.safe_dump(policy.model_dump(mode="json"))) == policy


def test_a_cycle_in_the_tree_is_told_at_a_team_of_it() -> None:
    (fault,) = faults(TEAMS)
    assert fault == (5, "teams[0].parent", "research -> vision -> research is a cycle; a team cannot be below itself")


def test_a_long_cycle_and_a_deep_tree_are_refused() -> None:
    ring = "teams:\n" + "".join(f"- {{name: t{n}, parent: t{(n + 1) % 500}}}\n" for n in range(500))
    assert "is a cycle" in faults(ring)[0][2]
    deep = "teams:\n- {name: t0}\n" + "".join(f"- {{name: t{n}, parent: t{n - 1}}}\n" for n in range(1, 20))
    assert faults(deep) == [(18, "teams[16].parent", "t16 is 17 levels deep, at most 16 are allowed; make the tree flatter")]


def test_all_faults_are_told_at_once_in_order_of_lines() -> None:
    found = faults("order: x\nteams:\n- name: a\n  weight: -1\nbackfill: {reservations: 0}\n")
    assert [f[:2] for f in found] == [(1, "order"), (4, "teams[0].weight"), (5, "backfill.reservations")]


def test_an_unknown_name_and_an_absent_file_are_told(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"^fiffo: policy: no file, and no policy of Trainhouse; those are backfill, fair, fifo"):
        load("fiffo")
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "no.yaml")
    large = tmp_path / "large.yaml"
    large.write_text("#" * 100_001)
    with pytest.raises(PolicyError, match="more than 100000 bytes"):
        load(large)
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"name: x\n# \xe4\n")
    with pytest.raises(PolicyError, match=r"latin\.yaml:2: policy: not UTF-8"):
        load(str(latin))


def test_what_a_fleet_cannot_obey_is_told_with_the_line() -> None:
    text = "teams:\n- name: a\n  limit:\n    any: 9\n    h800: 4\ntopology:\n  prefer: row\n"
    policy = parse(text)
    found = check_against(policy, {"h100", "a100"}, {"rack"})
    assert [f.path for f in found] == ["teams[0].limit.h800", "topology.prefer"]
    assert found[0].text(line_of(text, found[0].field)) == (
        "line 5: teams[0].limit.h800: no node of this pool has a device of type h800; it has a100, h100"
    )
    error = refusal("p.yaml", text, found)
    assert str(error).splitlines()[1] == "p.yaml:7: topology.prefer: no node of this pool tells a topology level row; they tell node, rack"
    assert check_against(policy, {"h800"}, {"row"}) == ()
    assert check_against(policy, set(), set()) == (), "a pool without nodes cannot judge"
    assert check_against(SchedulingPolicy(), {"h100"}, set()) == ()


def test_lines_of_what_is_not_there_are_near_it() -> None:
    text = "order: submit\nteams:\n- name: a\n"
    assert line_of(text, ("teams", 0, "weight")) == 3
    assert line_of(text, ("teams", 7)) == 2
    assert line_of("a: [", ("a",)) is None

"""Turns of projects: much of one keeps no other waiting, and the order of what came stays."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from trainhouse.events.runtime.turns import in_turn


def turns(projects: Sequence[str]) -> list[tuple[str, int]]:
    """Numbered items of these projects, in turn."""
    return in_turn([(project, n) for n, project in enumerate(projects)], lambda each: each[0])


def test_projects_take_turns_in_their_order() -> None:
    assert [n for _, n in turns("aaabac")] == [0, 3, 5, 1, 2, 4]
    assert turns("aaaabab") == [("a", 0), ("b", 4), ("a", 1), ("b", 6), ("a", 2), ("a", 3), ("a", 5)]


@given(st.lists(st.sampled_from("abc"), max_size=20))
def test_no_project_waits_for_more_than_one_item_of_each_other(projects: list[str]) -> None:
    found = turns(projects)
    assert sorted(found, key=lambda each: each[1]) == list(zip(projects, range(len(projects)), strict=True))
    for place, (project, n) in enumerate(found):
        before = [each for each, _ in found[:place]]
        assert all(before.count(other) <= before.count(project) + 1 for other in set(projects))
        assert [m for other, m in found[:place] if other == project and m > n] == []

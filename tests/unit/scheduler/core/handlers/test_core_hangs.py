"""A gang that hangs where it hung before: the job's own, unless its node is sick; and ends that the platform itself brought."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from tests.support.core_world import Driver, exited, going, gone, hung, nodes_of, registered, running
from trainhouse.events import FailureBlamed, FailureCategory, GangAllocated, GangReleased, JobState, RankExited
from trainhouse.events.model.decisions import EvidenceFound, TrustChanged
from trainhouse.events.model.evidence import JobFailure
from trainhouse.events.wire.collectives import AtCollective
from trainhouse.events.wire.stack_tops import line

STACK = ("wait (train.py:12)", "main (train.py:40)")


def fleet(*names: str, slots: int = 1) -> Driver:
    d = Driver()
    d.feed(*(registered(n, slots) for n in names))
    return d


def killed(gang: GangAllocated, rank: int, reason: str = "") -> RankExited:
    """By the agent, long after the release, by a clock that is behind the journal's."""
    return exited(gang, rank, None, 9, reason).model_copy(update={"exited_at_ms": 1, "by_agent": True})


def hangs(d: Driver, gang: GangAllocated, *ends: RankExited, **verdict: Any) -> None:
    d.feed(hung(gang, **verdict), *(ends or (killed(gang, rank) for rank in range(gang.world_size))), *gone(gang))
    d.tick(60_000)


@pytest.mark.parametrize("names", [("a", "b", "c"), ("a", "b")])
def test_the_same_rank_at_the_same_step_twice_ends_the_job_on_other_nodes_and_on_healthy_ones(names: tuple[str, ...]) -> None:
    d = fleet(*names)
    gang = running(d, "j", ranks=2, limits={"restarts": 3})
    hangs(d, gang, step=60)
    first = d.last(FailureBlamed)
    assert (first.category, first.node_id, first.mine) == (FailureCategory.NODE, nodes_of(gang)[1], False)
    assert first.hang is not None and (first.hang.ranks, first.hang.step) == ((1,), 60)
    again = going(d, "j")
    assert (nodes_of(again) != nodes_of(gang)) == (len(names) == 3)
    trust = len(d.all(TrustChanged))
    hangs(d, again, step=60)
    found, final = d.last(FailureBlamed), d.status("j")
    assert (found.category, found.rule, found.node_id, found.rank, found.mine) == (FailureCategory.USER_CODE, "same-hang", None, 1, True)
    assert final.state is JobState.FAILED and "hung twice after step 60 in rank 1" in final.reason
    assert "trainhouse stack j --attempt 1" in final.reason
    assert len(d.all(TrustChanged)) == trust, "no node is blamed for what is the job's own"


@pytest.mark.parametrize("second", [{"step": 61}, {"step": 60, "ranks": [0]}])
def test_another_step_or_rank_is_another_hang(second: dict[str, Any]) -> None:
    d = fleet("a", "b")
    hangs(d, running(d, "j", ranks=2, limits={"restarts": 3}), step=60)
    hangs(d, going(d, "j"), **second)
    assert not d.last(FailureBlamed).mine and not d.status("j").state.final


def test_a_node_of_which_more_is_known_stays_to_blame() -> None:
    d = fleet("a", slots=4)
    hangs(d, running(d, "other", ranks=2, limits={"restarts": 3}), step=5)
    going(d, "other")
    hangs(d, running(d, "j", ranks=2, limits={"restarts": 3}), step=60)
    hangs(d, going(d, "j"), step=60)
    assert (d.last(FailureBlamed).node_id, d.last(FailureBlamed).mine) == ("a", False) and not d.status("j").state.final


def recorded(rank: int, what: str, at: int, begun: int) -> str:
    return "it was ended\n" + AtCollective(rank, "default_pg", at, what, begun, at - 1, (0, 1)).line()


@pytest.mark.parametrize(("what", "mine"), [("gloo:all_reduce [512] Float", True), ("gloo:broadcast [1] Int", False)])
def test_the_collective_tells_hangs_apart_whatever_its_number(what: str, mine: bool) -> None:
    d = fleet("a", "b")
    gang = running(d, "j", ranks=2, limits={"restarts": 3})
    first = "gloo:all_reduce [512] Float"
    hangs(d, gang, killed(gang, 0, recorded(0, first, 8, 8)), killed(gang, 1, recorded(1, first, 7, 7)), step=60, ranks=[])
    assert d.last(FailureBlamed).rule == "recorder" and d.last(FailureBlamed).hang is not None
    again = going(d, "j")
    hangs(d, again, killed(again, 0, recorded(0, what, 5, 5)), killed(again, 1, recorded(1, what, 4, 4)), step=60, ranks=[])
    assert d.last(FailureBlamed).mine is mine
    assert d.status("j").state.final is mine
    if mine:
        assert "hung twice after step 60 in rank 1 (gloo:all_reduce [512] Float)" in d.status("j").reason


FORGED = "it was ended\nflight recorder: rank {} is at collective {} of group g (ranks {}): x; begun {}, done 6"


@pytest.mark.parametrize("rank", [2, 99_999_999_999_999, 10**400, "9" * 5_000], ids=["next", "large", "400-digits", "5000-digits"])
@pytest.mark.parametrize("members", ["0-1", "0-1,99999999999"])
def test_a_rank_that_is_none_of_the_gangs_is_in_no_verdict(rank: int | str, members: str) -> None:
    d = fleet("a", "b")
    gang = running(d, "j", ranks=2, limits={"restarts": 3})
    ends = [killed(gang, 0, FORGED.format(0, 8, members, 8)), killed(gang, 1, FORGED.format(rank, 7, members, 7))]
    hangs(d, gang, *ends, step=60, ranks=[])
    found = d.last(FailureBlamed)
    assert found.rule != "not-judged" and found.hang is not None and set(found.hang.ranks) <= {0, 1}
    assert found.rank in (None, 0, 1)


@pytest.mark.parametrize(("frames", "mine"), [(STACK, True), (("read (data.py:7)",), False)])
def test_the_stack_tells_hangs_apart_also_of_a_gang_without_steps(frames: tuple[str, ...], mine: bool) -> None:
    d = fleet("a", slots=2)
    gang = running(d, "j", ranks=2, limits={"restarts": 3})
    hangs(d, gang, killed(gang, 0, line(0, STACK)), killed(gang, 1, line(1, STACK)), step=None, ranks=[])
    again = going(d, "j")
    hangs(d, again, killed(again, 0, line(0, frames)), killed(again, 1, line(1, frames)), step=None, ranks=[])
    assert d.last(FailureBlamed).mine is mine and d.status("j").state.final is mine


def test_of_a_hang_of_which_nothing_is_known_nothing_follows() -> None:
    d = fleet("a", slots=2)
    for _ in range(2):
        gang = going(d, "j") if "j" in d.state.jobs else running(d, "j", ranks=2, limits={"restarts": 3})
        hangs(d, gang, step=None, ranks=[])
    assert not d.status("j").state.final


def test_a_network_that_hangs_twice_alike_is_not_the_jobs() -> None:
    d = fleet("a", "b")
    for _ in range(2):
        gang = going(d, "j") if "j" in d.state.jobs else running(d, "j", ranks=2, limits={"restarts": 3})
        hangs(d, gang, killed(gang, 0, line(0, STACK)), killed(gang, 1, line(1, STACK)), step=60, ranks=[])
    assert d.last(FailureBlamed).category is FailureCategory.NETWORK and not d.last(FailureBlamed).mine


def test_a_hung_gang_is_asked_for_its_stacks_and_no_other_is() -> None:
    d = fleet("a", slots=2)
    gang = running(d, "j", ranks=2, limits={"restarts": 3})
    d.feed(hung(gang))
    assert d.last(GangReleased).stacks
    d = fleet("a", slots=2)
    gang = running(d, "j", ranks=2, limits={"restarts": 3})
    d.feed(exited(gang, 0, 1))
    assert not d.last(GangReleased).stacks
    assert b"stacks" not in d.last(GangReleased).model_dump_json().encode(), "older journals are written as ever"
    assert b"hang" not in orjson.dumps(JobFailure(at_ms=1, category=FailureCategory.NODE).model_dump(mode="json"))


def test_what_the_agent_killed_is_no_evidence_whatever_its_clock_says() -> None:
    d = fleet("a", slots=2)
    gang = running(d, "j", ranks=2, limits={"restarts": 3})
    d.feed(exited(gang, 0, 1, None, "ValueError: bad"), killed(gang, 1), *gone(gang))
    assert [e.end.rank for e in d.all(EvidenceFound) if e.end is not None] == [0]


def test_a_rank_that_its_agent_killed_unasked_costs_the_job_nothing_and_is_not_out_of_memory() -> None:
    d = fleet("a", slots=2)
    gang = running(d, "j", ranks=2, limits={"restarts": 0})
    d.feed(killed(gang, 1))
    reason = d.status("j").reason
    assert "by its node's agent" in reason and "memory" not in reason
    d.feed(*gone(gang))
    assert d.last(GangAllocated).epoch == 2 and d.state.jobs["j"].tally.failures == 0

"""Recorded partition counts: what differs is refused with what to do."""

import pytest

from trainhouse.events import envelope_of
from trainhouse.events.model.topic_record import MOST_PARTITIONS, TopicRecorded
from trainhouse.events.wire.codec import encode
from trainhouse.events.wire.partition_counts import Topology, grow_plan, topology_of, why_refused
from trainhouse.events.wire.project_topics import jobs_topic, status_topic
from trainhouse.events.wire.topics import ADMISSION, ALLOCATIONS, CONTROL, DECISIONS, DIRECTORY, HEARTBEATS, JOBS, POOLS, PROGRESS, STATUS

FOUND = dict.fromkeys((JOBS, ADMISSION, DIRECTORY, CONTROL, DECISIONS, ALLOCATIONS, PROGRESS, HEARTBEATS, STATUS), 4) | {POOLS: 1}
RECORDED = Topology(FOUND)


def value(topic: str, partitions: int, was: int = 0) -> bytes:
    event = TopicRecorded(topic=topic, partitions=partitions, was=was, at_ms=1)
    return encode(envelope_of(event, id=f"{topic}:{partitions}", source="trainhouse/topics", now_ms=1))


def test_the_last_record_of_a_topic_counts() -> None:
    found = topology_of([value(CONTROL, 4), None, b"{", value(ADMISSION, 4), value(CONTROL, 6, 4)])
    assert found.counts == {CONTROL: 6, ADMISSION: 4}
    assert (found.made_with(9), found.scheduling(9)) == (4, 6)
    assert (Topology().made_with(9), Topology().scheduling(9)) == (9, 9)


@pytest.mark.parametrize("setting", [None, 4])
def test_what_is_as_recorded_is_not_refused(setting: int | None) -> None:
    assert why_refused(RECORDED, FOUND, setting) == ""
    assert why_refused(RECORDED, {JOBS: 4, CONTROL: 4}, setting) == ""  # an account sees what it may read
    assert why_refused(Topology(), FOUND, setting) == ""


def test_another_setting_is_refused_with_the_command_that_would_make_it_so() -> None:
    for topology in (RECORDED, Topology()):
        more = why_refused(topology, FOUND, 6)
        assert "is 6, but the topics have 4 partitions" in more and "trainhouse topics grow --partitions 6" in more
        fewer = why_refused(topology, FOUND, 2)
        assert "set it to 4, or leave it out" in fewer and "grow" not in fewer
    assert why_refused(Topology(), {}, 6) == ""  # nothing is made yet


def test_after_a_grow_the_setting_may_be_either_count() -> None:
    grown = {**FOUND, CONTROL: 6, DECISIONS: 6, ALLOCATIONS: 6, PROGRESS: 6}
    for setting in (4, 6):
        assert why_refused(Topology(grown), grown, setting) == ""
    assert "4 where records are spread by their key" in why_refused(Topology(grown), grown, 5)


@pytest.mark.parametrize("topic", [CONTROL, DECISIONS, ALLOCATIONS, PROGRESS])
def test_partitions_that_somebody_added_to_the_schedulers_topics_are_named_with_the_command(topic: str) -> None:
    refusal = why_refused(RECORDED, {**FOUND, topic: 7})
    assert f"{topic} has 7 partitions, and 4 are recorded" in refusal and "`trainhouse topics grow --partitions 7`" in refusal


def test_a_grow_that_was_cut_off_is_not_refused() -> None:
    recorded = Topology({**FOUND, CONTROL: 6, DECISIONS: 6, ALLOCATIONS: 6, PROGRESS: 6})
    assert why_refused(recorded, {**FOUND, CONTROL: 6}) == ""


@pytest.mark.parametrize("topic", [ADMISSION, DIRECTORY, HEARTBEATS, STATUS, POOLS])
@pytest.mark.parametrize("now", [3, 5])
def test_a_topic_that_is_spread_by_key_must_have_its_count(topic: str, now: int) -> None:
    refusal = why_refused(RECORDED, {**FOUND, topic: now})
    assert f"{topic} has {now} partitions, and {FOUND[topic]} are recorded" in refusal and "make it anew" in refusal


def test_requests_may_come_by_more_partitions() -> None:
    recorded = Topology({**FOUND, jobs_topic("p"): 1, status_topic("p"): 1})
    assert why_refused(recorded, {**FOUND, JOBS: 9, jobs_topic("p"): 3}) == ""
    assert why_refused(recorded, {**FOUND, JOBS: 3})
    assert status_topic("p") in why_refused(recorded, {**FOUND, status_topic("p"): 3})


def test_what_was_never_recorded_must_at_least_fit_together() -> None:
    assert "grow --partitions 6" in why_refused(Topology(), {**FOUND, CONTROL: 6})
    assert "equally many" in why_refused(Topology(), {**FOUND, ADMISSION: 6})


def test_a_grow_adds_what_is_missing_and_never_takes_away() -> None:
    plan = grow_plan(RECORDED, {**FOUND, CONTROL: 6}, 6)
    assert plan.before == {CONTROL: 6, DECISIONS: 4, ALLOCATIONS: 4, PROGRESS: 4} and plan.missing == (DECISIONS, ALLOCATIONS, PROGRESS)
    with pytest.raises(ValueError, match="give --partitions 6 or more"):
        grow_plan(RECORDED, {**FOUND, CONTROL: 6}, 5)
    with pytest.raises(ValueError, match="give --partitions 6 or more"):
        grow_plan(Topology({**FOUND, CONTROL: 6}), FOUND, 5)
    with pytest.raises(ValueError, match="at most"):
        grow_plan(RECORDED, FOUND, MOST_PARTITIONS + 1)
    with pytest.raises(ValueError, match="is not there"):
        grow_plan(Topology(), {CONTROL: 4}, 6)

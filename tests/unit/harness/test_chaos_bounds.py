"""The judge of bounds can complain, requests of each moment are known, and what an outsider may send is no order to the campaign's own."""

from __future__ import annotations

import orjson
import pytest

from tests.chaos import judge_bounds, judge_journal, outsiders, refusals
from tests.chaos.evidence import Evidence
from tests.chaos.faults import HELD_S, WAYS, Kind, mixed, plan
from tests.chaos.outsiders import Sent, may_be_sent
from tests.chaos.passage import NAMED, is_of
from tests.support.extremes import drawn, records
from trainhouse.events.wire import topics
from trainhouse.events.wire.topic_types import TOPIC_EVENTS

SPEC = {"runtime": {"command": ["true"]}}


def test_what_was_sent_must_be_answered() -> None:
    junk, request, report = Sent(topics.JOBS, 0, 4, False), Sent(topics.JOBS, 1, 7, True, "e7"), Sent(topics.CONTROL, 0, 3, False)
    good = Evidence(letters={(topics.JOBS, 0, 4), (topics.CONTROL, 0, 3)}, admitted={"e7"})
    assert not list(judge_bounds.answered(good, [junk, request, report, Sent(topics.LOGS, 0, 1, False)]))
    told = list(judge_bounds.answered(Evidence(), [junk, request, report]))
    assert len(told) == 3 and "is no dead letter" in told[0] and "(e7) was not answered" in told[1]
    assert not list(judge_bounds.answered(Evidence(letters={(topics.JOBS, 1, 7)}), [request])), "refused with its reason"


def test_sql_must_show_what_cannot_be_read() -> None:
    junk = Sent(topics.LOGS, 0, 1, False)
    assert not list(judge_bounds.shown({(topics.LOGS, 0, 1)}, [junk, Sent(topics.LOGS, 0, 2, True)], {topics.LOGS}))
    assert not list(judge_bounds.shown(set(), [junk], {topics.JOBS})), "nobody projects it"
    assert "SQL has no dead letter" in next(iter(judge_bounds.shown(set(), [junk], {topics.LOGS})))


def test_a_partition_that_decides_nothing_at_the_end_is_seen() -> None:
    before = {(topics.DECISIONS, 0): 5, (topics.DECISIONS, 1): 0, (topics.DIRECTORY, 0): 2}
    good = Evidence(decided={(topics.DECISIONS, 0): 5, (topics.DECISIONS, 1): 3, (topics.DIRECTORY, 0): 2})
    assert not list(judge_bounds.every_partition_decides(good, before))
    good.decided[topics.DECISIONS, 0] = 4
    del good.decided[topics.DIRECTORY, 0]
    told = list(judge_bounds.every_partition_decides(good, before))
    assert [text.split()[0] for text in told] == [f"{topics.DECISIONS}-0", f"{topics.DIRECTORY}-0"]


def test_journals_that_grow_and_processes_that_take_too_much_are_seen() -> None:
    assert not list(judge_bounds.bounded(10**8, {"intake": 100 * judge_bounds.MIB, "projector": 2_000 * judge_bounds.MIB}))
    told = list(judge_bounds.bounded(3 * 1024**3, {"intake": 2_000 * judge_bounds.MIB}))
    assert told == ["the journals grow by 3.0 GiB a day", "intake had 2000 MiB in memory, at most 768 are allowed"]


def test_inputs_of_outsiders_are_inputs() -> None:
    value = {"seq": 1, "previous_hash": "", "inputs": [{"offset": 0, "raw": ""}], "decisions": []}
    evidence = Evidence(foreign=[(topics.CONTROL, 0, 0), (topics.JOBS, 0, 1)], journal={0: [orjson.dumps(value)]})
    assert not list(judge_journal.inputs_once(evidence))
    evidence.foreign.append((topics.CONTROL, 0, 1))
    assert "1 inputs were never taken" in next(iter(judge_journal.inputs_once(evidence)))


def request(kind: int, *parts: bytes) -> bytes:
    body = kind.to_bytes(2, "big") + (9).to_bytes(2, "big") + b"\0\0\0\1\0\3abc" + b"".join(parts)
    return len(body).to_bytes(4, "big") + body


@pytest.mark.parametrize("compact", [False, True])
def test_requests_are_of_their_moments(compact: bool) -> None:
    def named(name: str) -> bytes:
        return (bytes([len(name) + 1]) if compact else len(name).to_bytes(2, "big")) + name.encode()

    found = {
        topic: {moment for moment in NAMED if is_of(request(0, b"\0\1", named(topic), b"records"), moment)}
        for topic in (topics.DECISIONS, topics.DIRECTORY, topics.STATUS, topics.SNAPSHOTS, topics.HEARTBEATS, f"{topics.STATUS}.lm")
    }
    assert found == {
        topics.DECISIONS: {"append"},
        topics.DIRECTORY: {"append"},
        topics.STATUS: {"publish"},
        topics.SNAPSHOTS: {"pointer"},
        topics.HEARTBEATS: set(),
        f"{topics.STATUS}.lm": set(),
    }
    assert not is_of(request(1, named(topics.DECISIONS)), "append"), "a fetch"
    assert is_of(request(26, named(f"{topics.DECISIONS}-3")), "commit") and not is_of(request(26, named("alerts")), "commit")
    assert not is_of(b"", "append") and not is_of(b"\0\0", "commit")


def test_a_plan_has_every_way_of_a_kind_before_any_again() -> None:
    faults = [fault for run in plan(3, mixed(3, 400), 300, 40) for fault in run]
    for (kind, target), ways in WAYS.items():
        found = [fault.way for fault in faults if (fault.kind, fault.target) == (kind, target)]
        counts = {way: found.count(way) for way in ways}
        assert sum(counts.values()) == len(found) and max(counts.values()) - min(counts.values()) <= 1, counts
    assert {fault.lasts_s for fault in faults if fault.kind is Kind.HOLD} == {HELD_S}
    blinding = {fault.way: fault.blinds for fault in faults if fault.kind is Kind.REFUSE}
    assert {way for way, blinds in blinding.items() if not blinds} == {way for way in refusals.WAYS if way.startswith("reports")}


def test_every_topic_is_one_of_the_platforms_or_open_to_others_and_journals_are_neither() -> None:
    sent = {*outsiders.OPEN, *outsiders.TRUSTED}
    assert len(sent) == len(outsiders.OPEN) + len(outsiders.TRUSTED)
    assert {topic.name for topic in topics.TOPICS} - sent == {topics.DECISIONS, topics.DIRECTORY, topics.REGISTRY, topics.TUNING}


def test_extremes_come_from_the_seed_and_ask_nothing_of_the_campaigns_own_pool() -> None:
    made = drawn(records(TOPIC_EVENTS[topics.JOBS]), 7, 20)
    assert made == drawn(records(TOPIC_EVENTS[topics.JOBS]), 7, 20) != drawn(records(TOPIC_EVENTS[topics.JOBS]), 8, 20)

    def event(type_: str, data: object) -> bytes:
        return orjson.dumps({"specversion": "1.0", "id": "e", "source": "extremes", "type": f"trainhouse.{type_}.v1", "data": data})

    ours = event("job.submitted", {"job_id": "j", "spec": SPEC})
    others = event("job.submitted", {"job_id": "j", "spec": SPEC | {"pool": "other"}})
    assert not may_be_sent(topics.JOBS, ours) and may_be_sent(topics.JOBS, others) and may_be_sent(topics.JOBS, ours[:-1])
    assert not may_be_sent(topics.JOBS, event("project.change", {"project": {"name": "*"}}))
    assert not may_be_sent(topics.POOLS, others) and may_be_sent(topics.POOLS, b"junk"), "what can be read there counts"

"""The directory and what is asked of pools: each request reaches the partition of its pool once, or its sender is told why not."""

from __future__ import annotations

from collections import Counter

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.profiles import examples
from tests.unit.scheduler.core.intake.test_core_directory import Directory, cancel, refused, submit
from trainhouse.events import (
    AskedVia,
    DeadLetter,
    Event,
    JobState,
    JobStatus,
    MovePool,
    Order,
    PoolCreated,
    RequestedBy,
    decode,
    encode,
    envelope_of,
)
from trainhouse.events.model.pool import CordonNode, DrainNode, PolicyChanged, QuarantineNode, UncordonNode
from trainhouse.events.model.routing import PoolRequest
from trainhouse.events.wire import topics
from trainhouse.events.wire.codec import HEADERS
from trainhouse.events.wire.journal import ClockTicked
from trainhouse.scheduler.core.intake.screening import Arrived, screen
from trainhouse.scheduler.core.protocol.publication import sent_of


def request(kind: str, pool: str = "big", node: str = "n1") -> PoolRequest:
    """One request of each kind."""
    about = {"pool": pool, "node_id": node, "user": "ada"}
    made: dict[str, PoolRequest] = {
        "policy": PolicyChanged.model_validate({"pool": pool, "policy": {"name": "new"}, "text": "name: new\n"}),
        "cordon": CordonNode.model_validate(about),
        "uncordon": UncordonNode.model_validate(about),
        "drain": DrainNode.model_validate(about | {"deadline_s": 30}),
        "quarantine": QuarantineNode.model_validate(about | {"reason": "ecc"}),
        "move": MovePool.model_validate({"pool": pool, "to_partition": 3, "user": "ada"}),
    }
    return made[kind]


KINDS = ("policy", "cordon", "uncordon", "drain", "quarantine", "move")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_asked_of_a_pool_goes_to_its_partition_whole_and_under_its_own_id(kind: str) -> None:
    asked = request(kind)
    [effect] = Directory().with_pools().feed(asked, "ask-1")
    assert (effect.topic, effect.partition, effect.key, effect.event_id) == (topics.CONTROL, 1, "1", "ask-1")
    assert effect.event == asked


@pytest.mark.parametrize("kind", KINDS)
def test_a_repeat_is_one_request(kind: str) -> None:
    d = Directory().with_pools()
    assert len(d.feed(request(kind), "ask-1")) == 1
    assert d.feed(request(kind), "ask-1") == []


@pytest.mark.parametrize("kind", KINDS)
def test_an_unknown_pool_is_refused_under_the_events_id_with_the_pools_there_are(kind: str) -> None:
    d = Directory().with_pools()
    effects = d.feed(request(kind, pool="gpus"), "ask-1")
    assert effects[0].key == "ask-1"
    reason = refused(effects)
    assert "no pool gpus" in reason and "big, default" in reason and "trainhouse pool create gpus" in reason
    assert not d.state.held, "only requests about jobs wait"


def test_a_request_after_its_pool_was_created_is_a_new_one() -> None:
    d = Directory()
    refused(d.feed(request("cordon"), "ask-1"))
    d.with_pools()
    assert d.feed(request("cordon"), "ask-1") == [], "an id is handled once, for ever"
    assert len(d.feed(request("cordon"), "ask-2")) == 1


step = st.one_of(
    st.tuples(st.just("pool"), st.sampled_from(["p1", "p2"]), st.integers(0, 3)),
    st.tuples(st.sampled_from(KINDS), st.sampled_from(["p1", "p2", "p3"]), st.integers(0, 12)),
    st.tuples(st.just("tick"), st.just(""), st.just(0)),
)


@settings(max_examples=examples(80))
@given(st.lists(step, max_size=40))
def test_each_request_has_one_answer_whatever_comes(steps: list[tuple[str, str, int]]) -> None:
    d, told = Directory(), Counter[str]()
    partition_of: dict[str, int] = {}
    asked: set[str] = set()
    for kind, pool, number in steps:
        event: Event = ClockTicked() if kind == "tick" else request(kind, pool) if kind != "pool" else _pool(pool, number)
        event_id = f"{kind}-{number}" if kind in KINDS else ""
        for effect in d.feed(event, event_id):
            if kind == "pool":
                partition_of.setdefault(pool, number)
            elif effect.topic == topics.CONTROL:
                assert effect.partition == partition_of[effect.event.pool]  # type: ignore[attr-defined]
                told[str(effect.event_id)] += 1
            else:
                told[effect.key] += 1
        if kind in KINDS:
            asked.add(event_id)
    assert told == Counter(dict.fromkeys(asked, 1))


def _pool(name: str, partition: int) -> PoolCreated:
    return PoolCreated.model_validate({"pool": name, "partition": partition})


@pytest.mark.parametrize("kind", KINDS)
def test_all_that_is_asked_of_a_pool_takes_one_way_through_admission(kind: str) -> None:
    value = encode(envelope_of(request(kind), id="e", source="me", now_ms=1))
    (out,) = screen(Arrived(0, 7, 1_000, value), 4, 5_000).outgoing
    assert (out.topic, out.key, out.partition) == (topics.ADMISSION, b"big", None)
    asked = decode(out.value).event
    assert asked.requested_by == RequestedBy(name=asked.user, via=AskedVia.OPERATOR)  # type: ignore[attr-defined]
    assert asked.model_copy(update={"requested_by": None}) == request(kind)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({"pool": "p", "policy": {"teams": [{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}]}}, "is a cycle"),
        ({"pool": "p", "policy": {"teams": [{"name": "a", "weight": -1}]}}, "weight"),
        ({"pool": "p", "policy": {"ordr": "fair"}}, "did you mean 'order'"),
        ({"policy": {}}, "pool: required"),
    ],
)
def test_a_bad_policy_never_gets_in_and_its_sender_is_told(data: dict[str, object], told: str) -> None:
    line = {"specversion": "1.0", "id": "ask-1", "source": "me", "type": PolicyChanged.event_type, "data": data}
    letter, status = screen(Arrived(0, 7, 1_000, orjson.dumps(line)), 4, 5_000).outgoing
    assert told in DeadLetter.of_headers(list(letter.headers)).reason
    event = decode(status.value).event
    assert (status.topic, status.key) == (topics.STATUS, b"ask-1")
    assert isinstance(event, JobStatus) and event.state is JobState.REJECTED and told in event.reason


# ---- moves


def test_a_move_to_a_partition_that_is_not_there_or_before_an_update_is_finished_is_refused() -> None:
    d = Directory().with_pools()
    reason = refused(d.feed(MovePool.model_validate({"pool": "big", "to_partition": 4})))
    assert "use 0 to 3, or add some: `trainhouse topics grow`" in reason
    d.machine = d.machine.at(4)
    assert "trainhouse upgrade finish" in refused(d.feed(request("move")))


def test_a_spec_that_programs_of_before_cannot_read_waits_for_the_end_of_an_update() -> None:
    d = Directory().with_pools()
    job = submit("j", pool="big", checkpoint={"keep_best": 2})
    d.machine = (now := d.machine).at(5)
    assert "spec.checkpoint.keep_best: an update is not finished; leave it out, or run `trainhouse upgrade finish" in refused(d.feed(job))
    d.machine = now.at(6)
    larger = submit("l", pool="big", checkpoint={"keep_best": 2, "host_memory_gib": 8})
    assert "spec.checkpoint.host_memory_gib: an update is not finished" in refused(d.feed(larger))
    d.machine = now.at(7)
    laid_out = submit("m", pool="big", gang=2, parallelism={"tp": 2})
    assert "spec.parallelism: an update is not finished" in refused(d.feed(laid_out))
    d.machine = now.at(8)
    clipped = submit("o", pool="big", training={"clip_norm": 1.0})
    assert "spec.training: an update is not finished" in refused(d.feed(clipped))
    alone = submit("p", pool="big", checkpoint={"peer_memory": False})
    assert "spec.checkpoint.peer_memory: an update is not finished" in refused(d.feed(alone))
    d.machine = now.at(14)
    for number, rule in enumerate(({"action": "skip_data"}, {"skips": 2}, {"skip_steps": 9})):
        skips = submit(f"q{number}", pool="big", divergence=rule)
        assert f"spec.divergence.{next(iter(rule))}: an update is not finished" in refused(d.feed(skips))
    d.machine = now.at(15)
    assert "spec.checkpoint.pace: an update is not finished" in refused(d.feed(submit("r", pool="big", checkpoint={"pace": "full"})))
    assert "spec.interactive: an update is not finished" in refused(d.feed(submit("r", pool="big", interactive={"kind": "shell"})))
    d.machine = now.at(16)
    assert "spec.register: an update is not finished" in refused(d.feed(submit("s", pool="big", register="digits")))
    d.machine = now
    [registering] = d.feed(submit("s", pool="big", register="digits"))
    assert registering.event.spec.register == "digits"
    [hurried] = d.feed(submit("r", pool="big", checkpoint={"pace": "full"}))
    assert hurried.event.spec.checkpoint.pace == "full"
    [skipping] = d.feed(submit("q", pool="big", divergence={"action": "skip_data", "skips": 2}))
    assert skipping.event.spec.divergence.skips == 2
    [of_tp] = d.feed(submit("n", pool="big", gang=2, parallelism={"tp": 2}))
    assert of_tp.event.spec.parallelism.tp == 2
    [admitted] = d.feed(submit("k", pool="big", checkpoint={"keep_best": 2}))
    assert admitted.event.spec.checkpoint.keep_best == 2


def test_a_request_about_a_job_says_which_pool_the_job_is_in() -> None:
    d = Directory().with_pools()
    d.feed(cancel("early"))
    effects = [*d.feed(submit("early", pool="big")), *d.feed(cancel("early"))]
    assert [(type(e.event).__name__, e.partition, e.pool) for e in effects] == [
        ("JobAdmitted", 1, None),
        ("CancelJob", 1, "big"),
        ("CancelJob", 1, "big"),
    ]
    [sent] = sent_of(effects[-1], "directory", Order(0, 1, 0), 5)
    assert decode(sent.value, HEADERS).pool == "big"

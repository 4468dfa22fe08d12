"""Nodes that are gone for good leave the state, and others take their place: memory follows the fleet, not its history."""

import random

import pytest

from tests.support.core_world import Driver, admitted, lost, policy_changed, registered, running, stopped
from tests.support.fakes.journal_fakes import FakeBroker, FakeLog
from tests.support.profiles import examples
from trainhouse.events import (
    CordonNode,
    Envelope,
    EventId,
    ForgetNodeKey,
    JobState,
    NodeKeyed,
    NodeRegistered,
    NodeRestricted,
    Restriction,
    UncordonNode,
    envelope_of,
)
from trainhouse.events.model.decisions import NodeForgotten, NodeJoined
from trainhouse.events.security.signing import SigningKey
from trainhouse.events.security.vetting import VettingRules
from trainhouse.events.wire.codec import HEADERS, encode
from trainhouse.events.wire.journal import ClockTicked
from trainhouse.events.wire.topics import CONTROL, DAY_MS, DEFAULT_DAYS, NODE_KEYS, VERDICTS
from trainhouse.projections.ingest.node_keys import NodeKeys
from trainhouse.scheduler.core.detector import DetectorMachine
from trainhouse.scheduler.core.protocol.batch import Limits, pending
from trainhouse.scheduler.core.protocol.machine import Input
from trainhouse.scheduler.core.schedule import ScheduleMachine
from trainhouse.scheduler.core.state.draft import Draft
from trainhouse.scheduler.core.state.key_bindings import KeptKeys
from trainhouse.scheduler.stream.detection.pool_limits import DetectorPools
from trainhouse.scheduler.stream.interfaces import Entry
from trainhouse.scheduler.stream.scheduling.vetting import vetted

WEEK_MS = 7 * 86_400_000


def _after_a_week(d: Driver, *names: str) -> None:
    for name in names:
        node = d.state.nodes[name]
        d.feed(lost(registered(name, boot_id=node.boot_id, incarnation=node.incarnation)))
    d.tick(WEEK_MS)


def test_a_node_that_is_lost_for_a_week_is_forgotten_and_the_next_new_node_has_its_bit() -> None:
    d = Driver()
    d.feed(registered("a"), registered("b"), registered("c"))
    d.feed(lost(registered("b")))
    d.tick(WEEK_MS - 1)
    assert not d.all(NodeForgotten)
    d.tick(1)
    forgotten = d.last(NodeForgotten)
    assert (forgotten.node_id, forgotten.pool, forgotten.at_ms - forgotten.lost_at_ms) == ("b", "default", WEEK_MS)
    assert sorted(d.state.nodes) == ["a", "c"] and d.state.names == ["a", "", "c"]
    assert d.state.book.cluster.total("default") == 4
    assert [e.topic for e in d.effects if isinstance(e.event, NodeForgotten)] == [VERDICTS]
    d.feed(registered("d"), registered("e"))
    assert {name: node.index for name, node in d.state.nodes.items()} == {"a": 0, "c": 2, "d": 1, "e": 3}
    running(d, "j", ranks=8)
    assert d.status("j").state is JobState.RUNNING


def test_the_policy_says_after_how_long() -> None:
    d = Driver()
    d.feed(registered("a"), registered("b"))
    d.feed(lost(registered("b")))
    d.feed(policy_changed(failures={"recovery": {"forget_after_h": 1}}))
    d.tick(3_599_000)
    assert not d.all(NodeForgotten)
    d.tick(1_000)
    assert d.last(NodeForgotten).node_id == "b"


def test_a_node_that_comes_back_in_time_is_not_forgotten() -> None:
    d = Driver()
    d.feed(registered("a"))
    d.feed(lost(registered("a")))
    d.tick(WEEK_MS - 10)
    d.feed(registered("a", incarnation="inc-2"))
    d.tick(WEEK_MS)
    assert not d.all(NodeForgotten) and d.state.nodes["a"].lost_at_ms is None


def test_a_node_with_what_is_left_of_an_attempt_that_is_over_is_forgotten_and_its_ranks_are_strangers_when_it_comes_back() -> None:
    d = Driver()
    d.feed(registered("a"))
    gang = running(d, "j", ranks=2)
    d.feed(registered("b"))
    d.feed(lost(registered("a")))
    assert d.state.nodes["a"].holds
    d.tick(WEEK_MS)
    assert d.last(NodeForgotten).node_id == "a" and "a" not in d.state.nodes
    d.feed(stopped(gang, "a"))
    d.feed(registered("a", running=[{"job_id": "j", "attempt": gang.attempt, "epoch": gang.epoch}]))
    (hold,) = d.state.nodes["a"].holds
    assert not hold.devices and d.state.nodes["a"].index == 0


def test_a_node_stays_while_an_attempt_a_claim_or_a_held_start_names_it() -> None:
    d = Driver()
    d.feed(registered("a"), registered("b"))
    gang = running(d, "j", ranks=4)
    d.feed(lost(registered("a")))  # b's part is asked to stop, and says nothing for a week
    d.tick(WEEK_MS)
    assert not d.all(NodeForgotten)
    d.feed(stopped(gang, "b"))
    d.tick()
    assert d.last(NodeForgotten).node_id == "a"


def test_a_node_that_a_person_closed_stays_until_a_person_opens_it() -> None:
    d = Driver()
    d.feed(registered("a"))
    d.feed(Envelope(EventId("c"), "test", CordonNode(pool="default", node_id="a", user="ada")))
    _after_a_week(d, "a")
    assert not d.all(NodeForgotten)
    d.feed(Envelope(EventId("u"), "test", UncordonNode(pool="default", node_id="a", user="ada")))
    assert d.last(NodeForgotten).node_id == "a"


def test_what_the_platform_held_against_a_node_goes_with_it() -> None:
    d = Driver()
    d.feed(registered("a"))
    fields = {"node_id": "a", "pool": "default", "restriction": "QUARANTINED", "reason": "bad", "by": "trainhouse", "at_ms": 1}
    d.state = d.machine.fold(d.state, d.now_ms, (), [NodeRestricted.model_validate(fields)])
    _after_a_week(d, "a")
    assert d.last(NodeRestricted).restriction is Restriction.NONE and d.last(NodeForgotten).node_id == "a"


def test_a_waiting_job_neither_prefers_nor_avoids_the_node_that_has_the_bit_next() -> None:
    d = Driver()
    d.feed(registered("a"), registered("b"))
    running(d, "j", ranks=4)
    d.feed(lost(registered("a")))
    d.feed(lost(registered("b")))
    job = d.state.jobs["j"]
    assert job.avoid_nodes and d.state.book.lanes.get("j").shun  # type: ignore[union-attr]
    d.tick(WEEK_MS)
    assert not d.state.nodes
    assert d.state.jobs["j"].avoid_nodes == () and d.state.book.lanes.get("j").shun == 0  # type: ignore[union-attr]
    assert d.machine.dump(d.machine.load(d.machine.dump(d.state))) == d.machine.dump(d.state)


@pytest.mark.parametrize("seed", range(10))
def test_a_state_from_a_snapshot_decides_as_the_one_that_it_is_of(seed: int) -> None:
    rng, d = random.Random(seed), Driver()
    names = iter(range(10_000))
    d.feed(policy_changed(failures={"recovery": {"forget_after_h": 1}}))
    d.feed(*(registered(f"n{next(names)}") for _ in range(6)))
    for step in range(60):
        up = [n for n in d.state.nodes.values() if n.health == "UP"]
        match rng.randrange(4):
            case 0 if up:
                node = rng.choice(up)
                d.feed(lost(registered(node.node_id, pool=node.pool)), wait_ms=rng.randrange(1_000_000))
            case 1:
                pool = rng.choice(["default", "default", "other"])
                d.feed(registered(f"n{next(names)}", public_key=rng.choice(["", "k"]), pool=pool), wait_ms=rng.randrange(100_000))
            case 2:
                d.feed(admitted(f"j{step}", ranks=rng.randrange(1, 9)), wait_ms=rng.randrange(100_000))
            case _:
                d.tick(rng.randrange(2_000_000))
        loaded = d.machine.load(d.machine.dump(d.state))
        assert d.machine.dump(loaded) == d.machine.dump(d.state)
        assert (loaded.forgetting, loaded.next_index()) == (d.state.forgetting, d.state.next_index())
        for wait_ms in (0, 100_000, 4_000_000):
            inputs = [Input(0, Envelope(EventId("e"), "test", e)) for e in (registered("new"), admitted("x", ranks=2), ClockTicked())]
            now_ms = d.now_ms + wait_ms
            assert d.machine.decide(loaded, now_ms, inputs) == d.machine.decide(d.state, now_ms, inputs)
    assert d.all(NodeForgotten)


# ---- keys


def _registration(name: str, key: SigningKey) -> tuple[Entry, NodeRegistered]:
    event = registered(name, public_key=key.public_key)
    value = encode(envelope_of(event, id="r", source="test", now_ms=1))
    return Entry(0, 0, 1, None, value, (*HEADERS, key.header(CONTROL, value))), event


def _refusal(d: Driver, name: str, key: SigningKey) -> str:
    entry, _ = _registration(name, key)
    (found,) = vetted(VettingRules(), CONTROL, d.state, [entry], [pending(0, entry.value, entry.headers, Limits())])
    return found.refusal


def test_a_forgotten_name_still_belongs_to_the_key_that_it_had() -> None:
    own, stranger = SigningKey.made(), SigningKey.made()
    d = Driver()
    d.feed(registered("a", public_key=own.public_key))
    _after_a_week(d, "a")
    assert [e.topic for e in d.effects if isinstance(e.event, NodeForgotten)] == [VERDICTS, NODE_KEYS]
    d.state = d.machine.load(d.machine.dump(d.state))
    assert "forget-key a" in _refusal(d, "a", stranger)
    assert not _refusal(d, "a", own)
    other = ScheduleMachine().initial(1)
    entry, _ = _registration("a", stranger)
    (found,) = vetted(VettingRules(), CONTROL, other, [entry], [pending(0, entry.value, entry.headers, Limits())], [d.state])
    assert "forget-key a" in found.refusal
    d.feed(registered("a", public_key=own.public_key))
    assert d.last(NodeJoined).public_key == own.public_key and not len(d.state.kept_keys)


def test_an_operator_forgets_the_key_of_a_forgotten_node() -> None:
    own, stranger = SigningKey.made(), SigningKey.made()
    d = Driver()
    d.feed(registered("a", public_key=own.public_key))
    _after_a_week(d, "a")
    d.feed(Envelope(EventId("f"), "test", ForgetNodeKey(pool="default", node_id="a", user="ada")))
    assert d.last(NodeKeyed).public_key == "" and not _refusal(d, "a", stranger)


def test_kept_keys_are_small_and_equal_sets_have_equal_rows() -> None:
    kept, names = KeptKeys(), [f"node-{i}" for i in range(2_000)]
    for name in names:
        kept.put(name, "default", f"key of {name}")
    again = KeptKeys()
    for name in sorted(names, reverse=True):
        again.put(name, "default", f"key of {name}")
    assert kept.rows() == again.rows() == KeptKeys(kept.rows()).rows() and len(kept.rows()) < 40 * len(names)
    assert all(kept.key_of(n, f"key of {n}") == f"key of {n}" and kept.key_of(n, "another") not in ("", "another") for n in names)
    twin = kept.fork()
    twin.drop("node-7")
    assert (twin.key_of("node-7", "k"), len(twin), len(kept)) == ("", 1_999, 2_000)
    assert kept.is_of_pool("node-7", "default") and not kept.is_of_pool("node-7", "other") and not twin.is_of_pool("node-7", "default")


# ---- a fleet over years

FLEET, NAMES, AT_ONCE = 1_000, examples(100_000), 50


def test_however_many_names_came_a_fleet_of_a_thousand_keeps_no_more_than_their_keys() -> None:
    machine = ScheduleMachine()
    state, now_ms, made = machine.initial(0), 1_000_000, 0
    live: list[NodeRegistered] = []
    sizes: list[tuple[int, ...]] = []
    keys: list[int] = []
    template = registered("n", 1)
    while made < NAMES:
        gone, live = live[: max(0, len(live) + AT_ONCE - FLEET)], live[max(0, len(live) + AT_ONCE - FLEET) :]
        new = [template.model_copy(update={"node_id": f"n{made + i}", "public_key": f"key-{made + i}"}) for i in range(AT_ONCE)]
        live, made, now_ms = live + new, made + AT_ONCE, now_ms + WEEK_MS
        inputs = [Input(0, Envelope(EventId("e"), "test", e)) for e in (*map(lost, gone), *new, ClockTicked())]
        draft = Draft(state, now_ms)  # what it decides is folded at once: the same work once, not twice
        for item in inputs:
            machine._handle(draft, item)
        if made in (2 * FLEET, NAMES):
            cluster = state.book.cluster
            widest = max(mask.bit_length() for bay in cluster.bays.values() for mask in (*bay.by_free, *bay.of_size))
            assert widest <= len(state.names)
            lengths = map(len, (state.nodes, state.names, state.vacant, cluster.layout.slots, cluster.idle, cluster.free_bits))
            dumped = machine.dump(state)
            keys.append(len(state.kept_keys))
            sizes.append((*lengths, round(len(dumped) - len(state.kept_keys.rows()), -4)))
    assert sizes[0] == sizes[1] and sizes[0][0] <= FLEET + AT_ONCE
    assert keys[1] == NAMES - sizes[1][0] and len(state.kept_keys.rows()) < 40 * NAMES


# ---- those who follow keys


def test_the_projector_counts_the_keys_of_a_forgotten_node_for_as_long_as_there_are_records_of_it() -> None:
    keys, quarter_ms = NodeKeys(), DEFAULT_DAYS * DAY_MS
    for at in range(300):
        name = f"n{at}"
        keys.note(NodeKeyed.model_validate({"node_id": name, "pool": "default", "public_key": f"k{at}", "at_ms": at * DAY_MS}))
        about = {"node_id": name, "pool": "default", "boot_id": "b", "lost_at_ms": 0, "at_ms": at * DAY_MS + 1}
        keys.forget(NodeForgotten.model_validate(about))
        assert len(keys._keys) <= DEFAULT_DAYS + 2
    assert keys.keys_of("n299", 300 * DAY_MS) == {"k299"} and not keys.keys_of("n1", DAY_MS)
    keys.note(NodeKeyed.model_validate({"node_id": "n299", "pool": "default", "public_key": "k299", "at_ms": 300 * DAY_MS}))
    keys.forget(NodeForgotten.model_validate(about | {"node_id": "other", "at_ms": 299 * DAY_MS + 2 * quarter_ms}))
    assert keys.keys_of("n299", 300 * DAY_MS) == {"k299"}


def test_the_detector_drops_the_key_of_a_forgotten_node() -> None:
    pools = DetectorPools(FakeLog(FakeBroker()), DetectorMachine())
    for pool in ("default", "other"):
        pools._note(NodeKeyed.model_validate({"node_id": "n", "pool": pool, "public_key": "k", "at_ms": 1}))
    about = {"node_id": "n", "boot_id": "b", "lost_at_ms": 0, "at_ms": 1}
    pools._note(NodeForgotten.model_validate(about | {"pool": "other"}))
    assert pools._keys == {"n": {"default": "k"}}
    pools._note(NodeForgotten.model_validate(about | {"pool": "default"}))
    pools._note(NodeForgotten.model_validate(about | {"pool": "default"}))
    assert not pools._keys

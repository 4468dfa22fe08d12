"""Who speaks for a node: what a stolen key, or none, can say on control and on heartbeats, and what it is told."""

import asyncio
import stat
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.core_world import spec
from tests.support.counting_machine import proposed
from tests.support.fakes.journal_fakes import FakeBroker, FakeLog, LoopClock, run_virtually
from trainhouse.events import (
    AttemptStopped,
    CheckpointCompleted,
    DeadLetter,
    Event,
    ForgetNodeKey,
    JobAdmitted,
    NodeHeartbeat,
    NodeKeyed,
    NodeRegistered,
    PoolCreated,
    SignatureRefused,
    decode,
    encode,
    envelope_of,
)
from trainhouse.events.security.key_files import kept_key
from trainhouse.events.security.signing import SigningKey
from trainhouse.events.security.vetting import VettingRules
from trainhouse.events.wire import topics
from trainhouse.events.wire.codec import HEADERS
from trainhouse.events.wire.journal import InputRefused, JournalRecord
from trainhouse.scheduler.core.detector import DetectorMachine
from trainhouse.scheduler.core.protocol.batch import Limits, Proposer, pending
from trainhouse.scheduler.core.protocol.journal import Folded, begin, fold_bytes
from trainhouse.scheduler.core.protocol.publication import outgoing
from trainhouse.scheduler.core.schedule import ScheduleMachine
from trainhouse.scheduler.core.state.state import ScheduleState
from trainhouse.scheduler.stream.detection.detector_shell import Detecting
from trainhouse.scheduler.stream.interfaces import Entry
from trainhouse.scheduler.stream.journal.host import JournalHost
from trainhouse.scheduler.stream.scheduling.vetting import vetted

A, B, PLATFORM = SigningKey.made(), SigningKey.made(), SigningKey.made()
STRICT, LAX = VettingRules(True, PLATFORM.public_key), VettingRules(False)


def registered(node_id: str, key: SigningKey | None, incarnation: str = "i") -> NodeRegistered:
    of = {"node_id": node_id, "boot_id": "b", "incarnation": incarnation, "pool": "default", "address": "a"}
    return NodeRegistered.model_validate(of | {"devices": (), "rendezvous_ports": (), "public_key": key.public_key if key else ""})


def stopped(node_id: str) -> AttemptStopped:
    names = {"job_id": "j", "attempt": 0, "epoch": 1, "node_id": node_id, "pool": "default", "boot_id": "b"}
    missing = {name: 0 for name, f in AttemptStopped.model_fields.items() if f.is_required() and name not in names}
    return AttemptStopped.model_validate(names | missing)


class Control:
    """A partition of control before its scheduler: what agents write is vetted, decided, journaled and folded."""

    def __init__(self, rules: VettingRules) -> None:
        self.machine = ScheduleMachine()
        self.rules = rules
        self.folded: Folded[ScheduleState] = begin(self.machine, 0)
        self.offset = -1
        self.others: list[Control] = []
        pool = PoolCreated.model_validate({"pool": "default", "partition": 0})
        assert self.take((pool, PLATFORM)) == []

    def take(self, *said: tuple[Event, SigningKey | None]) -> list[InputRefused]:
        """Handles one batch; gives what was refused."""
        entries = []
        for event, key in said:
            self.offset += 1
            value = encode(envelope_of(event, id=f"e{self.offset}", source="s", now_ms=1))
            signed = () if key is None else (key.header(topics.CONTROL, value),)
            entries.append(Entry(0, self.offset, 1, b"k", value, (*HEADERS, *signed)))
        read = [pending(e.offset, e.value, e.headers, Limits()) for e in entries]
        waiting = vetted(self.rules, topics.CONTROL, self.folded.state, entries, read, [c.folded.state for c in self.others])
        record = proposed(Proposer(self.machine, "o"), self.folded, 1, waiting, 0, tick=False)
        assert len(record.inputs) == len(entries)
        self.record = JournalRecord.decode(record.encode())
        self.folded, _ = fold_bytes(self.machine, self.folded, record.encode())
        return [d for d in self.record.decisions if isinstance(d, InputRefused)]

    def key_of(self, node_id: str) -> str:
        return self.folded.state.node(node_id).public_key


@pytest.mark.parametrize("rules", [STRICT, LAX])
def test_the_first_key_of_a_name_speaks_for_it_and_another_does_not(rules: VettingRules) -> None:
    c = Control(rules)
    assert c.take((registered("a", A), A), (registered("b", B), B)) == []
    assert c.key_of("a") == A.public_key
    for event, key in ((registered("a", B, "i2"), B), (registered("a", None, "i2"), None), (registered("a", A, "i2"), B)):
        (refused,) = c.take((event, key))
        assert refused.forged == "node a" and c.key_of("a") == A.public_key
        assert c.folded.state.node("a").incarnation == "i"
    (refused,) = c.take((stopped("a"), B))
    assert "another key" in refused.reason
    (refused,) = c.take((stopped("a"), None))
    assert "not signed" in refused.reason
    assert c.take((stopped("a"), A), (stopped("b"), B)) == []


def test_within_one_batch_the_first_key_counts_too() -> None:
    (refused,) = Control(LAX).take((registered("a", A), A), (registered("a", B, "i2"), B))
    assert "another key than its own" in refused.reason and "forget-key a" in refused.reason


@pytest.mark.parametrize("rules", [STRICT, LAX])
def test_a_name_is_one_nodes_in_all_partitions(rules: VettingRules) -> None:
    c, other = Control(rules), Control(rules)
    other.others = [c, Control(rules)]
    assert c.take((registered("a", A), A)) == []
    for event, key in (
        (registered("a", B), B),
        (registered("a", None), None),
        (registered("a", A), B),
        (stopped("a"), B),
        (stopped("a"), None),
    ):
        (refused,) = other.take((event, key))
        assert refused.forged == "node a" and "a" not in other.folded.state.nodes
    (refused,) = other.take((registered("a", B), B))
    assert "a name is one node's in all pools" in refused.reason and "forget-key a" in refused.reason
    assert other.take((registered("a", A), A), (stopped("a"), A)) == [], "the node itself may come there"
    forget = ForgetNodeKey.model_validate({"pool": "default", "node_id": "a", "user": "ada"})
    assert other.take((forget, PLATFORM)) == [] and len(other.take((registered("a", B, "i2"), B))) == 1
    assert c.take((forget, PLATFORM)) == []
    assert other.take((registered("a", B, "i2"), B)) == [] and other.key_of("a") == B.public_key


def test_two_nodes_that_had_one_name_before_keep_it() -> None:
    c, other = Control(LAX), Control(LAX)
    assert c.take((registered("a", A), A)) == [] == other.take((registered("a", B), B))
    third = Control(LAX)
    c.others, other.others, third.others = [other], [c], [c, other]
    assert c.take((stopped("a"), A)) == [] == other.take((stopped("a"), B), (registered("a", B, "i2"), B))
    assert len(c.take((stopped("a"), B))) == 1
    assert third.take((registered("a", B), B)) == [] and len(third.take((registered("a", A, "i2"), A))) == 1


def test_a_partition_is_vetted_by_what_its_process_knows_of_the_others() -> None:
    seen: list[tuple[Any, Any]] = []
    host: Any = object.__new__(JournalHost)
    host._vetting = lambda state, entries, found, others: seen.append((state, others))
    host.followers = {n: SimpleNamespace(folded=SimpleNamespace(state=f"state {n}")) for n in range(3)}
    host._vet_of(1)([], [])
    host.followers[2].folded = SimpleNamespace(state="newer")
    host._vet_of(1)([], [])
    assert seen == [("state 1", ["state 0", "state 2"]), ("state 1", ["state 0", "newer"])]


def test_a_key_that_is_only_named_and_not_held_is_refused() -> None:
    (refused,) = Control(LAX).take((registered("a", A), B))
    assert refused.forged == "node a"
    (refused,) = Control(LAX).take((registered("a", A), None))
    assert "not signed" in refused.reason


def test_agents_of_old_sign_nothing_and_count_only_where_the_operator_says_so() -> None:
    assert Control(LAX).take((registered("a", None), None), (stopped("a"), None)) == []
    assert len(Control(STRICT).take((registered("a", None), None), (stopped("a"), None))) == 2


def test_a_nodes_key_admits_no_job_and_ends_none() -> None:
    of = {"spec_sha256": "0" * 64, "submission_id": "s", "submitted_at_ms": 1}
    admission = JobAdmitted.model_validate({"job_id": "j", "spec": spec().model_dump(mode="json")} | of)
    c = Control(STRICT)
    c.take((registered("a", A), A))
    for key in (A, None):
        (refused,) = c.take((admission, key))
        assert refused.forged == "job j" and "j" not in c.folded.state.jobs
    assert c.take((admission, PLATFORM)) == [] and "j" in c.folded.state.jobs


def saved(epoch: int, commit: int) -> CheckpointCompleted:
    of = {"job_id": "j", "attempt": 0, "epoch": epoch, "at_ms": 1, "commit": commit, "step": 1, "uri": "s3://b"}
    return CheckpointCompleted.model_validate(of | {"bytes_total": 1, "bytes_new": 1})


@pytest.mark.parametrize("rules", [STRICT, LAX])
def test_of_a_job_that_waits_nobody_but_a_node_tells_checkpoints(rules: VettingRules) -> None:
    of = {"spec_sha256": "0" * 64, "submission_id": "s", "submitted_at_ms": 1}
    c = Control(rules)
    c.take((registered("a", A), A), (JobAdmitted.model_validate({"job_id": "j", "spec": spec().model_dump(mode="json")} | of), PLATFORM))
    for key in (B, None):
        (refused,) = c.take((saved(0, 2**53), key))
        assert refused.forged == "job j" and c.folded.state.job("j").last_checkpoint is None
    # It was never given a node, so none has saved for it.
    assert c.take((saved(0, 1), A)) == [] and c.folded.state.job("j").last_checkpoint is None


@pytest.mark.parametrize("rules", [STRICT, LAX])
def test_of_an_attempt_that_is_over_only_nodes_that_the_job_ran_on_tell_checkpoints(rules: VettingRules) -> None:
    of = {"spec_sha256": "0" * 64, "submission_id": "s", "submitted_at_ms": 1}
    c = Control(rules)
    admitted = JobAdmitted.model_validate({"job_id": "j", "spec": spec().model_dump(mode="json")} | of)
    c.take((registered("a", A), A), (registered("b", B), B), (admitted, PLATFORM))
    state = c.folded.state
    state.put_job(state.job("j").model_copy(update={"ran_on": ("a",), "epoch": 1}), 1)
    (refused,) = c.take((saved(0, 2**53), B))
    assert refused.forged == "job j" and "a node that job j runs on" in refused.reason
    assert c.take((saved(0, 1), A)) == [] and c.folded.state.job("j").last_checkpoint is not None


@pytest.mark.parametrize("rules", [STRICT, LAX])
def test_of_a_job_that_is_over_no_key_tells_checkpoints_that_is_no_nodes(rules: VettingRules) -> None:
    c, elsewhere = Control(rules), Control(rules)
    c.take((registered("a", A), A))
    elsewhere.take((registered("b", B), B))
    c.others = [elsewhere]
    (refused,) = c.take((saved(1, 5), SigningKey.made()))
    assert refused.forged == "job j"
    assert c.take((saved(1, 5), A), (saved(1, 6), B)) == [], "a node that was away, in whichever partition it is now"


def test_what_is_refused_is_journaled_a_dead_letter_and_told_to_people() -> None:
    c = Control(STRICT)
    c.take((registered("a", A), A))
    c.take((stopped("a"), B))
    assert c.record.inputs[0].envelope is None and c.record.inputs[0].raw, "a replay asks nobody again: its bytes are no input"
    out = outgoing(c.machine, topics.CONTROL, 0, c.record)
    (letter,) = (o for o in out if o.topic == topics.DEAD_LETTERS)
    assert "another key" in DeadLetter.of_headers(list(letter.headers)).reason
    (told,) = (decode(o.value).event for o in out if o.topic == topics.VERDICTS)
    assert isinstance(told, SignatureRefused) and (told.node_id, told.topic) == ("a", topics.CONTROL)


def test_an_operator_lets_the_next_key_speak() -> None:
    c = Control(STRICT)
    c.take((registered("a", A), A))
    out = outgoing(c.machine, topics.CONTROL, 0, c.record)
    assert [decode(o.value).event.public_key for o in out if o.topic == topics.NODE_KEYS] == [A.public_key]  # type: ignore[attr-defined]
    forget = ForgetNodeKey.model_validate({"pool": "default", "node_id": "a", "user": "ada"})
    assert len(c.take((forget, A))) == 1, "not even the node itself"
    assert c.take((forget, PLATFORM)) == [] and c.key_of("a") == ""
    (told,) = (decode(o.value).event for o in outgoing(c.machine, topics.CONTROL, 0, c.record) if o.topic == topics.NODE_KEYS)
    assert isinstance(told, NodeKeyed) and told.public_key == "" and told.user == "ada"
    assert c.take((registered("a", B, "i2"), B)) == [] and c.key_of("a") == B.public_key
    assert len(c.take((stopped("a"), A))) == 1


def beat(node_id: str, sequence: int) -> NodeHeartbeat:
    of: dict[str, Any] = {"node_id": node_id, "boot_id": "b", "incarnation": "i", "pool": "default"}
    return NodeHeartbeat.model_validate(of | {"sequence": sequence, "at_ms": 1, "interval_s": 1.0})


def test_a_heartbeat_in_anothers_name_is_none_and_a_flood_of_them_is_told_once_a_reason() -> None:
    async def tale() -> None:
        broker, clock = FakeBroker(partitions=1), LoopClock()
        keyed = NodeKeyed.model_validate({"node_id": "a", "pool": "default", "public_key": A.public_key, "at_ms": 1})
        broker.land(topics.NODE_KEYS, 0, b"default/a", encode(envelope_of(keyed, id="k", source="s", now_ms=1)))
        detecting = Detecting(FakeLog(broker), clock, DetectorMachine(), None, STRICT)
        detecting.on_assigned({0})
        running = asyncio.create_task(detecting.run())
        await asyncio.sleep(3)
        for number, key in enumerate((B, B, None, None, B, None, A)):
            value = encode(envelope_of(beat("a", number), id=f"h{number}", source="s", now_ms=1))
            signed = () if key is None else (key.header(topics.HEARTBEATS, value),)
            await detecting.take({0: [Entry(0, number, 1, b"a", value, (*HEADERS, *signed))]})
            known = [n for state in detecting._states.values() for n in state.nodes]
            assert (known == ["a"]) is (key is A)
        await asyncio.sleep(1)
        running.cancel()
        assert len(broker.committed(topics.DEAD_LETTERS, 0)) == 2
        told = [decode(e.value).event for e in broker.committed(topics.VERDICTS, 0)]
        assert [(e.node_id, e.reason.split()[-1]) for e in told if isinstance(e, SignatureRefused)] == [("a", "it"), ("a", "signed")]
        assert {e.key for e in broker.committed(topics.VERDICTS, 0)} == {b"a"}

    run_virtually(tale())


def test_a_heartbeat_of_another_pool_is_judged_by_the_key_of_the_name() -> None:
    async def tale() -> None:
        broker = FakeBroker(partitions=1)
        keyed = NodeKeyed.model_validate({"node_id": "a", "pool": "default", "public_key": A.public_key, "at_ms": 1})
        broker.land(topics.NODE_KEYS, 0, b"default/a", encode(envelope_of(keyed, id="k", source="s", now_ms=1)))
        detecting = Detecting(FakeLog(broker), LoopClock(), DetectorMachine(), None, LAX)
        detecting.on_assigned({0})
        running = asyncio.create_task(detecting.run())
        await asyncio.sleep(3)
        for number, key in enumerate((B, None, A)):
            value = encode(envelope_of(beat("a", number).model_copy(update={"pool": "other"}), id=f"h{number}", source="s", now_ms=1))
            signed = () if key is None else (key.header(topics.HEARTBEATS, value),)
            await detecting.take({0: [Entry(0, number, 1, b"a", value, (*HEADERS, *signed))]})
            known = [n for state in detecting._states.values() for n in state.nodes]
            assert (known == ["a"]) is (key is A)
        running.cancel()

    run_virtually(tale())


def test_a_nodes_key_is_the_agents_alone(tmp_path: Path) -> None:
    path = tmp_path / "agent" / "node.key"
    assert kept_key(path).public_key == kept_key(path).public_key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_heartbeat_costs_little_to_sign_and_to_check() -> None:
    """Printed by `pytest -s`: 10,000 nodes at a heartbeat in 5 s are 2,000 checks a second."""
    value = encode(envelope_of(beat("a", 1), id="h", source="s", now_ms=1))
    count = 300
    began_s = time.process_time()
    headers = [A.header(topics.HEARTBEATS, value) for _ in range(count)]
    signed_s = time.process_time()
    entries = [Entry(0, n, 1, b"a", value, (header,)) for n, header in enumerate(headers)]
    read = [pending(e.offset, e.value, e.headers, Limits()) for e in entries]
    parsed_s = time.process_time()
    assert not any(p.refusal for p in vetted(LAX, topics.HEARTBEATS, ScheduleState(0), entries, read))
    ended_s = time.process_time()
    us = 1e6 / count
    print(f"sign {(signed_s - began_s) * us:.0f} us, decode {(parsed_s - signed_s) * us:.0f} us, check {(ended_s - parsed_s) * us:.0f} us")
    assert (ended_s - parsed_s) * us < 5_000

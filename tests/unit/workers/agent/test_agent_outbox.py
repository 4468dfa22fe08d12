"""The outbox and the shipping of a rank's files, over a fake producer: bounds, order, repetition."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka import KafkaError

from trainhouse.events import AttemptNumber, Epoch, JobId, NodeId, PoolCreated, PoolName, decode, envelope_of
from trainhouse.events.wire.topics import CONTROL
from trainhouse.workers.agent.core.telemetry import RankIdentity
from trainhouse.workers.agent.ship import outbox as outbox_module
from trainhouse.workers.agent.ship.outbox import Outbox
from trainhouse.workers.agent.ship.rank_shipper import KEPT_END_BYTES, RankShipper
from trainhouse.workers.launcher import RankPaths

WHO = RankIdentity(JobId("j"), AttemptNumber(0), Epoch(0), NodeId("n"), "p", 0)


class FakeProducer:
    """librdkafka's producer as the outbox uses it: a bounded queue, and brokers that answer when told to."""

    def __init__(self, room: int = 10**9) -> None:
        self.room = room
        self.away = False
        self.errors: list[KafkaError] = []
        self.queue: list[tuple[str, bytes, Any]] = []
        self.taken: list[tuple[str, bytes]] = []

    def produce(self, topic: str, *, value: bytes, key: bytes, headers: Any, on_delivery: Any, partition: int = -1) -> None:
        if len(self.queue) >= self.room:
            raise BufferError("queue full")
        self.queue.append((topic, value, on_delivery))

    def poll(self, timeout_s: float = 0.0) -> int:
        if self.away:
            return 0
        queue, self.queue = self.queue, []
        for topic, value, done in queue:
            error = self.errors.pop(0) if self.errors else None
            if error is None:
                self.taken.append((topic, value))
            done(error, None)
        return len(queue)

    def purge(self) -> None:
        self.queue.clear()


def offer(outbox: Outbox, number: int, acks: list[int] | None = None) -> None:
    event = PoolCreated(pool=f"p{number}", partition=number)
    envelope = envelope_of(event, id=str(number), source="t", now_ms=0)
    outbox.offer("t", envelope, key="k", on_ack=None if acks is None else lambda: acks.append(number))


def ids(producer: FakeProducer) -> list[str]:
    return [str(decode(value).id) for _, value in producer.taken]


def test_a_record_that_was_refused_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "RETRY_S", 0.0)
    producer, acks = FakeProducer(), []  # type: tuple[FakeProducer, list[int]]
    outbox = Outbox(lambda: producer)  # type: ignore[arg-type, return-value]
    producer.errors = [KafkaError(KafkaError.NOT_ENOUGH_REPLICAS)] * 2
    offer(outbox, 1, acks)
    offer(outbox, 2, acks)
    assert outbox.flush(5.0) and ids(producer) == ["1", "2"] and acks == [1, 2] and outbox.bytes == 0


def test_order_is_kept_when_the_queue_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "RETRY_S", 0.0)
    producer = FakeProducer(room=3)
    outbox = Outbox(lambda: producer)  # type: ignore[arg-type, return-value]
    for number in range(20):
        offer(outbox, number)
    assert outbox.flush(5.0) and ids(producer) == [str(n) for n in range(20)]


def test_a_fatal_producer_is_replaced_and_nothing_is_lost() -> None:
    made = [FakeProducer(), FakeProducer()]
    producers = iter(made)
    outbox = Outbox(lambda: next(producers))  # type: ignore[arg-type, return-value]
    made[0].errors = [KafkaError(KafkaError._FATAL, "lost", True)]
    for number in range(3):
        offer(outbox, number)
    assert outbox.flush(5.0)
    assert sorted(ids(made[0]) + ids(made[1])) == ["0", "1", "2"] and "0" in ids(made[1])


def test_a_record_too_large_for_any_broker_is_given_up() -> None:
    producer, acks = FakeProducer(), []  # type: tuple[FakeProducer, list[int]]
    outbox = Outbox(lambda: producer)  # type: ignore[arg-type, return-value]
    producer.errors = [KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)]
    offer(outbox, 1, acks)
    assert outbox.flush(1.0) and acks == [1]


@pytest.mark.parametrize("code", [KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD])
def test_a_record_that_its_topic_has_room_for_is_sent_again_whatever_a_broker_says_of_it(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Where a topic's max.message.bytes was set too low for a while, or another record of the batch was refused for its time, reports and
    points were dropped for good."""
    monkeypatch.setattr(outbox_module, "RETRY_S", 0.0)
    producer, acks = FakeProducer(), []  # type: tuple[FakeProducer, list[int]]
    outbox = Outbox(lambda: producer)  # type: ignore[arg-type, return-value]
    producer.errors = [KafkaError(code)] * 3
    envelope = envelope_of(PoolCreated(pool=PoolName("p"), partition=1), id="1", source="t", now_ms=0)
    outbox.offer(CONTROL, envelope, key="k", on_ack=lambda: acks.append(1))
    assert outbox.flush(5.0) and acks == [1] and ids(producer) == ["1"]


def shipper(folder: Path, producer: FakeProducer, max_bytes: int = 10**9, **more: Any) -> tuple[RankShipper, Outbox]:
    outbox = Outbox(lambda: producer, max_bytes)  # type: ignore[arg-type, return-value]
    given = {"control_partition": lambda: 0, "source": "t", "log_limit_bytes": 10**9, "positions": {}} | more
    who = replace(WHO, dataset=given.pop("dataset", ""))
    return RankShipper(who, RankPaths(folder), outbox, **given), outbox


def data(producer: FakeProducer, topic: str) -> list[dict[str, Any]]:
    return [orjson.loads(value)["data"] for t, value in producer.taken if t == topic]


def test_of_versions_that_a_rank_names_only_that_of_the_spec_is_published(tmp_path: Path) -> None:
    own, other = f"chats@sha256:{'c' * 64}", f"secrets@sha256:{'d' * 64}"
    parts = [{"version": version, "split": "train" if version else "", "samples": 8} for version in (own, other, "")]
    shards = [{"shard": f"{n:064x}", "part": n, "samples": 1, "first_steps": [0], "steps": [1]} for n in range(3)]
    fields = {
        "began_step": 0,
        "loader": 0,
        "samples": 24,
        "parts": parts,
        "runs": [{"epoch": 0, "first_step": 0, "steps": 1, "first_position": 0, "per_step": 8}],
        "stretch": {"epoch": 0, "first_step": 0, "end_step": 1, "shards": shards},
    }
    without = {name: value for name, value in fields.items() if name != "stretch"}
    (tmp_path / "spool.jsonl").write_bytes(b"".join(orjson.dumps(["e", "DataRead", each, None]) + b"\n" for each in (fields, without)))
    producer = FakeProducer()
    rank, outbox = shipper(tmp_path, producer, dataset=own)
    rank.pump(0)
    outbox.poll()
    found, again = data(producer, "trainhouse.environments")
    assert [(part["version"], part["split"]) for part in found["parts"]] == [(own, "train"), ("", ""), ("", "")]
    assert [shard["part"] for shard in found["stretch"]["shards"]] == [0, 2] and found["runs"] == again["runs"] != []
    assert again["parts"] == found["parts"] and rank.unnamed_reads == 3


def test_memory_is_bounded_while_brokers_are_away_and_files_keep_the_rest(tmp_path: Path) -> None:
    producer = FakeProducer()
    producer.away = True
    line = b'["m", 1, 2, {"loss": 1.5}]\n'
    (tmp_path / "spool.jsonl").write_bytes(line * 200_000)
    (tmp_path / "stdout.log").write_bytes(b"a line of output\n" * 200_000)
    rank, outbox = shipper(tmp_path, producer, max_bytes=1_000_000)
    for turn in range(200):
        rank.pump(turn)
    assert outbox.bytes < 1_000_000 + 3 * 2**20 and rank.spool.acked == 0 and rank.lag_bytes() > 5_000_000
    producer.away = False
    for turn in range(2_000):
        outbox.poll()
        rank.pump(turn, final=True)
        if rank.shipped():
            break
    assert sum(len(d["steps"]) for d in data(producer, "trainhouse.metrics")) == 200_000
    assert sum(len(d["lines"]) for d in data(producer, "trainhouse.logs")) == 200_000
    assert rank.positions() == {"spool": len(line) * 200_000, "stdout": 17 * 200_000, "stderr": 0, "stacks": 0}


def test_positions_advance_only_over_what_is_acked(tmp_path: Path) -> None:
    producer = FakeProducer()
    producer.away = True
    (tmp_path / "stdout.log").write_bytes(b"one\n")
    rank, outbox = shipper(tmp_path, producer)
    rank.pump(0)
    assert rank.positions()["stdout"] == 0
    producer.away = False
    outbox.poll()
    assert rank.positions()["stdout"] == 4


def test_progress_is_bounded_in_rate_first_at_once_and_last_before_the_end(tmp_path: Path) -> None:
    producer = FakeProducer()
    rank, outbox = shipper(tmp_path, producer)
    with (tmp_path / "spool.jsonl").open("ab", buffering=0) as spool:
        for ms in range(0, 5_000, 50):
            spool.write(orjson.dumps(["p", {"step": ms, "at_ms": ms}]) + b"\n")
            rank.pump(ms)
            producer.away = 2_000 <= ms < 3_500  # one report waits while nobody answers, and the newest follows it
            outbox.poll()
    assert [d["step"] for d in data(producer, "trainhouse.control")] == [0]
    assert [d["step"] for d in data(producer, "trainhouse.progress")] == [1000, 2000, 3550, 4550]
    rank.pump(5_001, final=True)
    outbox.poll()
    assert data(producer, "trainhouse.control")[-1]["step"] == 4950


def test_a_flood_is_cut_with_one_line_that_says_so_and_its_end_is_kept(tmp_path: Path) -> None:
    producer, limit = FakeProducer(), 200_000
    rank, outbox = shipper(tmp_path, producer, log_limit_bytes=limit)
    flood = b"".join(b"%09d\n" % n for n in range(300_000))
    with (tmp_path / "stderr.log").open("ab", buffering=0) as log:
        for begin in range(0, len(flood), 500_000):
            log.write(flood[begin : begin + 500_000])
            rank.pump(0)
    while not rank.shipped():
        rank.pump(0, final=True)
        outbox.poll()
    lines = [line for d in data(producer, "trainhouse.logs") for line in d["lines"]]
    assert lines[0] == "000000000" and lines[-1] == "000299999"
    assert len([x for x in lines if "trainhouse: stderr is over" in x]) == 1
    assert sum(len(x) + 1 for x in lines) < limit + KEPT_END_BYTES + 200_000 and rank.dropped_bytes > 2_000_000
    assert (tmp_path / "stderr.log").stat().st_size == len(flood)


def test_a_partial_line_does_not_make_the_loop_busy(tmp_path: Path) -> None:
    rank, _ = shipper(tmp_path, FakeProducer())
    (tmp_path / "spool.jsonl").write_bytes(b'["m", 1')
    (tmp_path / "stdout.log").write_bytes(b"no end")
    assert rank.pump(0) is False
    assert rank.pump(0) is False


def test_junk_in_a_spool_stops_nothing(tmp_path: Path) -> None:
    producer = FakeProducer()
    rank, outbox = shipper(tmp_path, producer)
    good = b'["m", 1, 2, {"loss": 1.5}]\n'
    (tmp_path / "spool.jsonl").write_bytes(good + b"\xff\xfe\n[]\n" + b'["e", "Bogus", {}, null]\n["p", {"step": -1}]\n' + good)
    rank.pump(0, final=True)
    outbox.poll()
    assert [d["steps"] for d in data(producer, "trainhouse.metrics")] == [[1, 1]] and rank.shipped()

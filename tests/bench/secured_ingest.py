"""Produced and consumed points/s on brokers that ask who it is (SASL/SCRAM, grants) beside ones that ask nobody.

Both brokers run at once, and turns alternate between them, so that what else the machine does meets both alike.
"""

import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from confluent_kafka import Consumer, TopicPartition

from tests.bench import report
from tests.bench.ingest import JOBS, POINTS_PER_RECORD, _record
from trainhouse.deploy.local.servers.kafka_broker import KafkaServer
from trainhouse.deploy.local.servers.kafka_sasl import BROKER, Account, client_section
from trainhouse.events import envelope_of
from trainhouse.events.bus.accounts import secure
from trainhouse.events.bus.admin import create_topics
from trainhouse.events.bus.kafka import EventProducer, consumer, partitions_of
from trainhouse.events.security.grants import OPERATOR, PRINCIPALS
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire import topics

TURNS = 7
RECORDS = 1_500
WAIT_S = 120.0
PASSWORD = "of-a-bench"  # pragma: allowlist secret


def run() -> None:
    """Prints both rates of both brokers, and their ratio by the median turn."""
    with TemporaryDirectory() as folder:
        open_server = KafkaServer(Path(folder) / "open")
        closed_server = KafkaServer(Path(folder) / "closed", account=Account(BROKER, PASSWORD))
        with open_server, closed_server:
            secure(closed_server.own_client, dict.fromkeys((*PRINCIPALS, OPERATOR), PASSWORD))
            open_ = KafkaSettings(bootstrap=open_server.bootstrap)
            create_topics(open_)
            create_topics(_as(closed_server, OPERATOR))
            # As in a stack: the agent writes metrics, the projector reads them.
            ways = {"plaintext": (open_, open_), "sasl": (_as(closed_server, "agent"), _as(closed_server, "projector"))}
            rates = _alternate(ways)
    found = {name: [statistics.median(rate) for rate in zip(*turns, strict=True)] for name, turns in rates.items()}
    produced, consumed = (found["sasl"][at] / found["plaintext"][at] for at in (0, 1))
    report.line(
        "secured_ingest",
        unit="points/s",
        points=RECORDS * POINTS_PER_RECORD,
        turns=TURNS,
        produced=found["sasl"][0],
        consumed=found["sasl"][1],
        peer={"plaintext_produced": found["plaintext"][0], "plaintext_consumed": found["plaintext"][1]},
        share_produced=produced,
        share_consumed=consumed,
        aim_share=0.9,
    )


def _as(server: KafkaServer, name: str) -> KafkaSettings:
    return KafkaSettings.model_validate({"bootstrap": server.bootstrap} | client_section(Account(name, PASSWORD)))


def _alternate(ways: dict[str, tuple[KafkaSettings, KafkaSettings]]) -> dict[str, list[tuple[float, float]]]:
    """Produced and consumed points/s of each turn; the first one of each way, in which everything is cold, does not count."""
    rates: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for turn in range(TURNS + 1):
        for name in sorted(ways, reverse=bool(turn % 2)):
            writes, reads = ways[name]
            found = (_produce(writes, turn), _consume(reads, (turn + 1) * RECORDS))
            if turn:
                rates[name].append(found)
    return rates


def _produce(settings: KafkaSettings, turn: int) -> float:
    envelopes = [
        (job, envelope_of(_record(job, turn), id=f"bench-{turn}-{record}", source="bench", now_ms=record))
        for record in range(RECORDS)
        for job in (record % JOBS,)
    ]
    producer = EventProducer(settings)
    (job, first), *rest = envelopes
    producer.send(topics.METRICS, first, key=f"job-{job}")
    producer.flush(WAIT_S)  # connected
    begin = time.perf_counter()
    for job, envelope in rest:
        producer.send(topics.METRICS, envelope, key=f"job-{job}")
    producer.flush(WAIT_S)
    return len(rest) * POINTS_PER_RECORD / (time.perf_counter() - begin)


def _consume(settings: KafkaSettings, records: int) -> float:
    """Reads the topic from its beginning; the clock runs from the first records on, when it is connected."""
    reader = consumer(settings, group="trainhouse-projector")
    reader.assign([TopicPartition(topics.METRICS, number, 0) for number in partitions_of(reader, topics.METRICS)])
    seen, late_s = 0, time.perf_counter() + WAIT_S
    while not seen:
        seen = _come(reader, late_s)
    begin, first = time.perf_counter(), seen
    while seen < records:
        seen += _come(reader, late_s)
    elapsed_s = time.perf_counter() - begin
    reader.close()
    return (records - first) * POINTS_PER_RECORD / elapsed_s


def _come(reader: Consumer, late_s: float) -> int:
    if time.perf_counter() > late_s:
        raise RuntimeError(f"not all records came in {WAIT_S:.0f} s")
    return sum(message.error() is None for message in reader.consume(1000, timeout=1.0))

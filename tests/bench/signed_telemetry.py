"""What it costs the builder of metrics to ask who sent each record: points/s and records/s, judged and unjudged, in one process.

A batch of signed records, in records of 500 points and in records of one. `unjudged` takes the same bytes as a topic that clients
alone write to.
"""

from __future__ import annotations

import time
from dataclasses import replace
from threading import Event as Flag

import pyarrow as pa

from tests.bench import report
from tests.support.spooled import points
from trainhouse.events import NodeKeyed, StepMetrics, encode, envelope_of
from trainhouse.events.security.signing import SigningKey
from trainhouse.events.wire import topics
from trainhouse.events.wire.codec import HEADERS
from trainhouse.projections.ingest.builders.step_metrics import MetricsBuilder
from trainhouse.projections.ingest.node_keys import NodeKeys
from trainhouse.projections.ingest.placements import Attempt, Placements
from trainhouse.projections.ingest.senders import Senders
from trainhouse.projections.record import Record

NODES, RECORDS, TIMES = 64, 4_000, 5
SIZES = (500, 1)


def run() -> None:
    """Prints one JSON line for each size of records."""
    nodes = {f"n{n}": SigningKey.made() for n in range(NODES)}
    keys = NodeKeys(required=True)
    for node_id, key in nodes.items():
        about = {"node_id": node_id, "pool": "default", "public_key": key.public_key, "at_ms": 1}
        keys.note(NodeKeyed.model_validate(about))
    senders = Senders(keys, Placements(lambda jobs: [(Attempt("job", 1, 0), node_id) for node_id in nodes]))
    for size in SIZES:
        records = [_record(n, size, *list(nodes.items())[n % NODES]) for n in range(RECORDS)]
        free = [replace(r, topic=topics.TRACKED_METRICS) for r in records]
        found: dict[str, float] = {"judged": 0.0, "unjudged": 0.0}
        for _ in range(TIMES):
            for name, batch in (("judged", records), ("unjudged", free)):
                found[name] = max(found[name], RECORDS / _seconds(senders, batch, size))
        report.line(
            "signed_telemetry",
            points_per_record=size,
            records_per_s=found,
            points_per_s={name: rate * size for name, rate in found.items()},
            share=found["judged"] / found["unjudged"],
        )
    senders.close()


def _seconds(senders: Senders, records: list[Record], size: int) -> float:
    builder, batch = MetricsBuilder(pa.schema([]), senders), list(records)
    began_s = time.perf_counter()
    builder.ready(batch, Flag())
    built = builder.build(batch, dict.fromkeys(builder.streams(batch), 0))
    took_s = time.perf_counter() - began_s
    if built.tables["step_metrics"].num_rows != RECORDS * size:
        raise RuntimeError(f"{built.tables['step_metrics'].num_rows} rows of {RECORDS * size}; {built.unreadable} refused")
    return took_s


def _record(number: int, size: int, node_id: str, key: SigningKey) -> Record:
    whose = {"job_id": "job", "epoch": 1, "attempt": 0, "rank": number % 1024, "node_id": node_id}
    first = number // 1024 * size
    event: StepMetrics = points(first, size, lambda step: 1_795_000_000_000 + step, {"loss": lambda step: 1 / (step + 1)}, **whose)
    value = encode(envelope_of(event, id=f"b-{number}", source="bench", now_ms=1))
    return Record(topics.METRICS, 0, number, 1_795_000_000_000, b"job", value, (*HEADERS, key.header(topics.METRICS, value)))

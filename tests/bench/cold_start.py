"""How long a process that starts cold takes until it has decided: a journal of a million records on a real broker, and a new Python process
that recovers, claims the partition and folds its own record. As many records as may lie between two snapshots follow the newest one.

The scheduler: 1,250 nodes of 8 devices and 500 running jobs. Intake: a directory with 300,000 finished jobs, for ever known. Times
are of the wall, from the start of the process on, the brokers' and the store's answers included; `cpu_s` is its processor time,
`queued_s` how long others had the processors meanwhile.
"""

import base64
import gc
import hashlib
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import orjson
from confluent_kafka import Producer

from tests.bench import report
from tests.bench.cold_process import FolderStore
from tests.bench.journal_gate import Stage
from tests.support.core_world import admitted
from trainhouse.deploy.local.free_ports import free_port
from trainhouse.deploy.local.servers.kafka_broker import KafkaServer
from trainhouse.events import JobAdmitted, JobId, JobSubmitted, encode, envelope_of
from trainhouse.events.bus.admin import create_topics, topic_id
from trainhouse.events.bus.kafka import producer_config
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.journal import SnapshotPointer
from trainhouse.events.wire.topics import DECISIONS, DIRECTORY, SNAPSHOTS
from trainhouse.scheduler.core.intake.directory import DirectoryMachine
from trainhouse.scheduler.core.intake.directory_state import DirectoryState
from trainhouse.scheduler.core.intake.fingerprint import fingerprint
from trainhouse.scheduler.core.protocol.batch import Limits, Proposer, pending
from trainhouse.scheduler.core.protocol.journal import Folded, fold_bytes
from trainhouse.scheduler.core.protocol.machine import Machine
from trainhouse.scheduler.core.protocol.snapshot_choice import object_key
from trainhouse.scheduler.stream.journal.snapshots import EVERY_RECORDS

T = TypeVar("T")
FINISHED = 300_000
RECORDS = 1_000_000
# Of a running fleet a record has a kilobyte and more; before the snapshot none of it is read.
OLD_RECORD = orjson.dumps({"seq": 0, "owner": "long gone", "decisions": ["x" * 1_000]})


def run() -> None:
    """Prints a line for the scheduler and one for intake."""
    with TemporaryDirectory() as folder, KafkaServer(Path(folder) / "kafka", port=free_port()) as server:
        kafka = KafkaSettings(bootstrap=server.bootstrap, partitions=1)
        create_topics(kafka)
        store = FolderStore(Path(folder) / "store")
        _scheduler(kafka, store)
        _intake(kafka, store)


def _scheduler(kafka: KafkaSettings, store: FolderStore) -> None:
    stage = Stage(7)
    stage.folded = replace(stage.folded, seq=RECORDS - EVERY_RECORDS - 1)
    last = _record(stage)
    begun, blob = stage.folded, stage.machine.dump(stage.folded.state)
    values = [_record(stage) for _ in range(EVERY_RECORDS)]
    _fill(kafka, DECISIONS, [last, *values])
    _point(kafka, store, DECISIONS, stage.machine, begun, blob)
    running = len(stage.folded.state.active)
    _report(kafka, store, DECISIONS, seq=RECORDS, running=running, snapshot_mb=len(blob) / 1e6, records_behind=len(values))


def _record(stage: Stage) -> bytes:
    stage.now_ms += 20
    proposed = Proposer(stage.machine, "bench").propose(stage.folded, stage.now_ms, stage.waiting(stage.inputs(4)), 0, tick=True)
    assert proposed is not None
    stage.folded, _ = fold_bytes(stage.machine, stage.folded, proposed.value, proposed.record)
    return proposed.value


def _intake(kafka: KafkaSettings, store: FolderStore) -> None:
    # The level before jobs are settled: all of them are in the snapshot.
    machine = DirectoryMachine(control_partitions=1).at(DirectoryMachine.lowest_level)
    tracemalloc.start()
    state, before = DirectoryState(0), tracemalloc.get_traced_memory()[0]
    state.put_pool("default", 0)
    event = admitted("j", ranks=8, device_type="h100", env={"A": "b"})
    assert isinstance(event, JobAdmitted)
    whole = fingerprint(event.spec)
    for number in range(FINISHED):
        state.put_job(f"training-run-{number:012}", "default", bytes(bytearray(whole)))
    gc.collect()
    job_bytes = (tracemalloc.get_traced_memory()[0] - before) / FINISHED
    tracemalloc.stop()
    folded = Folded(0, state, RECORDS - EVERY_RECORDS - 1, now_ms=1, level=machine.level)
    last = Proposer(machine, "bench").claim(folded, 0)
    folded, _ = fold_bytes(machine, folded, last.value)
    dump_s, blob = _took(lambda: machine.dump(folded.state))
    begun, values = folded, list[bytes]()
    for number in range(EVERY_RECORDS):
        submitted = JobSubmitted(job_id=JobId(f"new-{number}"), spec=event.spec)
        value = encode(envelope_of(submitted, id=f"e{number}", source="bench", now_ms=number))
        proposed = Proposer(machine, "bench").propose(folded, number, [pending(number, value, (), Limits())], 0, tick=True)
        assert proposed is not None
        folded, _ = fold_bytes(machine, folded, proposed.value, proposed.record)
        values.append(proposed.value)
    _fill(kafka, DIRECTORY, [last.value, *values])
    _point(kafka, store, DIRECTORY, machine, replace(begun, state=None), blob)
    more = {"finished": FINISHED, "job_bytes": job_bytes, "dump_s": dump_s, "aim_job_bytes": 200}
    _report(kafka, store, DIRECTORY, seq=RECORDS, snapshot_mb=len(blob) / 1e6, records_behind=len(values), **more)


def _fill(kafka: KafkaSettings, journal: str, newest: list[bytes]) -> None:
    """The journal whole: what lies before the newest records is never read, and has their size alone."""
    producer = Producer(producer_config(kafka, **{"queue.buffering.max.messages": 200_000, "linger.ms": 20}))
    for number in range(RECORDS - len(newest)):
        while True:
            try:
                producer.produce(journal, OLD_RECORD, partition=0)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1_000 == 0:
            producer.poll(0)
    for value in newest:
        producer.produce(journal, value, partition=0)
        producer.poll(0)
    assert not producer.flush(300)


def _point(kafka: KafkaSettings, store: FolderStore, journal: str, machine: Machine[Any], begun: Folded[Any], state: bytes) -> None:
    """The snapshot, and its pointer."""
    head = {"cursor": begun.cursor, "now_ms": begun.now_ms, "timed_ms": 0, "published_up_to": begun.seq, "frozen_version": 0}
    blob = orjson.dumps(head | {"state": base64.b64encode(state).decode(), "unpublished": []})
    sha256, of_topic = hashlib.sha256(blob).hexdigest(), topic_id(kafka, journal)
    key = object_key(journal, 0, begun.seq, of_topic, sha256)
    state_sha256 = hashlib.sha256(state).hexdigest()
    place = (journal, 0, of_topic, RECORDS - EVERY_RECORDS - 1, begun.seq, begun.last_hash, key, sha256, state_sha256)
    pointer = SnapshotPointer(*place, machine.name, machine.level)
    store.put(key, blob)
    producer = Producer(producer_config(kafka))
    producer.produce(SNAPSHOTS, pointer.encode(), key=pointer.key, partition=0)
    assert not producer.flush(60)


def _report(kafka: KafkaSettings, store: FolderStore, journal: str, *, seq: int, **figures: Any) -> None:
    begun_s = time.monotonic()
    argv = [sys.executable, "-m", "tests.bench.cold_process", journal, kafka.bootstrap, str(store.folder)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=300)
    told = orjson.loads(done.stdout.splitlines()[-1])
    assert told["seq"] > seq and not told["halted"], told
    times = {name: told[name] - begun_s for name in ("imported_s", "recovered_s", "decided_s")}
    more = figures | times | {"cpu_s": told["cpu_s"], "queued_s": told["queued_s"], "aim_decided_s": 5}
    report.line("cold_start", journal=journal, journal_records=RECORDS, **more)


def _took(work: Callable[[], T]) -> tuple[float, T]:
    begun = time.process_time()
    found = work()
    return time.process_time() - begun, found

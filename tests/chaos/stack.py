"""The stack under fault: pids of its parts and the clients that the driver needs, by the public command line and topics."""

import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.clock import Clocks
from tests.chaos.kept import Kept
from tests.chaos.outsiders import Outsiders
from tests.chaos.passage import Passage
from tests.chaos.proxy import Proxy
from tests.support.stack.live_stack import LiveStack
from tests.support.waiting import until
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.checkpointing.stores.s3 import S3ObjectStore
from trainhouse.deploy.local.errors import StackError
from trainhouse.deploy.local.layout import StackFolder, read_toml
from trainhouse.events import CancelJob, Event, InvalidEvent, JobSpec, JobStatus, JobSubmitted, UncordonNode, decode, envelope_of
from trainhouse.events.bus.kafka import TO_END, EventProducer, consumer, headers_of, read_to_end, watermarks
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire import topics

# So many ids of jobs for each partition of the directory that none of them gets no one.
PROBES = 16


@dataclass(frozen=True)
class ChaosStack:
    """A running stack, seen from outside, and the processes beside it. `attempts`: where each node's ranks have their files."""

    live: LiveStack
    kafka: KafkaSettings
    store: StoreSettings
    attempts: tuple[Path, ...]
    wire: Proxy
    clocks: Clocks
    kept: dict[str, Kept]
    passage: Passage | None = None
    outsiders: Outsiders = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "outsiders", Outsiders(StackFolder(self.live.data_dir)))

    @classmethod
    def of(
        cls, live: LiveStack, wire: Proxy, clocks: Clocks, kept: dict[str, Kept], *agents: Path, passage: Passage | None = None
    ) -> "ChaosStack":
        """A stack that runs, with agents of one's own in these folders."""
        settings = read_toml(live.data_dir / "trainhouse.toml")
        kafka, store = KafkaSettings.model_validate(settings["kafka"]), StoreSettings.model_validate(settings["s3"])
        attempts = tuple(folder / "attempts" for folder in (Path(settings["agent"]["dir"]), *agents))
        return cls(live, kafka, store, attempts, wire, clocks, kept, passage)

    @property
    def patient(self) -> KafkaSettings:
        """The brokers, for those who read topics: they wait longer for them than who does something to them."""
        return self.live.client_kafka()

    def pid(self, part: str) -> int | None:
        """The pid of a part that runs now, else None."""
        if part in self.kept:
            return self.kept[part].pid
        try:
            row = self.live.part(part)
        except StackError:
            return None
        return row.pid if row.pid > 0 and row.state == "RUNNING" else None

    def rows(self, query: str) -> list[dict[str, Any]]:
        """A query's rows; waits while the projector is on its way back."""
        done = until(lambda: found if (found := self.live.run("sql", query, "--json")).code == 0 else None, f"no answer to {query!r}")
        return done.objects()

    def objects(self) -> S3ObjectStore:
        """The object store."""
        return S3ObjectStore(self.store)

    def submit(self, job_id: str, spec: JobSpec) -> None:
        """Produces the submission and waits for its ack."""
        self._produce(job_id, JobSubmitted.model_validate({"job_id": job_id, "spec": spec}))

    def cancel(self, job_id: str) -> None:
        """Produces the request and waits for its ack."""
        self._produce(f"{job_id}-cancel", CancelJob.model_validate({"job_id": job_id, "reason": "the campaign cancels it"}))

    def nudge(self) -> None:
        """Asks something of the pool that is refused: intake and a scheduler append, publish and answer. Nothing while brokers are away."""
        event = UncordonNode.model_validate({"pool": "default", "node_id": "no-such-node", "reason": "a nudge", "user": "chaos"})
        with suppress(BusUnavailableError):
            self._produce(f"nudge-{time.monotonic_ns()}", event, 20)

    def _produce(self, event_id: str, event: Event, timeout_s: float = 150) -> None:
        producer = EventProducer(self.kafka)
        producer.send(topics.JOBS, envelope_of(event, id=event_id, source="chaos", now_ms=int(time.time() * 1000)))
        producer.flush(timeout_s)

    def poke(self) -> dict[tuple[str, int], int]:
        """Has every partition of both journals take an input in; where each journal ended before. Blocks for seconds."""
        reader = consumer(self.patient, group="chaos", log_level=0)
        try:
            places = [(topic, p) for topic in (topics.DECISIONS, topics.DIRECTORY) for p in range(self.kafka.partitions)]
            before = {place: watermarks(reader, *place, timeout_s=60)[1] for place in places}
        finally:
            reader.close()
        producer, now_ms = EventProducer(self.kafka), int(time.time() * 1000)
        for n in range(PROBES * self.kafka.partitions):
            event = CancelJob.model_validate({"job_id": f"probe-{n}", "reason": "every partition decides"})
            envelope = envelope_of(event, id=f"probe-{n}", source="chaos", now_ms=now_ms)
            producer.send(topics.JOBS, envelope)
            if n < self.kafka.partitions:
                producer.send(topics.CONTROL, envelope, partition=n)
        producer.flush(150)
        return before

    def statuses(self) -> dict[str, JobStatus]:
        """The newest status of every job, from the topic."""
        newest: dict[str, JobStatus] = {}
        reader = consumer(self.patient, group="chaos", log_level=0, **TO_END)
        try:
            for message in read_to_end(reader, topics.STATUS, range(self.kafka.partitions)):
                try:
                    event = decode(message.value(), headers_of(message)).event
                except InvalidEvent:
                    continue  # an outsider's
                if isinstance(event, JobStatus) and _counts(event, newest.get(event.subject())):
                    newest[event.subject()] = event
        finally:
            reader.close()
        return newest

    def ended(self, job_id: str) -> Callable[[], bool]:
        """A question whether the job has ended that never blocks: a thread asks the topic once a second until it has."""
        over = threading.Event()

        def ask() -> None:
            while not over.wait(1.0):
                try:
                    status = self.statuses().get(job_id)
                except Exception:
                    continue  # the broker is away: nobody knows
                if status is not None and status.state.final:
                    over.set()

        threading.Thread(target=ask, name=f"asks-{job_id}", daemon=True).start()
        return over.is_set

    def wait(self, job_id: str, timeout_s: float) -> JobStatus:
        """The final status of a job. Raises TimeoutError with the last one seen."""
        deadline = time.monotonic() + timeout_s
        status: JobStatus | None = None
        while time.monotonic() < deadline:
            try:
                status = self.statuses().get(job_id)
            except Exception as error:  # the broker may be on its way back: ask again until the deadline
                print(f"asking again: {error}", file=sys.stderr)
            if status is not None and status.state.final:
                return status
            time.sleep(0.5)
        raise TimeoutError(f"{job_id} has not ended in {timeout_s:.0f} s; last status: {status}")


def _counts(status: JobStatus, before: JobStatus | None) -> bool:
    """A request about a job that was refused has a status too, which says nothing of the job."""
    return before is None or status.status_seq >= before.status_seq

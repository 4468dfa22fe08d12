"""The stack under fault: pids of its parts and the clients that the driver needs, by the public command line and topics."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.live_stack import LiveStack
from trainhouse.checkpointing.objects import exists
from trainhouse.checkpointing.s3 import S3ObjectStore
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.deploy.local.errors import StackError
from trainhouse.deploy.local.layout import read_toml
from trainhouse.events import JobSpec, JobState, JobStatus, JobSubmitted, decode, envelope_of, topics
from trainhouse.events.kafka import TO_END, EventProducer, consumer, read_to_end
from trainhouse.events.settings import KafkaSettings


@dataclass(frozen=True)
class ChaosStack:
    """A running stack, seen from outside."""

    live: LiveStack
    kafka: KafkaSettings
    store: StoreSettings
    attempts: Path

    @classmethod
    def of(cls, live: LiveStack) -> "ChaosStack":
        """A stack that runs."""
        settings = read_toml(live.data_dir / "trainhouse.toml")
        kafka, store = KafkaSettings.model_validate(settings["kafka"]), StoreSettings.model_validate(settings["s3"])
        return cls(live, kafka, store, Path(settings["agent"]["dir"]) / "attempts")

    def pid(self, part: str) -> int | None:
        """The pid of a part that runs now, else None."""
        try:
            row = self.live.part(part)
        except StackError:
            return None
        return row.pid if row.pid > 0 and row.state == "RUNNING" else None

    def rows(self, query: str) -> list[dict[str, Any]]:
        """A query's rows; waits while the projector is on its way back."""
        for _ in range(60):
            done = self.live.run("sql", query, "--json")
            if done.code == 0:
                return done.objects()
            time.sleep(0.5)
        raise RuntimeError(f"no answer to {query!r}: {done.err[-2000:]}")

    def object_exists(self, uri: str) -> bool:
        """Whether the object store has what an s3:// URI names."""
        key = uri.removeprefix("s3://").partition("/")[2]
        return exists(S3ObjectStore(self.store), key)

    def submit(self, job_id: str, spec: JobSpec) -> None:
        """Produces the submission and waits for its ack."""
        producer = EventProducer(self.kafka)
        now_ms = int(time.time() * 1000)
        producer.send(
            topics.JOBS,
            envelope_of(JobSubmitted.model_validate({"job_id": job_id, "spec": spec}), id=job_id, source="chaos", now_ms=now_ms),
        )
        producer.flush(60)

    def statuses(self) -> dict[str, JobStatus]:
        """The newest status of every job, from the topic."""
        newest: dict[str, JobStatus] = {}
        reader = consumer(self.kafka, group="chaos", log_level=0, **TO_END)
        try:
            for message in read_to_end(reader, topics.STATUS, range(self.kafka.partitions)):
                event = decode(message.value(), message.headers()).event
                if isinstance(event, JobStatus):
                    newest[event.subject()] = event
        finally:
            reader.close()
        return newest

    def ended(self, job_id: str) -> Callable[[], bool]:
        """A cheap question whether the job has ended: asked of the topic at most once a second, False while the broker is away."""
        last = {"asked": 0.0, "answer": False}

        def ask() -> bool:
            if time.monotonic() - last["asked"] > 1.0 and not last["answer"]:
                last["asked"] = time.monotonic()
                try:
                    status = self.statuses().get(job_id)
                    last["answer"] = status is not None and status.state.final
                except Exception:
                    last["answer"] = False
            return bool(last["answer"])

        return ask

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


SUCCEEDED = JobState.SUCCEEDED

"""Senders of the registrations that specs ask for, on a real broker: killed with SIGKILL again and again, each job asks under one id."""

from __future__ import annotations

import asyncio
import multiprocessing
import secrets
import time
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.support.waiting import until
from trainhouse.events import JobState, JobStatus, ModelRegistered, decode, envelope_of
from trainhouse.events.bus.admin import create_topics
from trainhouse.events.bus.kafka import consumer, headers_of, read_to_end
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.codec import encode
from trainhouse.events.wire.topics import MODEL_REQUESTS, STATUS

pytestmark = pytest.mark.stack
JOBS = 60
KILLS = 4


def watch(bootstrap: str) -> None:
    """One process of intake, as far as it sends registrations; its store takes its time, and its registry answers what was sent."""
    from tests.support.registry_requests import Registry, content_of, facts_of, observed
    from trainhouse.events.runtime.clock import SystemClock
    from trainhouse.scheduler.core.protocol.machine import Input
    from trainhouse.scheduler.core.registry.registry_state import RegistryState
    from trainhouse.scheduler.stream.kafka.log import KafkaLog
    from trainhouse.scheduler.stream.registry.job_end_watch import JobEndWatch, JobRegistrations

    class Store:
        def prepare(self, checkpoint: Any) -> str:
            time.sleep(0.02)
            return content_of(checkpoint.commit)

    registry = Registry()

    class AnsweredLog(KafkaLog):
        async def send(self, topic: str, key: bytes, value: bytes | None) -> None:
            await super().send(topic, key, value)
            registry.asked += 1
            registry.record([Input(registry.asked, decode(value or b"", ()))])

    def answered() -> RegistryState:
        for held in list(registry.state.held.values()):
            asked = held.registered
            facts = facts_of(asked.commit or 0, project=asked.project)
            registry.ask(observed(str(held.request_id), facts, project=asked.project, name=asked.name, digest=held.digest))
        return registry.state

    async def run() -> None:
        settings = KafkaSettings(bootstrap=bootstrap)
        store: Any = Store()
        registrations = JobRegistrations(AnsweredLog(settings), SystemClock(), store, answered)
        await JobEndWatch(settings, SystemClock(), [registrations], session_s=2.0).run()

    asyncio.run(run())


@pytest.mark.timeout(300)
def test_senders_that_are_killed_ask_for_each_job_under_one_id(kafka: str) -> None:
    settings = KafkaSettings(bootstrap=kafka)
    create_topics(settings)
    model = f"killed-{secrets.token_hex(4)}"
    jobs = [f"{model}-{number}" for number in range(JOBS)]
    producer = Producer({"bootstrap.servers": kafka})
    for number, job in enumerate(jobs):
        producer.produce(STATUS, encode(envelope_of(status(job, model, number), id=f"{job}:9", source="tests", now_ms=1)), key=job)
    producer.flush(30)
    spawning = multiprocessing.get_context("spawn")
    asked: dict[str, set[tuple[Any, ...]]] = {}
    for kill in range(KILLS + 1):
        process = spawning.Process(target=watch, args=(kafka,), daemon=True)
        process.start()
        wanted = JOBS if kill == KILLS else (kill + 1) * JOBS // (KILLS + 2)
        until(lambda: len(requests(settings, model)) >= wanted, f"{wanted} requests")  # noqa: B023
        process.kill()
        process.join(30)
        asked = requests(settings, model)
    assert set(asked) == {f"{job}:registered" for job in jobs}
    assert all(len(each) == 1 for each in asked.values()), "what is sent again is the same"


def status(job: str, model: str, number: int) -> JobStatus:
    """The last status of a job."""
    fields: dict[str, Any] = {"job_id": job, "status_seq": 9, "state": JobState.SUCCEEDED, "project": "default", "user": "ada"}
    checkpoint = {"commit": number, "step": 1, "uri": "s3://b", "completed_at_ms": 1}
    return JobStatus.model_validate(fields | {"registers": model, "last_checkpoint": checkpoint, "finished_at_ms": 1_000 + number})


def requests(settings: KafkaSettings, model: str) -> dict[str, set[tuple[Any, ...]]]:
    """By event id: what was asked under it, and as of when."""
    found: dict[str, set[tuple[Any, ...]]] = {}
    reader = consumer(settings, log_level=0, **{"enable.partition.eof": True})
    try:
        for message in read_to_end(reader, MODEL_REQUESTS, [0]):
            envelope = decode(message.value(), headers_of(message))
            event = envelope.event
            if isinstance(event, ModelRegistered) and event.name == model:
                found.setdefault(str(envelope.id), set()).add((envelope.source, envelope.time_ms, event.model_dump_json()))
    finally:
        reader.close()
    return found

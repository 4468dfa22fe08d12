"""On a whole stack nothing counts that is not signed, from whoever has the password of another process: jobs, nodes, commands."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from tests.support.stack.live_stack import LiveStack
from tests.support.waiting import until
from trainhouse.client.errors import UnknownJobError
from trainhouse.deploy.local.client_config import part_config
from trainhouse.deploy.local.layout import StackFolder, read_toml
from trainhouse.events import (
    AttemptStopped,
    CheckpointStarted,
    Event,
    ExecuteCommand,
    JobAdmitted,
    JobSpec,
    JobState,
    JobStatus,
    LogLines,
    OperationReplied,
    SignatureRefused,
    StepMetrics,
    decode,
    envelope_of,
)
from trainhouse.events.bus.kafka import TO_END, EventProducer, consumer, partitions_of, read_to_end
from trainhouse.events.model.tracking import EnvironmentCaptured
from trainhouse.events.runtime.clock import wall_ms
from trainhouse.events.security.signing import SigningKey
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire import topics

BEGUN = (JobState.INITIALIZING, JobState.RUNNING)
pytestmark = pytest.mark.stack


def of_part(stack: LiveStack, part: str) -> KafkaSettings:
    """The account of a part of the stack, as who read its file would have it."""
    return KafkaSettings.model_validate(read_toml(part_config(StackFolder(stack.data_dir), part))["kafka"])


def said(stack: LiveStack, topic: str) -> list[Event]:
    reader = consumer(stack.client().kafka, **TO_END)
    try:
        return [decode(m.value(), m.headers()).event for m in read_to_end(reader, topic, partitions_of(reader, topic))]
    finally:
        reader.close()


def claims(stack: LiveStack) -> set[str]:
    """In whose names something was said that was refused."""
    return {event.claimed for event in said(stack, topics.VERDICTS) if isinstance(event, SignatureRefused)}


def begun(stack: LiveStack, job: str) -> JobStatus:
    """The job's status when its ranks have processes; a program that reports nothing is said to run only later."""

    def look() -> JobStatus | None:
        try:
            status = stack.client().status(job)
        except UnknownJobError:
            return None
        return status if status.state in BEGUN else None

    return until(look, f"job {job} has not begun")


def send(
    kafka: KafkaSettings, topic: str, event: Event, *, partition: int | None = None, key: str = "", signing: SigningKey | None = None
) -> str:
    """Without a signature where no key is given; the event's id."""
    name, producer = f"forged-{secrets.token_hex(4)}", EventProducer(kafka)
    producer.signing = signing
    envelope = envelope_of(event, id=name, source="somebody", now_ms=wall_ms())
    if partition is None:
        producer.send(topic, envelope, key=key)
    else:
        producer.send(topic, envelope, partition=partition)
    producer.flush()
    return name


def test_who_has_an_agents_password_neither_starts_nor_ends_a_job(stack: LiveStack) -> None:
    job = stack.ok("submit", "--no-code", "--", "python", "-c", "import time; time.sleep(3600)").strip()
    status = begun(stack, job)
    (at,) = status.allocation
    spec = JobSpec.model_validate({"name": "forged", "runtime": {"command": ["true"]}})
    forged = f"forged-{secrets.token_hex(4)}"
    admitted = JobAdmitted.model_validate(
        {"job_id": forged, "spec": spec, "spec_sha256": "ab" * 32, "submission_id": forged, "submitted_at_ms": wall_ms()}
    )
    stopped = AttemptStopped.model_validate(
        {"job_id": job, "attempt": status.attempt, "epoch": status.epoch, "node_id": at.node_id, "boot_id": at.boot_id}
        | {"pool": status.pool, "stopped_at_ms": wall_ms()}
    )
    agent = of_part(stack, "agent")
    for event in (admitted, stopped):
        for partition in range(len(_partitions(agent))):
            send(agent, topics.CONTROL, event, partition=partition)
    wanted = {f"node {at.node_id}", f"job {forged}"}
    until(lambda: claims(stack) >= wanted, lambda: claims(stack))
    after = stack.client().status(job)
    assert after.state in BEGUN and after.epoch == status.epoch
    assert not [e for e in said(stack, topics.STATUS) if getattr(e, "job_id", "") == forged]
    stack.ok("cancel", job, "--wait")


def test_agents_obey_no_request_that_nobody_signed(stack: LiveStack, tmp_path: Path) -> None:
    job = stack.ok("submit", "--no-code", "--", "python", "-c", "import time; time.sleep(3600)").strip()
    status = begun(stack, job)
    (at,) = status.allocation
    mark, request = tmp_path / "ran", secrets.token_hex(8)
    command = ("python", "-c", f"open({str(mark)!r}, 'w')")
    asked = {"request_id": request, "node_id": at.node_id, "job_id": job, "expires_at_ms": wall_ms() + 60_000}
    event = ExecuteCommand.model_validate(asked | {"rank": 0, "command": command, "timeout_s": 30.0})
    send(stack.client().kafka, topics.OPERATIONS, event, key=str(at.node_id))

    def replies() -> list[OperationReplied]:
        return [e for e in said(stack, topics.OPERATION_REPLIES) if isinstance(e, OperationReplied) and e.request_id == request]

    (reply,) = until(replies, "an answer")
    assert reply.done and "it is not signed" in reply.text and not mark.exists()
    # By the same account, signed with the key of the person whose stack this is.
    assert stack.run("exec", job, "--rank", "0", "--", "echo", "signed").out.strip() == "signed"
    stack.ok("cancel", job, "--wait")


def test_who_has_an_agents_password_tells_no_point_of_a_job(stack: LiveStack) -> None:
    """What a job's node says of it is shown, whatever others said before; what they said is a dead letter with the reason."""
    job = stack.ok("submit", "--no-code", "--", "python", "-c", "import time; print('own', flush=True); time.sleep(3600)").strip()
    status = begun(stack, job)
    (at,) = status.allocation
    whose = {"job_id": job, "attempt": status.attempt, "epoch": status.epoch}
    named = whose | {"rank": 0, "node_id": at.node_id, "start": 0, "end": 2**40, "offsets": (0,)}
    forged: list[tuple[str, Event]] = [
        (topics.METRICS, StepMetrics.model_validate(named | {"steps": (1,), "times_ms": (wall_ms(),), "metrics": {"forged": (1.0,)}})),
        (topics.LOGS, LogLines.model_validate(named | {"stream": "stdout", "lines": ("forged",), "read_at_ms": wall_ms()})),
        (topics.CHECKPOINTS, CheckpointStarted.model_validate(whose | {"step": 1, "reason": "forged", "at_ms": wall_ms()})),
        (topics.ENVIRONMENTS, EnvironmentCaptured.model_validate(whose | {"rank": 0, "host": "forged", "at_ms": wall_ms()})),
    ]
    agent = of_part(stack, "agent")
    for topic, event in forged:
        send(agent, topic, event, key=job)
        send(agent, topic, event, key=job, signing=SigningKey.made())
    letters = f"SELECT topic, reason FROM dead_letters WHERE job_id = '{job}'"
    until(lambda: len(stack.rows(letters)) == 2 * len(forged), lambda: stack.rows(letters))
    assert {row["topic"] for row in stack.rows(letters)} == {topic for topic, _ in forged}
    assert all("not signed" in row["reason"] or "another key" in row["reason"] for row in stack.rows(letters))
    lines = f"SELECT DISTINCT line FROM logs WHERE job_id = '{job}'"
    until(lambda: stack.rows(lines) == [{"line": "own"}], lambda: stack.rows(lines))
    hidden = {"step_metrics": "metric = 'forged'", "checkpoint_facts": "reason = 'forged'", "job_environments_rows": "host = 'forged'"}
    for table, where in hidden.items():
        assert not stack.rows(f"SELECT 1 FROM {table} WHERE job_id = '{job}' AND {where}")
    stack.ok("cancel", job, "--wait")


def _partitions(kafka: KafkaSettings) -> list[int]:
    reader = consumer(kafka, **TO_END)
    try:
        return list(partitions_of(reader, topics.CONTROL))
    finally:
        reader.close()


def test_a_rebuild_beside_a_running_stack_ends_and_has_what_ranks_told(stack: LiveStack, tmp_path: Path) -> None:
    """The journal of a scheduler that runs has always gone on by the time that a checkpoint is judged: it waited for ever."""
    job = f"rebuilt-{secrets.token_hex(3)}"
    program = ("python", "-m", "trainhouse.workers.examples.gpt", "--steps", "30", "--width", "64", "--checkpoint-every", "10")
    stack.ok("submit", "--no-code", "--wait", "--id", job, "--", *program)
    tables = {row["table"]: row["rows"] for row in stack.run("projections", "rebuild", "--json", "--into", str(tmp_path / "new")).objects()}
    assert tables["checkpoint_facts"] > 0 and tables["job_environments_rows"] > 0

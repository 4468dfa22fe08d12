"""One suite over both ways in: by Kafka and by the gateway the same calls give the same answers."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.stack.live_stack import Done, LiveStack
from tests.support.waiting import until
from trainhouse.client import (
    AsyncClient,
    ChangeRefusedError,
    Happening,
    InvalidSpecError,
    JobFilter,
    QueryError,
    TrainhouseClient,
    UnknownJobError,
    connect,
)
from trainhouse.client.gateway.backend import AT_ONCE
from trainhouse.client.quick.quick_reads import GatewayReads, TableReads, quick_reads
from trainhouse.events import JobState, JobStatus
from trainhouse.events.model.explanation import JobExplained

WAIT_S = 480
TRAIN = """
import torch
from trainhouse.workers import Session
session = Session.start()
model = torch.nn.Linear(2, 1)
session.track(model=model)
for step in session.steps(20, save_every_steps=10):
    session.log(loss=1 / (step + 1), odd=float("nan") if step == 3 else 1.0)
print("trained <b>here</b>")
"""
SLEEP = ["python", "-c", "import time; print('up', flush=True); time.sleep(3600)"]


@dataclass(frozen=True)
class Ways:
    """Both ways into one stack, and the environment of a laptop that has the gateway alone."""

    kafka: TrainhouseClient
    gateway: TrainhouseClient
    laptop: dict[str, str]

    def run(self, *arguments: str, cwd: Path) -> Done:
        """A command of the laptop's."""
        command = [sys.executable, "-m", "trainhouse.cli.main", *arguments]
        done = subprocess.run(command, env=self.laptop, cwd=cwd, capture_output=True, text=True, timeout=WAIT_S, check=False)
        return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def ways(stack: LiveStack) -> Iterator[Ways]:
    told = dict(line.removeprefix("export ").split("=", 1) for line in stack.ok("env").splitlines())
    found = {name: value.strip("'\"") for name, value in told.items()}
    names = ("TRAINHOUSE_GATEWAY_URL", "TRAINHOUSE_GATEWAY_TOKEN")
    laptop = {k: v for k, v in os.environ.items() if not k.startswith("TRAINHOUSE_")} | {n: found[n] for n in names} | {"COLUMNS": "200"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in found.items():
            patch.setenv(name, value)
        yield Ways(connect(), connect(gateway=found[names[0]], token=found[names[1]]), laptop)


@pytest.fixture(params=["kafka", "gateway"])
def client(request: pytest.FixtureRequest, ways: Ways) -> TrainhouseClient:
    chosen = getattr(ways, request.param)
    assert isinstance(chosen, TrainhouseClient)
    return chosen


@pytest.fixture(scope="module")
def trained(ways: Ways) -> str:
    """A job that trained and ended, submitted by the gateway and seen whole by the tables."""
    job = ways.gateway.submit(command=["python", "-c", TRAIN], name="ways", user="ways-user", limits={"restarts": 0})
    assert job.wait(WAIT_S).state is JobState.SUCCEEDED, [line.text for line in job.logs(tail=20)]
    sql = ways.kafka.sql
    lines = f"SELECT count() FROM logs WHERE job_id = '{job.job_id}' AND line LIKE 'trained%'"
    until(lambda: sql.table(lines).rows[0][0] and ways.kafka.metrics(job.job_id).num_rows == 40, "its lines and points", WAIT_S)
    until(lambda: [c["step"] for c in ways.kafka.checkpoints(job.job_id)] == [10, 20], "its checkpoints", WAIT_S)

    def story_so_far() -> str:
        return "\n".join(f"{event.type} {event.summary}" for event in ways.kafka.events(job.job_id))

    # The last that topics tell of a job; each topic comes in its own time.
    until(lambda: all(end in story_so_far() for end in ("attempt.stopped", "SUCCEEDED")), story_so_far, WAIT_S)
    return str(job.job_id)


def test_both_ways_tell_the_same_of_a_job(ways: Ways, trained: str) -> None:
    one, other = ways.kafka.job(trained), ways.gateway.job(trained)
    assert known(one.status()) == known(other.status())
    assert [story(e) for e in one.events()] == [story(e) for e in other.events()]
    assert [story(e) for e in one.events("checkpoint")] == [story(e) for e in other.events("checkpoint")] != []
    assert list(one.logs()) == list(other.logs()) and "trained <b>here</b>" in [line.text for line in other.logs(tail=1)]
    assert one.checkpoints() == other.checkpoints() and [c["step"] for c in other.checkpoints()] == [10, 20]
    assert ways.kafka.spec(trained) == ways.gateway.spec(trained) is not None
    assert one.why() is None is other.why()
    # A node of a test before, which has just ended, may be given up between the two answers.
    until(lambda: nodes(ways.kafka) == nodes(ways.gateway), lambda: f"{nodes(ways.kafka)}\n{nodes(ways.gateway)}")
    assert [r["pool"] for r in ways.kafka.way.pools()] == [r["pool"] for r in ways.gateway.way.pools()]
    mine = JobFilter(user="ways-user")
    pairs = list(zip(ways.kafka.jobs(mine), ways.gateway.jobs(mine), strict=True))
    assert pairs and all({n: a[n] for n in a if n in b} == {n: b[n] for n in a if n in b} for a, b in pairs)


def test_metrics_are_one_table_over_both_ways(ways: Ways, trained: str) -> None:
    one, other = ways.kafka.job(trained).metrics(), ways.gateway.job(trained).metrics()
    assert one.schema == other.schema and one.to_pandas().equals(other.to_pandas()) and one.num_rows == 40
    loss = other.to_pandas().query("metric == 'loss'")
    assert loss["value"].tolist() == [1 / (step + 1) for step in range(20)]
    assert ways.gateway.job(trained).metrics("nothing").num_rows == ways.kafka.job(trained).metrics("nothing").num_rows == 0
    curves = [client.curve(trained, "loss", 10) for client in (ways.kafka, ways.gateway)]
    assert [next(p["greatest"] for p in curve) for curve in curves] == [1.0, 1.0]
    last = [{m["metric"]: m["value"] for m in client.last_metrics(trained)} for client in (ways.kafka, ways.gateway)]
    assert last[0] == last[1] == {"loss": 0.05, "odd": 1.0}
    some = [client.last_metrics(trained, ["odd", "mfu"]) for client in (ways.kafka, ways.gateway)]
    assert [[m["metric"] for m in rows] for rows in some] == [["odd"], ["odd"]]


def test_quick_reads_answer_as_the_client_does(client: TrainhouseClient, ways: Ways, trained: str) -> None:
    """What commands show, they read without models and Kafka; over the gateway without its HTTP library too."""
    over_gateway = client is ways.gateway
    environment = ways.laptop if over_gateway else dict(os.environ)
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("TRAINHOUSE_")]:
            patch.delenv(name)
        for name, value in environment.items():
            patch.setenv(name, value)
        quick = quick_reads()
    assert isinstance(quick, GatewayReads if over_gateway else TableReads)
    status = quick.status(trained)
    assert known(JobStatus.model_validate(status)) == known(client.status(trained))
    assert status == JobStatus.model_validate(status).model_dump(mode="json"), "the same fields, in the same form"
    assert quick.events(trained, "checkpoint", None, None) == list(client.events(trained, kind="checkpoint")) != []
    lines = list(quick.lines(trained, 0, None, None, 2).more())
    assert lines == list(client.lines(trained, rank=0, tail=2).more()) != []
    assert quick.checkpoints(trained) == client.checkpoints(trained) != []
    assert quick.checkpoint_tags(trained) == client.checkpoint_tags(trained)
    assert quick.artifacts(trained) == client.artifacts(trained)
    assert quick.last_metrics(trained, ["loss"]) == client.last_metrics(trained, ["loss"]) != []
    assert quick.jobs(JobFilter(user="ways-user"), 9) == client.jobs(JobFilter(user="ways-user"), 9) != []
    assert quick.alert_causes() == client.way.alert_causes()
    assert [row["node_id"] for row in quick.nodes()] == [row["node_id"] for row in client.way.nodes()]
    assert quick.sql.table("SELECT 41 + 1 AS n").rows == ((42,),)


def test_a_waiting_job_and_one_that_runs_are_read_quickly_as_they_are(client: TrainhouseClient, ways: Ways, stack: LiveStack) -> None:
    held = client.submit(command=SLEEP, gang=stack.slots, user="ways-user")
    assert next(s for s in held.follow(WAIT_S) if s.state is JobState.RUNNING)
    waits = client.submit(command=["true"], gang=stack.slots, user="ways-user")
    quick = quick_reads()
    assert isinstance(quick, TableReads), "the environment of this module names all addresses"
    job = str(held.job_id)
    until(lambda: quick.status(job) == ways.kafka.status(job).model_dump(mode="json"), lambda: str(quick.status(job)), WAIT_S)
    status = quick.status(job)
    assert status is not None and sum(len(part["devices"]) for part in status["allocation"]) == stack.slots
    found = until(lambda: quick.why(str(waits.job_id)), "the scheduler's explanation", WAIT_S)
    # Of every field the same, but for what a moment later changes.
    said = JobExplained.model_validate(found)
    assert found == said.model_dump(mode="json") and said.waiting_since_ms and said.needs == f"{stack.slots} devices"
    told = json.loads(stack.ok("why", str(waits.job_id), "--json"))
    assert told["needs"] == said.needs and told["obstacle"] == said.obstacle
    held.cancel()
    waits.cancel()
    assert {held.wait(WAIT_S).state, waits.wait(WAIT_S).state} <= {JobState.CANCELLED, JobState.SUCCEEDED}


def test_first_statuses_of_many_jobs(client: TrainhouseClient) -> None:
    """More than a gateway client asks at a time, one of which is refused."""
    fleet = [client.submit(command=["true"], user="ways-first", name=f"first-{n}") for n in range(AT_ONCE + 2)]
    refused = client.submit(command=["true"], user="ways-first", pool="no-such-pool")
    found = client.first_statuses([*fleet, refused], WAIT_S)
    assert list(found) == [str(job.job_id) for job in (*fleet, refused)]
    states = {job_id: status.state if status is not None else None for job_id, status in found.items()}
    assert states.pop(str(refused.job_id)) is JobState.REJECTED
    assert not {None, JobState.REJECTED} & set(states.values()), states
    assert client.first_statuses(fleet[:1], 0.0).get(str(fleet[0].job_id)) is None, "there was no time to ask"
    assert {job.wait(WAIT_S).state for job in fleet} == {JobState.SUCCEEDED}


LAST_LINES = "print('begun', flush=True)\nfor n in range(30_000):\n    print('line', n)\n"


def test_a_job_that_is_waited_for_shows_each_line_that_it_wrote_at_its_end(ways: Ways, stack: LiveStack, tmp_path: Path) -> None:
    (tmp_path / "many.py").write_text(LAST_LINES)
    for run in (stack.run, ways.run):
        done = run("submit", "--wait", "--", "python", "many.py", cwd=tmp_path)
        assert done.code == 0, done.err
        assert [line for line in done.lines if line.startswith("line ")] == [f"line {n}" for n in range(30_000)], done.err
        state = json.loads(run("status", done.lines[0], "--json", cwd=tmp_path).out)["state"]
        assert state == "SUCCEEDED", "the next command knows it"


def nodes(client: TrainhouseClient) -> list[dict[str, Any]]:
    """What both ways know of each node."""
    shared = ("node_id", "pool", "state", "restriction", "devices", "device_type")
    return [{name: row[name] for name in shared} for row in client.way.nodes()]


def known(status: JobStatus) -> JobStatus:
    """Without the places of ranks, which the gateway leaves out, and when the checkpoint was completed."""
    saved = status.last_checkpoint
    return status.model_copy(update={"allocation": (), "last_checkpoint": saved and saved.model_copy(update={"completed_at_ms": 0})})


def story(event: Happening) -> tuple[int, str, str, str]:
    return event.at_ms, event.type, event.summary, event.event_id


def test_a_job_is_followed_changed_and_cancelled(client: TrainhouseClient) -> None:
    job = client.submit(command=SLEEP, name="ways-sleep", user="ways-user")
    assert next(s for s in job.follow(WAIT_S) if s.state is JobState.INITIALIZING or s.state is JobState.RUNNING)
    told = job.change(priority=7, restarts=9)
    assert told is not None and (told.priority, told.limits.restarts, told.limits.grace_s) == (7, 9, 15.0)
    assert job.change(priority=7, restarts=9) is None
    until(lambda: "up" in [line.text for line in job.logs()], "its first line", WAIT_S)
    job.cancel("enough")
    last = job.wait(WAIT_S)
    assert last.state is JobState.CANCELLED and "enough" in last.reason
    assert "up" in [line.text for line in job.logs(follow=True)]
    with pytest.raises(ChangeRefusedError):
        job.change(priority=9)


def test_what_cannot_be_is_refused_alike(client: TrainhouseClient) -> None:
    with pytest.raises(UnknownJobError, match="no job"):
        client.status("nothing-like-that")
    with pytest.raises(UnknownJobError):
        client.why("nothing-like-that")
    with pytest.raises(InvalidSpecError, match="gang"):
        client.submit(command=["true"], gang=-1)
    with pytest.raises(QueryError):
        client.sql.table("SELECT nothing FROM nowhere")
    with pytest.raises(QueryError):
        client.sql.table("INSERT INTO jobs_rows VALUES (1)")
    refused = client.submit(command=["true"], pool="no-such-pool").wait(WAIT_S)
    assert refused.state is JobState.REJECTED and "no-such-pool" in refused.reason


def test_an_id_belongs_to_its_first_spec(client: TrainhouseClient) -> None:
    chosen = f"ways-id-{type(client.way).__name__.lower()}-{os.getpid()}"
    first = client.submit(command=["true"], job_id=chosen)
    assert first.wait(WAIT_S).state is JobState.SUCCEEDED
    assert client.submit(command=["true"], job_id=chosen).wait(WAIT_S).state is JobState.SUCCEEDED
    assert client.submit(command=["false"], job_id=chosen).wait(WAIT_S).state is JobState.REJECTED
    assert client.status(chosen).state is JobState.SUCCEEDED


def test_a_waiting_job_tells_why(client: TrainhouseClient, stack: LiveStack) -> None:
    held = client.submit(command=SLEEP, gang=stack.slots, user="ways-user")
    assert next(s for s in held.follow(WAIT_S) if s.allocated_at_ms is not None)
    waits = client.submit(command=["true"], gang=stack.slots, user="ways-user")
    until(lambda: (waits.why() if waits.status().state is JobState.PENDING else None) is not None, timeout_s=WAIT_S)
    held.cancel()
    waits.cancel()
    assert {held.wait(WAIT_S).state, waits.wait(WAIT_S).state} <= {JobState.CANCELLED, JobState.SUCCEEDED}


def test_the_asynchronous_client_does_the_same(client: TrainhouseClient) -> None:
    async def work() -> tuple[JobState, int]:
        async with AsyncClient(client) as asynchronous:
            job = await asynchronous.submit(command=["true"], name="ways-async")
            last = await job.wait(WAIT_S)
            with pytest.raises(UnknownJobError):
                await asynchronous.status("nothing-like-that")
            async with asyncio.timeout(WAIT_S):
                while len(events := await job.events()) < 4:  # tables are behind the status
                    await asyncio.sleep(0.1)
            return last.state, len(events)

    state, events = asyncio.run(work())
    assert state is JobState.SUCCEEDED and events >= 4


def test_a_laptop_with_the_gateway_alone(ways: Ways, trained: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('from my folder')\n")
    done = ways.run("submit", "--wait", "--", "python", "train.py", cwd=tmp_path)
    assert done.code == 0, done.err
    job = done.lines[0]
    assert "from my folder" in ways.run("logs", job, "-f", cwd=tmp_path).out
    for words, shown in (
        (("status", trained), "SUCCEEDED"),
        (("events", trained), "job.submitted.v1"),
        (("checkpoints", trained), "COMPLETED"),
        (("nodes",), "ALIVE"),
        (("pool", "show"), "default"),
        (("sql", "SELECT 41 + 1 AS n"), "42"),
    ):
        done = ways.run(*words, cwd=tmp_path)
        assert done.code == 0 and shown in done.out, (words, done)
    assert ways.run("alerts", "--json", cwd=tmp_path).code == 0
    assert ways.run("rerun", job, "--wait", cwd=tmp_path).code == 0
    assert ways.run("why", trained, cwd=tmp_path).code == 66
    assert ways.run("status", "nothing-like-that", cwd=tmp_path).code == 66
    assert ways.run("replay", "--verify", cwd=tmp_path).code == 78

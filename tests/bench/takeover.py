"""kill -9 of the scheduler that decides, until its standby does: by the journal's silence, against a consumer group's session alone.

Both are two schedulers without a supervisor in one group, of the same code; the peer's never stand in (`takeover_s` is an hour), so that
the group's coordinator must notice the death and give the partition away, as with any Faust or Kafka Streams application.
"""

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from tests.bench import report
from tests.bench.stack import BenchStack, bench_stack
from tests.support.stack.takeover import Takeover, Watch
from tests.support.waiting import until
from trainhouse.deploy.local.bootstrap import PARTITION
from trainhouse.deploy.local.layout import StackFolder
from trainhouse.deploy.local.servers.server_process import die_with_parent
from trainhouse.deploy.local.supervision import supervisor_client
from trainhouse.events import JobSpec, JobSubmitted, envelope_of
from trainhouse.events.bus.kafka import EventProducer
from trainhouse.events.wire import topics

KILLS = 6
NEVER_S = "3600"
_numbers = count()


def run() -> None:
    """Prints p50 and the worst of each, in the same run, on the same machine."""
    with bench_stack(slots=4) as stack:
        supervisor_client.proxy(StackFolder(stack.data_dir)).supervisor.stopProcess("processors:scheduler")
        ours = _kills(stack, {})
        theirs = _kills(stack, {"TRAINHOUSE_SCHEDULER_TAKEOVER_S": NEVER_S})
    records, allocations = [t.record_s for t in ours], [t.allocated_s for t in ours]
    peers = [t.record_s for t in theirs]
    report.line(
        "scheduler_takeover",
        unit="s",
        p50=statistics.median(records),
        worst=max(records),
        to_gang_allocated={"p50": statistics.median(allocations), "worst": max(allocations)},
        kills=KILLS,
        peer={"group_session_p50": statistics.median(peers), "group_session_worst": max(peers)},
        aim=3.0,
    )


def _kills(stack: BenchStack, settings: dict[str, str]) -> list[Takeover]:
    """Two schedulers with these settings; the one that decides is killed again and again, and a new one becomes the standby."""
    found: list[Takeover] = []
    watch = Watch(stack.kafka, PARTITION)
    with _schedulers(stack, settings) as running:
        producer = EventProducer(stack.kafka, **{"linger.ms": 0})
        for _ in range(KILLS):
            _both_ready(running)
            found.append(watch.measure(lambda pid: os.kill(pid, signal.SIGKILL), lambda: _submit(producer)))
            report.note(f"took over in {found[-1].record_s:.2f} s, allocated in {found[-1].allocated_s:.2f} s")
    watch.close()
    return found


@contextmanager
def _schedulers(stack: BenchStack, settings: dict[str, str]) -> Iterator[list["_Scheduler"]]:
    running = [_Scheduler(stack, settings) for _ in range(2)]
    try:
        yield running
    finally:
        for scheduler in running:
            scheduler.process.kill()
            scheduler.process.wait()


class _Scheduler:
    """One scheduler process of the bench."""

    def __init__(self, stack: BenchStack, settings: dict[str, str]) -> None:
        self._stack, self._settings = stack, settings
        self.start()

    def start(self) -> None:
        self.log = self._stack.data_dir / f"scheduler-{next(_numbers)}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "trainhouse.cli.main", "run", "scheduler"],
                env=self._stack.environment | self._settings,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=die_with_parent(),
            )

    def recovered(self) -> bool:
        return "recovered" in self.log.read_text()


def _both_ready(running: list[_Scheduler]) -> None:
    """A new process for each that was killed; both follow the journal, and the group has settled on who decides."""
    for scheduler in running:
        if scheduler.process.poll() is not None:
            scheduler.start()
    until(lambda: all(s.recovered() for s in running), lambda: [s.log.read_text()[-2000:] for s in running])
    time.sleep(10.0)


def _submit(producer: EventProducer) -> str:
    job_id = f"takeover-{next(_numbers)}"
    spec = JobSpec.model_validate({"gang": 1, "runtime": {"command": ["python", "-c", "pass"]}})
    now_ms = int(time.time() * 1000)
    producer.send(topics.JOBS, envelope_of(JobSubmitted(job_id=job_id, spec=spec), id=job_id, source="bench", now_ms=now_ms))
    producer.flush(30)
    return job_id

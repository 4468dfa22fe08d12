"""The scheduler process: the schedule of every partition under the journal protocol.

Holds: everything is wired here and nowhere else. Never: does work at import.
"""

import asyncio
from typing import Any

from trainhouse.events.settings import KafkaSettings
from trainhouse.events.topics import CONTROL, DECISIONS
from trainhouse.scheduler.core.machine import Machine
from trainhouse.scheduler.stream.clock import SystemClock
from trainhouse.scheduler.stream.explaining import Answers, Explaining
from trainhouse.scheduler.stream.faust_app import add_batches, make_app, on_assignment
from trainhouse.scheduler.stream.kafka_log import KafkaLog
from trainhouse.scheduler.stream.logs import configure_logs
from trainhouse.scheduler.stream.ports import SnapshotStore
from trainhouse.scheduler.stream.process import serve
from trainhouse.scheduler.stream.settings import StreamSettings
from trainhouse.scheduler.stream.wiring import journal_host


def scheduler_main(kafka: KafkaSettings, snapshots: SnapshotStore, settings: StreamSettings | None = None) -> None:
    """Runs the scheduler until SIGTERM; blocks, and ends the process. Crashes it (status 70) when an invariant is broken."""
    from trainhouse.scheduler.core.explain.of_state import answers
    from trainhouse.scheduler.core.schedule import ScheduleMachine

    settings = settings or StreamSettings()
    configure_logs(settings.log_level, "scheduler")
    asyncio.run(run_scheduler(kafka, snapshots, settings, ScheduleMachine(), answers))


async def run_scheduler(
    kafka: KafkaSettings, snapshots: SnapshotStore, settings: StreamSettings, machine: Machine[Any], answers: Answers[Any] | None = None
) -> None:
    """The same on a running loop, with a given machine. `answers`: why jobs wait, published when it changes."""
    log, clock = KafkaLog(kafka), SystemClock()
    observers = [Explaining(log, clock, answers).after_record] if answers is not None else []
    host = journal_host(DECISIONS, CONTROL, log, machine, snapshots, clock, settings, transactional=True, observers=observers)
    app = make_app("scheduler", kafka, settings)
    add_batches(app, CONTROL, host.offer_all)
    on_assignment(app, CONTROL, host.on_assigned)
    await serve(app, [host.run()])

"""The scheduler process: the schedule of every partition under the journal protocol.

Holds: everything is wired here and nowhere else. Never: does work at import.
"""

import asyncio
from typing import Any

from trainhouse.events.settings import KafkaSettings
from trainhouse.events.topics import CONTROL, DECISIONS
from trainhouse.scheduler.core.machine import Machine
from trainhouse.scheduler.stream.clock import SystemClock
from trainhouse.scheduler.stream.faust_app import add_agent, make_app, on_assignment
from trainhouse.scheduler.stream.kafka_log import KafkaLog
from trainhouse.scheduler.stream.logs import configure_logs
from trainhouse.scheduler.stream.ports import SnapshotStore
from trainhouse.scheduler.stream.process import serve
from trainhouse.scheduler.stream.settings import StreamSettings
from trainhouse.scheduler.stream.wiring import journal_host


def scheduler_main(kafka: KafkaSettings, snapshots: SnapshotStore, settings: StreamSettings | None = None) -> None:
    """Runs the scheduler until SIGTERM; blocks, and ends the process. Crashes it (status 70) when an invariant is broken."""
    from trainhouse.scheduler.core.schedule import ScheduleMachine

    settings = settings or StreamSettings()
    configure_logs(settings.log_level, "scheduler")
    asyncio.run(run_scheduler(kafka, snapshots, settings, ScheduleMachine()))


async def run_scheduler(kafka: KafkaSettings, snapshots: SnapshotStore, settings: StreamSettings, machine: Machine[Any]) -> None:
    """The same on a running loop, with a given machine."""
    log, clock = KafkaLog(kafka), SystemClock()
    host = journal_host(DECISIONS, CONTROL, log, machine, snapshots, clock, settings, transactional=True)
    app = make_app("scheduler", kafka, settings)
    add_agent(app, CONTROL, settings, host.offer_all)
    on_assignment(app, CONTROL, host.on_assigned)
    await serve(app, [host.run()])

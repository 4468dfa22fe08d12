"""The intake process: screens the public topic, and keeps the directory of jobs under the journal protocol.

Holds: everything is wired here and nowhere else. Never: does work at import.
"""

import asyncio
from typing import Any

from trainhouse.events.settings import KafkaSettings
from trainhouse.events.topics import ADMISSION, DIRECTORY, JOBS
from trainhouse.scheduler.core.machine import Machine
from trainhouse.scheduler.stream.clock import SystemClock
from trainhouse.scheduler.stream.faust_app import add_agent, add_batches, make_app, on_assignment
from trainhouse.scheduler.stream.kafka_log import KafkaLog
from trainhouse.scheduler.stream.logs import configure_logs
from trainhouse.scheduler.stream.ports import SnapshotStore
from trainhouse.scheduler.stream.process import serve
from trainhouse.scheduler.stream.screening_agent import ScreeningAgent
from trainhouse.scheduler.stream.settings import StreamSettings
from trainhouse.scheduler.stream.wiring import journal_host


def intake_main(kafka: KafkaSettings, snapshots: SnapshotStore, settings: StreamSettings | None = None) -> None:
    """Runs intake until SIGTERM; blocks, and ends the process. Crashes it (status 70) when an invariant is broken."""
    from trainhouse.scheduler.core.directory import DirectoryMachine

    settings = settings or StreamSettings()
    configure_logs(settings.log_level, "intake")
    asyncio.run(run_intake(kafka, snapshots, settings, DirectoryMachine(control_partitions=kafka.partitions)))


async def run_intake(kafka: KafkaSettings, snapshots: SnapshotStore, settings: StreamSettings, directory: Machine[Any]) -> None:
    """The same on a running loop, with a given machine."""
    log, clock = KafkaLog(kafka), SystemClock()
    host = journal_host(DIRECTORY, ADMISSION, log, directory, snapshots, clock, settings, transactional=False)
    app = make_app("intake", kafka, settings)
    add_agent(app, JOBS, settings, ScreeningAgent(log, clock).take)
    add_batches(app, ADMISSION, host.offer_all)
    on_assignment(app, ADMISSION, host.on_assigned)
    await serve(app, [host.run()])

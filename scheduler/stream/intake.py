"""The intake process: screens the public topic and projects' topics, and keeps the directory of jobs under the journal protocol.

Holds: everything is wired here and nowhere else. Never: does work at import.
"""

import asyncio
from typing import Any

from trainhouse.events.archive.partition import ArchiveStore
from trainhouse.events.logs import configure_logs
from trainhouse.events.metering import new_registry
from trainhouse.events.metering import serve as serve_figures
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.topics import ADMISSION, DIRECTORY, JOBS
from trainhouse.events.topology_log import read_topology
from trainhouse.scheduler.core.machine import Machine
from trainhouse.scheduler.stream.archived import ArchivedJournals
from trainhouse.scheduler.stream.clock import SystemClock
from trainhouse.scheduler.stream.faust_app import add_agent, add_batches, make_app, on_assignment
from trainhouse.scheduler.stream.kafka_log import KafkaLog
from trainhouse.scheduler.stream.meters import JournalMeters, ScreeningMeters, measure_lag
from trainhouse.scheduler.stream.ports import JournalArchive, SnapshotStore
from trainhouse.scheduler.stream.process import serve
from trainhouse.scheduler.stream.project_intake import ProjectIntake
from trainhouse.scheduler.stream.screening_agent import ScreeningAgent
from trainhouse.scheduler.stream.settings import StreamSettings
from trainhouse.scheduler.stream.wiring import journal_host


def intake_main(
    kafka: KafkaSettings, snapshots: SnapshotStore, settings: StreamSettings | None = None, archive: ArchiveStore | None = None
) -> None:
    """Runs intake until SIGTERM; blocks, and ends the process. Crashes it (status 70) when an invariant is broken."""
    from trainhouse.scheduler.core.directory import DirectoryMachine

    settings = settings or StreamSettings()
    configure_logs(settings.log_level, "intake")
    archived = ArchivedJournals(kafka, archive) if archive is not None else None
    topology, found = read_topology(kafka, "trainhouse-intake")
    machine = DirectoryMachine(control_partitions=topology.adopting(found).made_with(kafka.partitions))
    asyncio.run(run_intake(kafka, snapshots, settings, machine, archived))


async def run_intake(
    kafka: KafkaSettings, snapshots: SnapshotStore, settings: StreamSettings, directory: Machine[Any], archive: JournalArchive | None = None
) -> None:
    """The same on a running loop, with a given machine."""
    log, clock, registry = KafkaLog(kafka, settings.key()), SystemClock(), new_registry()
    serve_figures(registry)
    meters = JournalMeters("intake", registry)
    host = journal_host(
        DIRECTORY, ADMISSION, log, directory, snapshots, clock, settings, transactional=False, meters=meters, archive=archive
    )
    app = make_app("intake", kafka, settings)
    screening = ScreeningAgent(log, clock, meters=ScreeningMeters(registry))
    of_projects = ScreeningAgent(log, clock, meters=screening.meters)
    projects = ProjectIntake(kafka, of_projects, settings.batch_count, settings.group_session_s)
    add_agent(app, JOBS, settings, screening.take)
    add_batches(app, ADMISSION, host.offer_all)
    on_assignment(app, ADMISSION, host.on_assigned)
    await serve(app, [host.run(), projects.run(), measure_lag(log, JOBS, lambda: screening.handled, screening.meters.lag)])

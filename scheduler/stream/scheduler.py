"""The scheduler process: the schedule of every partition under the journal protocol.

Holds: everything is wired here and nowhere else. Never: does work at import.
"""

import asyncio
from typing import Any

from trainhouse.events.archive.partition import ArchiveStore
from trainhouse.events.logs import configure_logs
from trainhouse.events.metering import new_registry
from trainhouse.events.metering import serve as serve_figures
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.topics import CONTROL, DECISIONS
from trainhouse.scheduler.core.machine import Machine
from trainhouse.scheduler.stream.archived import ArchivedJournals
from trainhouse.scheduler.stream.clock import SystemClock
from trainhouse.scheduler.stream.explaining import Answers, Explaining
from trainhouse.scheduler.stream.faust_app import add_batches, make_app, on_assignment
from trainhouse.scheduler.stream.kafka_log import KafkaLog
from trainhouse.scheduler.stream.meters import JournalMeters
from trainhouse.scheduler.stream.ports import JournalArchive, SnapshotStore
from trainhouse.scheduler.stream.process import serve
from trainhouse.scheduler.stream.settings import StreamSettings
from trainhouse.scheduler.stream.vetting import vetting_by
from trainhouse.scheduler.stream.wiring import journal_host


def scheduler_main(
    kafka: KafkaSettings, snapshots: SnapshotStore, settings: StreamSettings | None = None, archive: ArchiveStore | None = None
) -> None:
    """Runs the scheduler until SIGTERM; blocks, and ends the process. Crashes it (status 70) when an invariant is broken."""
    from trainhouse.scheduler.core.explain.of_state import answers
    from trainhouse.scheduler.core.schedule import ScheduleMachine

    settings = settings or StreamSettings()
    configure_logs(settings.log_level, "scheduler")
    archived = ArchivedJournals(kafka, archive) if archive is not None else None
    asyncio.run(run_scheduler(kafka, snapshots, settings, ScheduleMachine(), answers, archived))


async def run_scheduler(
    kafka: KafkaSettings,
    snapshots: SnapshotStore,
    settings: StreamSettings,
    machine: Machine[Any],
    answers: Answers[Any] | None = None,
    archive: JournalArchive | None = None,
) -> None:
    """The same on a running loop, with a given machine. `answers`: why jobs wait, published when it changes."""
    log, clock, registry = KafkaLog(kafka), SystemClock(), new_registry()
    serve_figures(registry)
    observers = [Explaining(log, clock, answers).after_record] if answers is not None else []
    meters = JournalMeters("scheduler", registry)
    host = journal_host(
        DECISIONS,
        CONTROL,
        log,
        machine,
        snapshots,
        clock,
        settings,
        transactional=True,
        observers=observers,
        meters=meters,
        archive=archive,
        vetting=vetting_by(settings.vetting().now, CONTROL),
        grows=True,
    )
    app = make_app("scheduler", kafka, settings)
    add_batches(app, CONTROL, host.offer_all)
    on_assignment(app, CONTROL, host.on_assigned)
    await serve(app, [host.run()])

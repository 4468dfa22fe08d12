"""The scheduler process: the schedule of every partition under the journal protocol.

Holds: everything is wired here and nowhere else. Never: does work at import.
"""

import asyncio
from typing import Any

from trainhouse.events.archive.partition import ArchiveStore
from trainhouse.events.runtime.clock import SystemClock
from trainhouse.events.runtime.logs import configure_logs
from trainhouse.events.runtime.metrics_server import new_registry
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.topics import CONTROL, DECISIONS, PROGRESS
from trainhouse.scheduler.core.handlers.handover import has_left
from trainhouse.scheduler.core.protocol.machine import Machine
from trainhouse.scheduler.stream.history.journal_archive import ArchivedJournals
from trainhouse.scheduler.stream.interfaces import JournalArchive, SnapshotStore
from trainhouse.scheduler.stream.journal.host import JournalHost, Live
from trainhouse.scheduler.stream.journal.progress_feed import ProgressFeed
from trainhouse.scheduler.stream.journal.settings import host_settings
from trainhouse.scheduler.stream.journal.snapshots import Snapshots
from trainhouse.scheduler.stream.kafka.faust_app import ProcessorApp
from trainhouse.scheduler.stream.kafka.log import KafkaLog
from trainhouse.scheduler.stream.metrics import JournalMeters, ProgressMeters
from trainhouse.scheduler.stream.process import serve
from trainhouse.scheduler.stream.scheduling.explanation_publisher import Answers, Explaining
from trainhouse.scheduler.stream.scheduling.live_statuses import LiveJobStatuses
from trainhouse.scheduler.stream.scheduling.vetting import vetting_by
from trainhouse.scheduler.stream.settings import StreamSettings
from trainhouse.scheduler.stream.topology import scheduler_app


def scheduler_main(
    kafka: KafkaSettings, snapshots: SnapshotStore, settings: StreamSettings | None = None, archive: ArchiveStore | None = None
) -> None:
    """Runs the scheduler until SIGTERM; blocks, and ends the process. Crashes it (status 70) when an invariant is broken."""
    settings = settings or StreamSettings()
    configure_logs(settings.log_level, "scheduler")
    asyncio.run(_run(kafka, snapshots, settings, archive))


async def _run(kafka: KafkaSettings, snapshots: SnapshotStore, settings: StreamSettings, archive: ArchiveStore | None) -> None:
    await serve(_whole(kafka, snapshots, settings, archive))


def from_settings() -> ProcessorApp:
    """The app of a process that has nothing but settings."""
    settings = StreamSettings()
    snapshots, archive = settings.open_stores()
    return _whole(KafkaSettings(), snapshots, settings, archive)


def _whole(kafka: KafkaSettings, snapshots: SnapshotStore, settings: StreamSettings, archive: ArchiveStore | None) -> ProcessorApp:
    from trainhouse.scheduler.core.explain.explainer import answers
    from trainhouse.scheduler.core.schedule import ScheduleMachine

    archived = ArchivedJournals(kafka, archive) if archive is not None else None
    return compose(kafka, snapshots, settings, ScheduleMachine(), answers, archived)


def compose(
    kafka: KafkaSettings,
    snapshots: SnapshotStore,
    settings: StreamSettings,
    machine: Machine[Any],
    answers: Answers[Any] | None = None,
    archive: JournalArchive | None = None,
) -> ProcessorApp:
    """The app with a given machine. `answers`: why jobs wait, published when it changes."""
    log, clock, registry = KafkaLog(kafka, settings.key()), SystemClock(), new_registry()
    observers = [Explaining(log, clock, answers, has_left).after_record] if answers is not None else []
    meters, rules = JournalMeters("scheduler", registry), settings.vetting().now
    feed = ProgressFeed[Any](log, clock, ProgressMeters(registry), vetting_by(rules, PROGRESS))
    host = JournalHost(
        host_settings(settings, DECISIONS, CONTROL, transactional=True, grows=True),
        log,
        machine,
        Snapshots(log, snapshots, DECISIONS, machine, every_records=settings.snapshot_every_records, archive=archive),
        clock,
        observers,
        meters,
        vetting=vetting_by(rules, CONTROL),
        live=Live(feed, lambda: LiveJobStatuses(machine.name)),
    )
    app = scheduler_app(kafka, settings, registry, host)
    app.beside.append(host.run)
    return app

"""The tuner process: studies, by suggestions of Optuna's samplers and observations of trials' jobs, under the journal protocol.

Holds: everything is wired here and nowhere else. Never: does work at import; imports Optuna: the process of samplers does.
"""

import asyncio

from trainhouse.events.archive.partition import ArchiveStore
from trainhouse.events.runtime.clock import SystemClock
from trainhouse.events.runtime.logs import configure_logs
from trainhouse.events.runtime.metrics_server import new_registry
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.topics import STUDY_REQUESTS, TUNING
from trainhouse.scheduler.core.studies.study_machine import TunerMachine
from trainhouse.scheduler.stream.history.journal_archive import ArchivedJournals
from trainhouse.scheduler.stream.interfaces import SnapshotStore
from trainhouse.scheduler.stream.journal.host import JournalHost
from trainhouse.scheduler.stream.journal.settings import host_settings
from trainhouse.scheduler.stream.journal.snapshots import Snapshots
from trainhouse.scheduler.stream.kafka.faust_app import ProcessorApp
from trainhouse.scheduler.stream.kafka.log import KafkaLog
from trainhouse.scheduler.stream.metrics import JournalMeters
from trainhouse.scheduler.stream.process import serve
from trainhouse.scheduler.stream.settings import StreamSettings
from trainhouse.scheduler.stream.studies.price_sender import PriceSender
from trainhouse.scheduler.stream.studies.sampler_process import SamplerProcess
from trainhouse.scheduler.stream.studies.suggestion_sender import SuggestionSender
from trainhouse.scheduler.stream.studies.trial_watch import TrialWatch
from trainhouse.scheduler.stream.topology import tuner_app


def tuner_main(
    kafka: KafkaSettings, snapshots: SnapshotStore, settings: StreamSettings | None = None, archive: ArchiveStore | None = None
) -> None:
    """Runs the tuner until SIGTERM; blocks, and ends the process. Crashes it (status 70) when an invariant is broken."""
    settings = settings or StreamSettings()
    configure_logs(settings.log_level, "tuner")
    asyncio.run(_run(kafka, snapshots, settings, archive))


async def _run(kafka: KafkaSettings, snapshots: SnapshotStore, settings: StreamSettings, archive: ArchiveStore | None) -> None:
    await serve(compose(kafka, snapshots, settings, archive))


def from_settings() -> ProcessorApp:
    """The app of a process that has nothing but settings."""
    settings = StreamSettings()
    snapshots, archive = settings.open_stores()
    return compose(KafkaSettings(), snapshots, settings, archive)


def compose(kafka: KafkaSettings, snapshots: SnapshotStore, settings: StreamSettings, archive: ArchiveStore | None = None) -> ProcessorApp:
    """The app."""
    log, clock, registry, machine = KafkaLog(kafka, settings.key()), SystemClock(), new_registry(), TunerMachine()
    archived = ArchivedJournals(kafka, archive) if archive is not None else None
    keeper = Snapshots(log, snapshots, TUNING, machine, every_records=settings.snapshot_every_records, archive=archived)
    hosted = host_settings(settings, TUNING, STUDY_REQUESTS, transactional=True)
    suggestions = SuggestionSender(log, clock, lambda: host.deciding(), SamplerProcess)
    prices = PriceSender(log, clock, lambda: host.deciding())
    after = [suggestions.after_record, prices.after_record]
    host = JournalHost(hosted, log, machine, keeper, clock, after, meters=JournalMeters("tuner", registry))
    watch = TrialWatch(log, clock, host.folded, lambda: host.followers[0].position)
    app = tuner_app(kafka, settings, registry, host)
    app.beside += [host.run, suggestions.run, prices.run, lambda: watch.run(kafka, settings.group_session_s)]
    return app

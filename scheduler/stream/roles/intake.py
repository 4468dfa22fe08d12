"""The intake process: screens the public topic and projects' topics, and keeps the directory of jobs under the journal protocol.

Holds: everything is wired here and nowhere else. Never: does work at import.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from prometheus_client import CollectorRegistry

from trainhouse.events.archive.partition import ArchiveStore
from trainhouse.events.bus.topology_log import read_topology
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.runtime.clock import SystemClock
from trainhouse.events.runtime.logs import configure_logs
from trainhouse.events.runtime.metrics_server import new_registry
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.topics import ADMISSION, DIRECTORY, JOBS, MODEL_REQUESTS, REGISTRY
from trainhouse.scheduler.core.protocol.machine import Machine
from trainhouse.scheduler.core.registry.registry_machine import RegistryMachine
from trainhouse.scheduler.core.registry.registry_state import RegistryState
from trainhouse.scheduler.stream.history.journal_archive import ArchivedJournals
from trainhouse.scheduler.stream.interfaces import JournalArchive, SnapshotStore
from trainhouse.scheduler.stream.journal.host import JournalHost
from trainhouse.scheduler.stream.journal.settings import host_settings
from trainhouse.scheduler.stream.journal.snapshots import Snapshots
from trainhouse.scheduler.stream.kafka.faust_app import ProcessorApp
from trainhouse.scheduler.stream.kafka.log import KafkaLog
from trainhouse.scheduler.stream.metrics import JournalMeters, ScreeningMeters, measure_lag
from trainhouse.scheduler.stream.model_interfaces import ModelStore
from trainhouse.scheduler.stream.process import serve
from trainhouse.scheduler.stream.registry.evaluation_ends import EvaluationEnds
from trainhouse.scheduler.stream.registry.job_end_watch import JobEndWatch, JobRegistrations
from trainhouse.scheduler.stream.registry.store_lookups import StoreLookups
from trainhouse.scheduler.stream.screening.project_intake import ProjectIntake
from trainhouse.scheduler.stream.screening.screening_agent import ScreeningAgent
from trainhouse.scheduler.stream.settings import StreamSettings
from trainhouse.scheduler.stream.topology import intake_app

RETRY_S = 1.0
log_ = structlog.get_logger(__name__)


def intake_main(
    kafka: KafkaSettings, snapshots: SnapshotStore, settings: StreamSettings | None = None, archive: ArchiveStore | None = None
) -> None:
    """Runs intake until SIGTERM; blocks, and ends the process. Crashes it (status 70) when an invariant is broken."""
    settings = settings or StreamSettings()
    configure_logs(settings.log_level, "intake")
    asyncio.run(_run(kafka, snapshots, settings, archive))


async def _run(kafka: KafkaSettings, snapshots: SnapshotStore, settings: StreamSettings, archive: ArchiveStore | None) -> None:
    await serve(_whole(kafka, snapshots, settings, archive))


def from_settings() -> ProcessorApp:
    """The app of a process that has nothing but settings."""
    settings = StreamSettings()
    snapshots, archive = settings.open_stores()
    return _whole(KafkaSettings(), snapshots, settings, archive)


def _whole(kafka: KafkaSettings, snapshots: SnapshotStore, settings: StreamSettings, archive: ArchiveStore | None) -> ProcessorApp:
    from trainhouse.scheduler.core.intake.directory import DirectoryMachine
    from trainhouse.scheduler.stream.settled.settled_index import SettledIndex

    archived = ArchivedJournals(kafka, archive) if archive is not None else None
    directory = DirectoryMachine(control_partitions=kafka.partitions, index=SettledIndex(settings.index_dir))

    async def recorded() -> None:
        directory.control_partitions = await _made_with(kafka)

    return compose(kafka, snapshots, settings, directory, archived, recorded, settings.open_model_store())


async def _made_with(kafka: KafkaSettings) -> int:
    """The recorded count of control's partitions, waited for while the brokers are away."""
    while True:
        try:
            topology, found = await asyncio.to_thread(read_topology, kafka, "trainhouse-intake")
        except BusUnavailableError as error:
            log_.warning("brokers away", error=str(error))
            await asyncio.sleep(RETRY_S)
        else:
            return topology.adopting(found).made_with(kafka.partitions)


def compose(
    kafka: KafkaSettings,
    snapshots: SnapshotStore,
    settings: StreamSettings,
    directory: Machine[Any],
    archive: JournalArchive | None = None,
    before: Callable[[], Awaitable[None]] | None = None,
    models: ModelStore | None = None,
) -> ProcessorApp:
    """The app with a given machine. `before`: what ends before the first record is decided. `models`: the registry's store; without one
    there is no registry of models here."""
    log, clock, registry = KafkaLog(kafka, settings.key()), SystemClock(), new_registry()
    meters = JournalMeters("intake", registry)
    keeper = Snapshots(log, snapshots, DIRECTORY, directory, every_records=settings.snapshot_every_records, archive=archive)
    host = JournalHost(host_settings(settings, DIRECTORY, ADMISSION, transactional=False), log, directory, keeper, clock, meters=meters)
    screening = ScreeningAgent(log, clock, meters=ScreeningMeters(registry))
    of_projects = ScreeningAgent(log, clock, meters=screening.meters)
    projects = ProjectIntake(kafka, of_projects, settings.batch_count, settings.group_session_s)
    of_models = None if models is None else _registry(kafka, snapshots, settings, models, log, registry, archive)
    app = intake_app(kafka, settings, registry, screening, host, of_models)

    async def decide() -> None:
        if before is not None:
            await before()
        await host.run()

    app.beside += [decide, projects.run, lambda: measure_lag(log, JOBS, lambda: screening.handled, screening.meters.lag)]
    if models is not None and of_models is not None:
        shared = (log, clock, models, of_models.folded)
        requests = [JobRegistrations(*shared), EvaluationEnds(*shared, folded_to=lambda: of_models.followers[0].position)]
        ends = JobEndWatch(kafka, clock, requests, settings.group_session_s)
        app.beside += [of_models.run, ends.run]
    return app


def _registry(
    kafka: KafkaSettings,
    snapshots: SnapshotStore,
    settings: StreamSettings,
    models: ModelStore,
    log: KafkaLog,
    registry: CollectorRegistry,
    archive: JournalArchive | None,
) -> JournalHost[RegistryState]:
    """Host of the registry of models: a machine and a journal of its own, in this process since an idle one costs a tenth of a stack's
    memory, and a registry has little to do."""
    machine, clock = RegistryMachine(), SystemClock()
    keeper = Snapshots(log, snapshots, REGISTRY, machine, every_records=settings.snapshot_every_records, archive=archive)
    lookups = StoreLookups(log, clock, models)
    meters = JournalMeters("registry", registry)
    hosted = host_settings(settings, REGISTRY, MODEL_REQUESTS, transactional=True)
    return JournalHost(hosted, log, machine, keeper, clock, [lookups.after_record], meters=meters)

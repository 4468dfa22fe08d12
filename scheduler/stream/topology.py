"""The topology: four Faust apps, their agents, the topic that each reads, and the machine that it drives.

    app        agent       topic                  drives                                  its state
    intake     jobs        trainhouse.jobs        screening (core/intake)                none
               admission   trainhouse.admission   DirectoryMachine, by a JournalHost      journal trainhouse.directory
               models      trainhouse.model-requests  RegistryMachine, by a JournalHost   journal trainhouse.registry
    scheduler  control     trainhouse.control     ScheduleMachine, by a JournalHost       journal trainhouse.decisions
    tuner      studies     trainhouse.study-requests  TunerMachine, by a JournalHost      journal trainhouse.tuning
    detector   heartbeats  trainhouse.heartbeats  DetectorMachine                         soft: read back from the topics

Beside its agents each app runs services (`compose` of its module): hosts of journals, projects' topics, ticks of the detector.
Those topics come and go, so a consumer of our own reads them by a pattern (`project_intake`): Faust subscribes to none. Another one reads
statuses for the registry of models (`registry/job_end_watch`): what it does may wait for the object store, and an agent would keep up the
others of its app. Statuses and metrics of trials' jobs are read by one member of a group for all partitions (`studies/trial_watch`).

No table: nothing that Faust would keep is read by others. What is read is published from the journal (statuses, explanations, projects) or
is in ClickHouse, and is exact there; `faust tables` shows that there is none.

    faust -A trainhouse.scheduler.stream.topology:intake worker      (or agents, tables; or scheduler, detector, tuner)

`trainhouse run ROLE` runs the same app, with the platform's logs and stops.

Holds: every topic that is processed, but projects' own, statuses and metrics, goes through an agent's stream; an agent hands a batch on
and never raises.
Never: does work at import; an app is made, from the process's settings, when it is asked for.
"""

from importlib import import_module
from typing import Any, Protocol

from prometheus_client import CollectorRegistry

from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.topics import ADMISSION, CONTROL, HEARTBEATS, JOBS, MODEL_REQUESTS, STUDY_REQUESTS
from trainhouse.scheduler.stream.interfaces import Entry
from trainhouse.scheduler.stream.kafka.batching import fetches
from trainhouse.scheduler.stream.kafka.faust_app import ProcessorApp, batches, make_app, on_assignment
from trainhouse.scheduler.stream.settings import StreamSettings

APPS = ("intake", "scheduler", "detector", "tuner")
# Where a commit says what is handled, and where the journal or the topic itself does.
HANDLED_S, HINT_S = 0.5, 5.0


class Takes(Protocol):
    """Handler of whole batches (screening, the detector)."""

    async def take(self, by_partition: dict[int, list[Entry]]) -> None: ...


class Hosts(Protocol):
    """A journal's host: what it is offered counts when its journal says so."""

    def offer(self, partition: int, entries: list[Entry]) -> None: ...

    def on_assigned(self, partitions: set[int]) -> None: ...


class Detects(Takes, Protocol):
    """The detector's shell."""

    def on_assigned(self, partitions: set[int]) -> None: ...


def intake_app(
    kafka: KafkaSettings,
    settings: StreamSettings,
    registry: CollectorRegistry,
    screening: Takes,
    directory: Hosts,
    models: Hosts | None = None,
) -> ProcessorApp:
    """Jobs come in, and the directory decides on those that were admitted; the registry decides on models."""
    app = make_app("intake", kafka, settings, registry, HANDLED_S)

    @app.agent(batches(app, JOBS), name="jobs")
    async def jobs(stream: Any) -> None:
        """Screens requests and passes them on by job id; ScreeningAgent."""
        # Acked when all is with the brokers: one transaction of the brokers' time for all partitions of a fetch.
        async for by_partition in fetches(stream):
            await screening.take(by_partition)

    @app.agent(batches(app, ADMISSION), name="admission")
    async def admission(stream: Any) -> None:
        """Directory of jobs and projects; DirectoryMachine."""
        async for batch in stream:
            directory.offer(batch.partition, batch.entries)

    on_assignment(app, ADMISSION, directory.on_assigned)
    if models is not None:
        _models(app, models)
    return app


def _models(app: ProcessorApp, registry: Hosts) -> None:
    """Requests to the registry of models."""

    @app.agent(batches(app, MODEL_REQUESTS), name="models")
    async def models(stream: Any) -> None:
        """Registry of models; RegistryMachine."""
        async for batch in stream:
            registry.offer(batch.partition, batch.entries)

    on_assignment(app, MODEL_REQUESTS, registry.on_assigned)


def scheduler_app(kafka: KafkaSettings, settings: StreamSettings, registry: CollectorRegistry, schedule: Hosts) -> ProcessorApp:
    """All that a pool's schedule follows from."""
    app = make_app("scheduler", kafka, settings, registry, HINT_S)

    @app.agent(batches(app, CONTROL), name="control")
    async def control(stream: Any) -> None:
        """Schedule of every pool of the partition; ScheduleMachine."""
        async for batch in stream:
            schedule.offer(batch.partition, batch.entries)

    on_assignment(app, CONTROL, schedule.on_assigned)
    return app


def detector_app(kafka: KafkaSettings, settings: StreamSettings, registry: CollectorRegistry, detecting: Detects) -> ProcessorApp:
    """Verdicts on nodes and gangs from what nodes report of themselves."""
    app = make_app("detector", kafka, settings, registry, HINT_S)

    @app.agent(batches(app, HEARTBEATS), name="heartbeats")
    async def heartbeats(stream: Any) -> None:
        """Verdicts on nodes and gangs; DetectorMachine."""
        async for batch in stream:
            await detecting.take({batch.partition: batch.entries})

    on_assignment(app, HEARTBEATS, detecting.on_assigned)
    return app


def tuner_app(kafka: KafkaSettings, settings: StreamSettings, registry: CollectorRegistry, tuning: Hosts) -> ProcessorApp:
    """Requests about studies, and observations of their trials."""
    app = make_app("tuner", kafka, settings, registry, HINT_S)

    @app.agent(batches(app, STUDY_REQUESTS), name="studies")
    async def studies(stream: Any) -> None:
        """Studies and their trials; TunerMachine."""
        async for batch in stream:
            tuning.offer(batch.partition, batch.entries)

    on_assignment(app, STUDY_REQUESTS, tuning.on_assigned)
    return app


def __getattr__(name: str) -> ProcessorApp:
    """`intake`, `scheduler`, `detector` and `tuner`, for Faust's command line: each from the process's settings, once."""
    if name not in APPS:
        raise AttributeError(f"the topology has no {name!r}; there are {', '.join(APPS)}")
    app: ProcessorApp = import_module(f"trainhouse.scheduler.stream.roles.{name}").from_settings()
    globals()[name] = app
    return app

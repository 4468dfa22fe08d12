"""The detector process: verdicts on nodes from their heartbeats.

Holds: everything is wired here and nowhere else. Never: does work at import.
"""

import asyncio

from trainhouse.events.runtime.clock import SystemClock
from trainhouse.events.runtime.logs import configure_logs
from trainhouse.events.runtime.metrics_server import new_registry
from trainhouse.events.settings import KafkaSettings
from trainhouse.scheduler.core.detector import DetectorMachine
from trainhouse.scheduler.stream.detection.detector_shell import Detecting
from trainhouse.scheduler.stream.kafka.faust_app import ProcessorApp
from trainhouse.scheduler.stream.kafka.log import KafkaLog
from trainhouse.scheduler.stream.metrics import DetectorMeters
from trainhouse.scheduler.stream.process import serve
from trainhouse.scheduler.stream.settings import StreamSettings
from trainhouse.scheduler.stream.topology import detector_app


def detector_main(kafka: KafkaSettings, settings: StreamSettings | None = None) -> None:
    """Runs the detector until SIGTERM; blocks, and ends the process."""
    settings = settings or StreamSettings()
    configure_logs(settings.log_level, "detector")
    asyncio.run(_run(kafka, settings))


async def _run(kafka: KafkaSettings, settings: StreamSettings) -> None:
    await serve(compose(kafka, settings, DetectorMachine()))


def from_settings() -> ProcessorApp:
    """The app of a process that has nothing but settings."""
    return compose(KafkaSettings(), StreamSettings(), DetectorMachine())


def compose(kafka: KafkaSettings, settings: StreamSettings, machine: DetectorMachine) -> ProcessorApp:
    """The app with a given machine."""
    registry = new_registry()
    detecting = Detecting(KafkaLog(kafka, settings.key()), SystemClock(), machine, DetectorMeters(registry), settings.vetting().now())
    app = detector_app(kafka, settings, registry, detecting)
    app.beside.append(detecting.run)
    return app

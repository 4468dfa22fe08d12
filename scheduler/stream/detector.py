"""The detector process: verdicts on nodes from their heartbeats.

Holds: everything is wired here and nowhere else. Never: does work at import.
"""

import asyncio

from trainhouse.events.logs import configure_logs
from trainhouse.events.metering import new_registry
from trainhouse.events.metering import serve as serve_figures
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.topics import HEARTBEATS
from trainhouse.scheduler.core.detector import DetectorMachine
from trainhouse.scheduler.stream.clock import SystemClock
from trainhouse.scheduler.stream.detecting import Detecting
from trainhouse.scheduler.stream.faust_app import add_batches, make_app, on_assignment
from trainhouse.scheduler.stream.kafka_log import KafkaLog
from trainhouse.scheduler.stream.meters import DetectorMeters
from trainhouse.scheduler.stream.process import serve
from trainhouse.scheduler.stream.settings import StreamSettings


def detector_main(kafka: KafkaSettings, settings: StreamSettings | None = None) -> None:
    """Runs the detector until SIGTERM; blocks, and ends the process."""
    settings = settings or StreamSettings()
    configure_logs(settings.log_level, "detector")
    asyncio.run(run_detector(kafka, settings, DetectorMachine()))


async def run_detector(kafka: KafkaSettings, settings: StreamSettings, machine: DetectorMachine) -> None:
    """The same on a running loop, with a given machine."""
    registry = new_registry()
    serve_figures(registry)
    detecting = Detecting(KafkaLog(kafka, settings.key()), SystemClock(), machine, DetectorMeters(registry), settings.vetting().now())
    app = make_app("detector", kafka, settings)
    add_batches(app, HEARTBEATS, detecting.take)
    on_assignment(app, HEARTBEATS, detecting.on_assigned)
    await serve(app, [detecting.run()])

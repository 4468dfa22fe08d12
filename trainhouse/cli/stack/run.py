"""`trainhouse run ROLE`: one process of the platform, by settings alone. Its composition root.

Holds: each role gets its ports from settings and nothing else; logs are one JSON object a line on standard error.
Never: wires two roles into one process.
"""

import importlib
import logging
import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

import typer

from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import DataDir

if TYPE_CHECKING:
    from trainhouse.events.model.model_observations import LiveFieldFigures, ObservedRows

# Their accounts join the group of those who only read.
_READERS = ("gateway", "agent")
_OF_THE_BROKERS = ("intake", "scheduler", "detector", "tuner")
HELP = """
Run one process of the platform in the foreground, by settings alone: `intake`, `scheduler`, `detector`, `tuner`, `projector`,
`alerts`, `gateway`, `exporter` or `agent`.

\b
TRAINHOUSE_KAFKA_BOOTSTRAP=kafka:9092 trainhouse run scheduler
TRAINHOUSE_CONFIG=/etc/trainhouse.toml trainhouse run agent

Settings: environment first (TRAINHOUSE_KAFKA_…, TRAINHOUSE_S3_…, TRAINHOUSE_CLICKHOUSE_…, TRAINHOUSE_ALERTS_…,
TRAINHOUSE_GATEWAY_…, TRAINHOUSE_AGENT_…), then the sections of the TOML file that TRAINHOUSE_CONFIG names. SIGTERM ends it cleanly.
"""


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("run", help=HELP, no_args_is_help=True)(run)


def run(
    role: Annotated[str, typer.Argument(metavar="ROLE", show_default=False)],
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.", envvar="TRAINHOUSE_LOG_LEVEL")] = "info",
    data_dir: DataDir = None,
) -> None:
    start = ROLES.get(role)
    if start is None:
        raise CliError(f"{role!r} is no role; there are {', '.join(ROLES)}", Exit.USAGE)
    os.environ.setdefault("TZ", "UTC")
    configure(log_level, role)
    check_partitions(role)
    raise typer.Exit(start(log_level))


def configure(level: str, role: str) -> None:
    """One JSON object a line on standard error, or lines for people (TRAINHOUSE_LOG_FORMAT=console). Raises CliError."""
    if level.upper() not in logging.getLevelNamesMapping():
        raise CliError(f"{level!r} is no log level; there are debug, info, warning, error", Exit.USAGE)
    leave_out_rich()
    from trainhouse.events.runtime.logs import configure_logs

    try:
        configure_logs(level, role)
    except ValueError as error:
        raise CliError(str(error), Exit.USAGE) from error


class _Without(MetaPathFinder):
    """Makes one package look as if it were not installed."""

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if fullname == self._package:
            raise ModuleNotFoundError(f"{fullname} is not used in this process", name=fullname)


def leave_out_rich() -> None:
    """structlog and httpx import rich, 0.4 s of CPU and 10 MB a process: for tracebacks in colours, which JSON has none of, and for
    httpx's own command line."""
    if not any(isinstance(finder, _Without) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Without("httpx._main"))
    if os.environ.get("TRAINHOUSE_LOG_FORMAT") != "console":
        without = _Without("rich")
        sys.meta_path.insert(0, without)
        importlib.import_module("structlog")
        sys.meta_path.remove(without)


def _leave_out_pandas() -> None:
    """Arrow imports pandas with its first array, only to ask whether that is one of pandas': a second of CPU and 50 MB."""
    sys.meta_path.insert(0, _Without("pandas"))


def check_partitions(role: str) -> None:
    """Refuses to go on where the topics, or the settings, have other partition counts than are recorded; looks again as long as it runs.

    What works with the brokers alone waits for them here; all else goes on, and ends when they have answered. Raises CliError.
    """
    import threading

    from trainhouse.events.bus.topology_log import checked_patiently, watch
    from trainhouse.events.model.errors import TopicsDifferError
    from trainhouse.events.settings import KafkaSettings

    kafka, never = KafkaSettings(), threading.Event()
    group = "trainhouse-reader" if role in _READERS else f"trainhouse-{role}"
    if role in _OF_THE_BROKERS:
        try:
            checked_patiently(kafka, group, never)
        except TopicsDifferError as error:
            raise CliError(str(error), Exit.CONFIG) from error
    threading.Thread(target=watch, args=(kafka, group, never, _end), name="partitions", daemon=True).start()


def _end(refusal: str) -> None:
    """Ends the process at once: what it would write next may land in the wrong partition."""
    import structlog

    structlog.get_logger(__name__).critical("the topics are not as recorded", problem=refusal)
    os._exit(Exit.CONFIG)


def _intake(level: str) -> int:
    from trainhouse.client.kafka.snapshots import journal_stores
    from trainhouse.events.settings import KafkaSettings
    from trainhouse.scheduler.stream.roles.intake import intake_main
    from trainhouse.scheduler.stream.settings import StreamSettings

    snapshots, archive = journal_stores()
    intake_main(KafkaSettings(), snapshots, StreamSettings(log_level=level), archive)
    return 0


def _scheduler(level: str) -> int:
    from trainhouse.client.kafka.snapshots import journal_stores
    from trainhouse.events.settings import KafkaSettings
    from trainhouse.scheduler.stream.roles.scheduler import scheduler_main
    from trainhouse.scheduler.stream.settings import StreamSettings

    snapshots, archive = journal_stores()
    scheduler_main(KafkaSettings(), snapshots, StreamSettings(log_level=level), archive)
    return 0


def _detector(level: str) -> int:
    from trainhouse.events.settings import KafkaSettings
    from trainhouse.scheduler.stream.roles.detector import detector_main
    from trainhouse.scheduler.stream.settings import StreamSettings

    detector_main(KafkaSettings(), StreamSettings(log_level=level))
    return 0


def _tuner(level: str) -> int:
    from trainhouse.client.kafka.snapshots import journal_stores
    from trainhouse.events.settings import KafkaSettings
    from trainhouse.scheduler.stream.roles.tuner import tuner_main
    from trainhouse.scheduler.stream.settings import StreamSettings

    snapshots, archive = journal_stores()
    tuner_main(KafkaSettings(), snapshots, StreamSettings(log_level=level), archive)
    return 0


def _projector(_: str) -> int:
    _leave_out_pandas()
    from trainhouse.checkpointing.stores.topic_archive import ObjectArchive
    from trainhouse.events.settings import KafkaSettings
    from trainhouse.projections.projector import main
    from trainhouse.projections.settings import ClickHouseSettings, ProjectorSettings

    return main(KafkaSettings(), ProjectorSettings(), ClickHouseSettings(), ObjectArchive())


def _alerts(_: str) -> int:
    from trainhouse.events.settings import KafkaSettings
    from trainhouse.projections.alerts.service import main
    from trainhouse.projections.alerts.settings import AlertsSettings
    from trainhouse.projections.settings import ClickHouseSettings

    return main(KafkaSettings(), ClickHouseSettings(), AlertsSettings(), _measured)


def _measured(reference: "ObservedRows", live: "Sequence[ObservedRows]") -> "tuple[LiveFieldFigures, ...]":
    """Drift of live predictions. SciPy is imported once there are some, and not before. Raises ImportError where it is not installed."""
    from trainhouse.workers.evaluation.observed_drift import observed_drift

    return observed_drift(reference, live)


def _gateway(level: str) -> int:
    from trainhouse.events.settings import KafkaSettings
    from trainhouse.gateway.serve import main
    from trainhouse.gateway.settings import GatewaySettings
    from trainhouse.projections.settings import ClickHouseSettings

    return main(GatewaySettings(), KafkaSettings(), ClickHouseSettings(), level)


def _exporter(_: str) -> int:
    from pydantic import ValidationError

    from trainhouse.events.settings import KafkaSettings
    from trainhouse.projections.exporter.service import main
    from trainhouse.projections.exporter.settings import ExporterSettings

    try:
        settings = ExporterSettings()
    except ValidationError as error:
        raise CliError("; ".join(e["msg"].removeprefix("Value error, ") for e in error.errors()), Exit.USAGE) from error
    return main(KafkaSettings(), settings)


def _agent(_: str) -> int:
    from trainhouse.checkpointing.settings import StoreSettings
    from trainhouse.events.settings import KafkaSettings
    from trainhouse.workers.agent.main import main
    from trainhouse.workers.agent.settings import AgentSettings

    main(AgentSettings(), KafkaSettings(), StoreSettings())
    return 0


ROLES: dict[str, Callable[[str], int]] = {
    "intake": _intake,
    "scheduler": _scheduler,
    "detector": _detector,
    "tuner": _tuner,
    "projector": _projector,
    "alerts": _alerts,
    "gateway": _gateway,
    "exporter": _exporter,
    "agent": _agent,
}

"""`trainhouse run ROLE`: one process of the platform, by settings alone. Its composition root.

Holds: each role gets its ports from settings and nothing else; logs are one JSON object a line on standard error.
Never: wires two roles into one process.
"""

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from trainhouse.cli.exits import CliError, Exit
from trainhouse.cli.options import DataDir

if TYPE_CHECKING:
    from trainhouse.scheduler.stream.ports import SnapshotStore

HELP = """
Runs one process of the platform in the foreground, by settings alone: `intake`, `scheduler`, `detector`, `projector` or `agent`.

\b
TRAINHOUSE_KAFKA_BOOTSTRAP=kafka:9092 trainhouse run scheduler
TRAINHOUSE_CONFIG=/etc/trainhouse.toml trainhouse run agent

Settings: environment first (TRAINHOUSE_KAFKA_…, TRAINHOUSE_S3_…, TRAINHOUSE_CLICKHOUSE_…, TRAINHOUSE_AGENT_…), then the
sections of the TOML file that TRAINHOUSE_CONFIG names. SIGTERM ends it cleanly.
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
    raise typer.Exit(start(log_level))


def configure(level: str, role: str) -> None:
    """One JSON object a line on standard error. Raises CliError for an unknown level."""
    if level.upper() not in logging.getLevelNamesMapping():
        raise CliError(f"{level!r} is no log level; there are debug, info, warning, error", Exit.USAGE)
    from trainhouse.scheduler.stream.logs import configure_logs

    configure_logs(level, role)


def _intake(level: str) -> int:
    from trainhouse.events.settings import KafkaSettings
    from trainhouse.scheduler.stream.intake import intake_main
    from trainhouse.scheduler.stream.settings import StreamSettings

    intake_main(KafkaSettings(), _snapshots(), StreamSettings(log_level=level))
    return 0


def _scheduler(level: str) -> int:
    from trainhouse.events.settings import KafkaSettings
    from trainhouse.scheduler.stream.scheduler import scheduler_main
    from trainhouse.scheduler.stream.settings import StreamSettings

    scheduler_main(KafkaSettings(), _snapshots(), StreamSettings(log_level=level))
    return 0


def _detector(level: str) -> int:
    from trainhouse.events.settings import KafkaSettings
    from trainhouse.scheduler.stream.detector import detector_main
    from trainhouse.scheduler.stream.settings import StreamSettings

    detector_main(KafkaSettings(), StreamSettings(log_level=level))
    return 0


def _projector(_: str) -> int:
    from trainhouse.events.settings import KafkaSettings
    from trainhouse.projections.projector import main
    from trainhouse.projections.settings import ClickHouseSettings, ProjectorSettings

    return main(KafkaSettings(), ProjectorSettings(), ClickHouseSettings())


def _agent(_: str) -> int:
    from trainhouse.checkpointing.settings import StoreSettings
    from trainhouse.events.settings import KafkaSettings
    from trainhouse.workers.agent.main import main
    from trainhouse.workers.agent.settings import AgentSettings

    main(AgentSettings(), KafkaSettings(), StoreSettings())
    return 0


def _snapshots() -> "SnapshotStore":
    from trainhouse.checkpointing.s3 import S3ObjectStore
    from trainhouse.checkpointing.settings import StoreSettings
    from trainhouse.cli.snapshots import ObjectSnapshots

    return ObjectSnapshots(S3ObjectStore(StoreSettings()))


ROLES: dict[str, Callable[[str], int]] = {
    "intake": _intake,
    "scheduler": _scheduler,
    "detector": _detector,
    "projector": _projector,
    "agent": _agent,
}

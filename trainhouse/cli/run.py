"""`trainhouse run ROLE`: one process of the platform, by settings alone. Its composition root.

Holds: each role gets its ports from settings and nothing else; logs are one JSON object a line on standard error.
Never: wires two roles into one process.
"""

import logging
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from trainhouse.cli.exits import CliError, Exit
from trainhouse.cli.options import DataDir

HELP = """
Runs one process of the platform in the foreground, by settings alone: `intake`, `scheduler`, `detector`, `projector` or `agent`.

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
    configure_logs(role, log_level)
    start()


def configure_logs(role: str, level: str) -> None:
    """One JSON object a line on standard error, from structlog and from the standard library's loggers alike."""
    import structlog

    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise CliError(f"{level!r} is no log level; there are debug, info, warning, error", Exit.USAGE)
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _with_role(role),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(number),
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, structlog.processors.JSONRenderer()],
        )
    )
    logging.basicConfig(handlers=[handler], level=number, force=True)


def _with_role(role: str) -> Callable[[Any, str, Any], Any]:
    def add(_: Any, __: str, event: Any) -> Any:
        event["process"] = role
        return event

    return add


def _intake() -> None:
    raise NotImplementedError


def _scheduler() -> None:
    raise NotImplementedError


def _detector() -> None:
    raise NotImplementedError


def _projector() -> None:
    raise NotImplementedError


def _agent() -> None:
    raise NotImplementedError


ROLES: dict[str, Callable[[], None]] = {
    "intake": _intake,
    "scheduler": _scheduler,
    "detector": _detector,
    "projector": _projector,
    "agent": _agent,
}

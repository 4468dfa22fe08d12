"""Structured logs of every process: one JSON object a line on standard error, our own lines and the libraries' alike.

Holds: each line has its process, in threads too; a line about an attempt has its job_id, epoch and, where known, attempt, so named.
Never: set up by a library; only a `main` does.
"""

import logging
import os
import sys
from collections.abc import Mapping
from typing import Any

import structlog

from trainhouse.events.model.base import Event

FORMAT_VARIABLE = "TRAINHOUSE_LOG_FORMAT"
FORMATS = ("json", "console")
QUIET = ("aiokafka", "faust", "mode")
IDS = ("job_id", "attempt", "epoch", "node_id", "pool")


def configure_logs(level: str, process: str, log_format: str | None = None, **always: str) -> None:
    """Sets up structlog and the standard library's logging for the whole process. Call once, from a `main`.

    `log_format`: json (the default) or console; without it TRAINHOUSE_LOG_FORMAT says it. `always` is in every line. Raises ValueError.
    """
    chosen = log_format or os.environ.get(FORMAT_VARIABLE) or "json"
    if chosen not in FORMATS:
        raise ValueError(f"{chosen!r} is no format of logs; {FORMAT_VARIABLE} is {' or '.join(FORMATS)}")
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        _Always({"process": process, **always}),
        with_ids,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    # A terminal shows a traceback in colours; in JSON it is text.
    ending: list[structlog.typing.Processor] = [structlog.dev.ConsoleRenderer()]
    if chosen == "json":
        shared.append(structlog.processors.format_exc_info)
        ending = [structlog.processors.JSONRenderer()]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared, processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *ending]
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for name in QUIET:
        logging.getLogger(name).setLevel(max(logging.getLevelName(level.upper()), logging.WARNING))


class _Always:
    """Adds what every line has. Not by context variables: threads do not inherit those."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)

    def __call__(self, _: Any, __: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
        for name, value in self._values.items():
            line.setdefault(name, value)
        return line


def with_ids(_: Any, __: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """An attempt that is written as `JOB:EPOCH` is told by its parts too."""
    attempt = line.get("attempt")
    if isinstance(attempt, str) and "job_id" not in line:
        job_id, colon, epoch = attempt.rpartition(":")
        if colon and epoch.isdecimal():
            line["job_id"], line["epoch"] = job_id, int(epoch)
    return line


def ids_of(event: Event) -> dict[str, str | int]:
    """The ids that an event has, as a line of a log names them."""
    found = {name: getattr(event, name, None) for name in IDS}
    return {name: value if isinstance(value, int) else str(value) for name, value in found.items() if value is not None}

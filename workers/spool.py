"""The writer of a rank's spool: metrics, progress, signs of life and events, one JSON array a line, one write a line.

Lines: `["m", step, time_ms, {name: value}]`, `["p", {fields of ProgressReported without ids}]`, `["a", {some of them, before training}]`,
`["e", "CheckpointCompleted", {fields without ids}, event_id | null]`. NaN and infinities are the strings "NaN", "Infinity", "-Infinity".
Holds: when a call returns, its line is in the file, whole: a SIGKILL right after it loses nothing. What is
not shipped yet never passes the limit.
Never: buffers, waits for a reader, or calls fsync (a machine that loses power loses the newest lines).
"""

import contextlib
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

DEFAULT_LIMIT_BYTES = 1 << 30
LIMIT_VARIABLE = "TRAINHOUSE_SPOOL_LIMIT_BYTES"

_dumps = orjson.dumps
_NEWLINE = orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY


class SpoolError(Exception):
    """The spool could not take a line."""


class SpoolFullError(SpoolError):
    """The spool reached its limit: nobody read it for long, or too much is logged."""


class SpoolWriter:
    """Appends to one spool file. Safe to use from several threads; one process at a time."""

    __slots__ = ("_ceiling", "_fd", "_limit", "_path", "_size", "_write")

    def __init__(self, path: Path, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        self._path = path
        self._limit = limit_bytes
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._size = os.fstat(self._fd).st_size
        self._ceiling = self._size_at_limit()
        self._write = os.write

    def metrics(self, step: int, time_ms: int, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Append one point of any number of metrics; values are numbers, or anything with `.item()`. Microseconds.

        Returns the values as numbers, so that nobody needs to ask a device for them again; NaN and infinities may come as their words.
        """
        try:
            line = _dumps(("m", step, time_ms, values), None, _NEWLINE)
        except TypeError:
            return self._plain(step, time_ms, values)
        if b"null" in line or b':"' in line or b":[" in line or b":{" in line:  # NaN and infinities become null; the rest is no number
            return self._plain(step, time_ms, values)
        self._append(line)
        return values

    def _plain(self, step: int, time_ms: int, values: Mapping[str, Any]) -> Mapping[str, Any]:
        plain = plain_numbers(values)
        self._append(_dumps(("m", step, time_ms, plain), None, _NEWLINE))
        return plain

    def progress(self, fields: Mapping[str, Any]) -> None:
        """Append a progress report: the fields of ProgressReported, without ids."""
        self._append(_dumps(("p", _with_words(fields)), None, _NEWLINE))
        self._count_again()

    def life(self, fields: Mapping[str, Any]) -> None:
        """Append a sign of life of a rank that does not train yet: fields as of a progress report."""
        self._append(_dumps(("a", _with_words(fields)), None, _NEWLINE))
        self._count_again()

    def event(self, name: str, fields: Mapping[str, Any], event_id: str | None = None) -> None:
        """Append an event by its class name and fields, without ids; `event_id` makes a repeat recognisable."""
        self._append(_dumps(("e", name, _with_words(fields), event_id), None, _NEWLINE))

    def _append(self, line: bytes) -> None:
        size = self._size + len(line)
        if size > self._ceiling:
            self._ceiling = self._size_at_limit()
        if size > self._ceiling:
            raise SpoolFullError(
                f"{self._path} would hold more than its limit of {self._limit} unread bytes. Either nothing reads it (is the node agent"
                f" alive, can it reach the brokers?) or the job logs too much. The limit is spool_limit_bytes of the agent's settings"
                f" ({LIMIT_VARIABLE} without an agent)"
            )
        try:
            written = self._write(self._fd, line)
        except OSError as error:
            if self._fd < 0:
                raise SpoolError(f"{self._path} is closed: log before the session ends") from None
            raise SpoolError(f"{self._path} cannot be written: {error.strerror}; free space on its disk") from error
        self._size = size
        if written != len(line):
            raise SpoolError(f"{self._path} took {written} of {len(line)} bytes; free space on its disk")

    def _count_again(self) -> None:
        """Two threads that append at once count one line for two; here the file says what is right."""
        with contextlib.suppress(OSError):
            self._size = os.fstat(self._fd).st_size

    def _size_at_limit(self) -> int:
        """Returns the size that the file may grow to by now: shipped parts are given back as holes, which take no space."""
        stat = os.fstat(self._fd)
        return stat.st_size + self._limit - min(stat.st_size, stat.st_blocks * 512)

    def close(self) -> None:
        """Close the file; nothing is lost without it, and nothing more is taken."""
        fd, self._fd = self._fd, -1  # its number may soon be another file's
        if fd >= 0:
            os.close(fd)


def plain_numbers(values: Mapping[str, Any]) -> dict[str, float | int | str | None]:
    """Metric values as JSON can hold them. Raises TypeError naming a metric that is no number."""
    return {name: _plain(name, value) for name, value in values.items()}


def _plain(name: str, value: Any) -> float | int | str | None:
    if hasattr(value, "item"):
        value = value.item()
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return _word(value)
    raise TypeError(f"metric {name!r} is {type(value).__name__}; log numbers, or one-element tensors or arrays")


def _word(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _with_words(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {k: _word(v) if isinstance(v, float) else v for k, v in fields.items()}

"""Formats of termination notices: a person's file, and the metadata of three clouds. Pure.

    60 the rack is moved                                   seconds from when the file was written, or an ISO time with its zone
    {"deadline_s": 60, "reason": "the rack is moved"}      or "deadline": "2026-01-31T12:00:00Z"

Holds: whoever wrote something wrong meant a notice all the same: it counts with the default deadline, and `problem` says what to write.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

MAX_S = 30 * 86_400.0
HOW = "write seconds or an ISO time with its zone, then the reason"
# A machine that is frozen for some seconds, or moved while it runs, keeps its memory: nobody has to leave.
AZURE_GOES = frozenset({"Preempt", "Terminate", "Reboot", "Redeploy"})


@dataclass(frozen=True)
class TerminationNotice:
    """The node goes away. `deadline_ms` None: when was not said. `problem`: what could not be read."""

    source: str
    reason: str
    deadline_ms: int | None = None
    problem: str = ""


def by_file(text: str, written_ms: int) -> TerminationNotice:
    """A notice file's content. Empty: now."""
    text = text.strip()
    try:
        if text.startswith("{"):
            return _by_object(json.loads(text), written_ms)
        first, _, reason = text.partition(" ")
        return TerminationNotice("file", reason.strip(), _moment_ms(first, written_ms) if first else None)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        return TerminationNotice("file", text[:500], problem=f"{error}; {HOW}")


def by_metadata(body: str, resource: str | None) -> TerminationNotice | None:
    """A metadata service's answer, known by its shape; None: nothing is announced. Raises ValueError for a shape that nobody has.

    AWS: spot/instance-action (absent, so 404, until there is one). GCP: instance/preempted, instance/maintenance-event. Azure:
    scheduledevents, in which `resource` is the machine's own name there; None: events of others count too.
    """
    text = body.strip()
    if text.upper() in ("FALSE", "NONE", "") or text.upper().startswith("MIGRATE_"):
        return None
    if text.upper() == "TRUE":
        return TerminationNotice("gcp", "preempted")
    if text.upper().startswith("TERMINATE_"):
        return TerminationNotice("gcp", text)
    found = json.loads(text)
    if isinstance(found, dict) and isinstance(found.get("Events"), list):
        return _by_azure(found["Events"], resource)
    if isinstance(found, dict) and "action" in found:
        return TerminationNotice("aws", f"spot {found['action']}", _iso_ms(str(found["time"])) if found.get("time") else None)
    raise ValueError(f"nothing like {text[:200]!r} is known: AWS's instance-action, GCP's preempted and Azure's Events are")


def _by_object(found: dict[str, Any], written_ms: int) -> TerminationNotice:
    unknown = sorted(set(found) - {"deadline_s", "deadline", "reason"})
    reason = str(found.get("reason", ""))
    try:
        if unknown:
            raise ValueError(f"a notice has deadline_s or deadline, and reason, not {', '.join(unknown)}")
        for key, read in _MOMENTS.items():
            if found.get(key) is not None:
                return TerminationNotice("file", reason, read(str(found[key]), written_ms))
    except (ValueError, OverflowError) as error:
        return TerminationNotice("file", reason, problem=str(error))
    return TerminationNotice("file", reason)


def _by_azure(events: list[Any], resource: str | None) -> TerminationNotice | None:
    """The first one that takes this machine away."""
    notices = []
    for event in events:
        goes = event.get("EventType") in AZURE_GOES and event.get("EventStatus", "Scheduled") in ("Scheduled", "Started")
        if goes and (resource is None or resource in event.get("Resources", ())):
            why = " ".join(filter(None, (event["EventType"], event.get("Description", ""))))
            notices.append(TerminationNotice("azure", why, _http_ms(event["NotBefore"]) if event.get("NotBefore") else None))
    return min(notices, key=lambda s: s.deadline_ms or 0, default=None)


def _moment_ms(text: str, from_ms: int) -> int:
    try:
        seconds = float(text.removesuffix("s"))
    except ValueError:
        return _iso_ms(text)
    return _after_ms(seconds, from_ms)


def _after_ms(seconds: float, from_ms: int) -> int:
    if not (math.isfinite(seconds) and 0 <= seconds <= MAX_S):
        raise ValueError(f"{seconds:g} is no number of seconds from now")
    return from_ms + round(seconds * 1000)


def _iso_ms(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text[:100]!r} is no time") from None
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no zone: end it with Z, or +02:00")
    return round(moment.timestamp() * 1000)


def _http_ms(text: str) -> int:
    """A time as HTTP writes it, or as ISO does."""
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return _iso_ms(text)
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


_MOMENTS: dict[str, Callable[[str, int], int]] = {
    "deadline_s": lambda text, from_ms: _after_ms(float(text), from_ms),
    "deadline": lambda text, _: _iso_ms(text),
}

"""Passes of timed parts that failed: between two runs a part is EXITED, however its run ended.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from trainhouse.deploy.local.supervision.supervisor_client import PartState

COMMANDS = {"expire": "trainhouse expire", "sweep": "trainhouse store sweep"}
NOT_STARTED = ("BACKOFF", "FATAL", "UNKNOWN")


def failed_passes(states: Iterable[PartState], logs: dict[str, str]) -> list[str]:
    """A line for each timed part whose last pass failed. `logs`: its log file, by part."""
    return [_line(each, logs.get(each.name, "")) for each in states if each.name in COMMANDS and _failed(each)]


def _failed(part: PartState) -> bool:
    return part.state in NOT_STARTED or (part.state == "EXITED" and part.exit_status != 0)


def _line(part: PartState, log: str) -> str:
    ended = "was killed" if part.exit_status < 0 else f"ended with {part.exit_status}"
    how = "could not be started" if part.state in NOT_STARTED else ended
    return (
        f"the last timed pass of {part.name} failed (it {how}): its log says why ({log}). Shown until the next timed pass succeeds, "
        f"which is within a day; `{COMMANDS[part.name]}` deletes now what is due"
    )

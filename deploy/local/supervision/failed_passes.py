"""Passes of timed parts that failed: between two runs a part is EXITED, however its run ended.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from trainhouse.deploy.local.supervision.supervisor_client import PartState

COMMANDS = {"expire": "trainhouse expire", "sweep": "trainhouse store sweep"}


def failed_passes(states: Iterable[PartState], logs: dict[str, str]) -> list[str]:
    """A line for each timed part whose last pass failed. `logs`: its log file, by part."""
    return [_line(each, logs.get(each.name, "")) for each in states if each.name in COMMANDS and _failed(each)]


def _failed(part: PartState) -> bool:
    return part.state in ("FATAL", "UNKNOWN") or (part.state == "EXITED" and part.exit_status != 0)


def _line(part: PartState, log: str) -> str:
    how = "was killed" if part.exit_status < 0 else f"ended with {part.exit_status}"
    return (
        f"the last pass of {part.name} failed (it {how}): its log says why ({log}). What it deletes stays until a pass succeeds: the next "
        f"one is within a day, `{COMMANDS[part.name]}` makes one now"
    )

"""Filters of every listing: by user, team, project, pool, state and time.

Holds: pure; the same filter means the same for rows in memory and for SQL.
"""

import re
from datetime import UTC, datetime

from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.client.filters import JobFilter

UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
STATES = (
    "PENDING",
    "SCHEDULED",
    "INITIALIZING",
    "RUNNING",
    "CHECKPOINTING",
    "PREEMPTED",
    "SUCCEEDED",
    "FAILED",
    "CANCELLED",
    "REJECTED",
    "NEEDS_REVIEW",
)


def parse_time(text: str, now_ms: int) -> int:
    """`2h` ago, or a moment in ISO 8601 (UTC unless it says otherwise), as milliseconds. Raises CliError."""
    ago = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw])", text.strip())
    if ago:
        return now_ms - round(float(ago[1]) * UNITS_S[ago[2]] * 1000)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise CliError(f"{text!r} is no time: write 90s, 15m, 2h, 3d, or 2026-05-01T12:00", Exit.USAGE) from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def parse_states(names: list[str] | None) -> tuple[str, ...]:
    """States in capitals; raises CliError for an unknown one."""
    found = tuple(s.upper() for name in names or () for s in name.split(","))
    for state in found:
        if state not in STATES:
            raise CliError(f"{state!r} is no state; there are {', '.join(STATES)}", Exit.USAGE)
    return found


def parse_tags(tags: list[str] | None) -> tuple[str, ...]:
    """Tags as typed, `key=value` or `key`; raises CliError for one without a key."""
    for tag in tags or ():
        if not tag.partition("=")[0].strip():
            raise CliError(f"--tag {tag!r}: write --tag KEY=VALUE, or --tag KEY for any value", Exit.USAGE)
    return tuple(tags or ())


def job_filter(
    now_ms: int,
    *,
    user: str | None = None,
    team: str | None = None,
    project: str | None = None,
    pool: str | None = None,
    state: list[str] | None = None,
    since: str | None = None,
    until: str | None = None,
    tag: list[str] | None = None,
) -> JobFilter:
    """A filter from what was typed. Raises CliError."""
    return JobFilter(
        user=user,
        team=team,
        project=project,
        pool=pool,
        states=parse_states(state),
        since_ms=parse_time(since, now_ms) if since else None,
        until_ms=parse_time(until, now_ms) if until else None,
        tags=parse_tags(tag),
    )


def parse_duration_s(text: str) -> float:
    """`90`, `90s`, `15m`, `2h`, `3d` as seconds. Raises CliError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw]?)", text.strip())
    if not found or float(found[1]) <= 0:
        raise CliError(f"{text!r} is no length of time: write 90s, 15m, 2h or 3d", Exit.USAGE)
    return float(found[1]) * UNITS_S[found[2] or "s"]

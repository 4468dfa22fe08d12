"""Rows of `top` as cells. Pure.

Holds: cells are text without markup: a job's name can never style or run anything.
"""

from rich.text import Text

from trainhouse.cli.shared.output import duration, one_line
from trainhouse.client.backend_protocol import Row

STATE_STYLES = {
    "RUNNING": "bold cyan",
    "CHECKPOINTING": "cyan",
    "SCHEDULED": "blue",
    "INITIALIZING": "blue",
    "SUCCEEDED": "green",
    "FAILED": "bold red",
    "REJECTED": "red",
    "CANCELLED": "yellow",
    "PREEMPTED": "yellow",
    "NEEDS_REVIEW": "magenta",
    "ALIVE": "green",
    "SUSPECTED": "yellow",
    "LOST": "bold red",
}
JOBS = ("job", "state", "user", "ranks", "step", "loss", "steps/s", "for", "reason")
NODES = ("node", "state", "pool", "devices", "ranks", "heard")
QUEUE = ("waiting job", "pool", "prio", "ranks", "for", "because")
REASON_CHARS = 120


def plain(value: object) -> Text:
    """Text as it is, on one line."""
    return Text(one_line(str(value)) if value is not None else "", no_wrap=True)


def number(value: object) -> Text:
    """A figure, at the right."""
    shown = "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
    return Text(shown, justify="right", no_wrap=True)


def state(name: str) -> Text:
    """A state in its colour."""
    return Text(name, style=STATE_STYLES.get(name, ""), no_wrap=True)


def job(row: Row, now_ms: int) -> tuple[Text, ...]:
    """As JOBS says."""
    step = None if row.get("step") is None else f"{row['step']}/{row['total_steps']}" if row.get("total_steps") else row["step"]
    until = row.get("finished_at_ms") or now_ms
    lasted = duration(max(0.0, (until - row["submitted_at_ms"]) / 1000)) if row.get("submitted_at_ms") else ""
    figures = (number(row.get("world_size") or None), number(step), number(row.get("loss")), number(row.get("steps_per_s") or None))
    return (
        plain(row["job_id"]),
        state(row["state"]),
        plain(row.get("user")),
        *figures,
        number(lasted),
        plain(one_line(row.get("reason") or "", REASON_CHARS)),
    )


def node(row: Row, now_ms: int) -> tuple[Text, ...]:
    """As NODES says."""
    heartbeat_ms = row.get("last_heartbeat_at_ms")
    last_heartbeat = duration(max(0.0, (now_ms - heartbeat_ms) / 1000)) + " ago" if heartbeat_ms else ""
    closed = row.get("restriction") or "NONE"
    shown = state(row["state"]) if closed == "NONE" else Text(f"{row['state']}, {closed}", style="yellow")
    devices = f"{row.get('devices') or 0} {row.get('device_type') or ''}".strip()
    return (plain(row["node_id"]), shown, plain(row.get("pool")), number(devices), number(row.get("ranks_running")), number(last_heartbeat))


def waiting(row: Row, now_ms: int) -> tuple[Text, ...]:
    """As QUEUE says."""
    since = row.get("submitted_at_ms")
    waits = duration(max(0.0, (now_ms - since) / 1000)) if since else ""
    about = (plain(row["job_id"]), plain(row.get("pool")), number(row.get("priority")), number(row.get("world_size") or None))
    return (*about, number(waits), plain(one_line(row.get("reason") or "", REASON_CHARS)))

"""A job shown live: as a card in a notebook, as lines elsewhere.

Holds: every text of a job is escaped: a name can never be markup; what is shown is the newest status and nothing else, and it says so when
it is no longer followed.
"""

import html
import sys
from collections.abc import Callable, Generator
from contextlib import closing
from typing import Any

from trainhouse.client.errors import ClientError
from trainhouse.events import JobStatus

# Of their own on light and dark ground alike.
COLORS = {"RUNNING": "#0b7285", "SUCCEEDED": "#2b8a3e", "FAILED": "#c92a2a", "REJECTED": "#c92a2a", "CANCELLED": "#b35c00"}
OTHER = "#5f6b7a"
LEFT = "no longer followed; the job goes on: job.watch() shows it again"
Show = Callable[[JobStatus | None, str], None]


def show_live(job_id: str, statuses: Generator[JobStatus, None, None]) -> JobStatus | None:
    """Shows each status as it comes; gives the last. Blocks as long as the statuses do; an interruption ends them."""
    last, note = None, LEFT
    show = _display(str(job_id)) or _lines(str(job_id))
    try:
        # A notebook keeps the traceback of an interruption, and with it what is not closed.
        with closing(statuses):
            for status in statuses:
                last = status
                show(status, "")
    except ClientError as error:
        note = f"no longer followed: {error}"
        raise
    finally:
        if last is None or not last.state.final:
            show(last, note)
    return last


def card(job_id: str, status: JobStatus | None, note: str = "") -> str:
    """A job as HTML, without scripts and without a request to anywhere. Pure."""
    escape = html.escape
    if status is None:
        return f"<div><b>{escape(job_id)}</b> <span>{escape(note or 'no status yet')}</span></div>"
    color = COLORS.get(str(status.state), OTHER)
    head = f'<b>{escape(job_id)}</b> <span style="color:{color};font-weight:bold">{escape(str(status.state))}</span>'
    parts = [head, _bar(status, color), *(f"<div>{escape(line)}</div>" for line in _facts(status) if line)]
    if note:
        parts.append(f"<div><i>{escape(note)}</i></div>")
    return f'<div style="font-family:ui-monospace,monospace;font-size:13px;line-height:1.5">{"".join(parts)}</div>'


def _bar(status: JobStatus, color: str) -> str:
    if not status.total_steps:
        return ""
    done = min(status.step or 0, status.total_steps)
    label = html.escape(f"step {done} of {status.total_steps}")
    return (
        f'<div role="progressbar" aria-valuemin="0" aria-valuemax="{status.total_steps}" aria-valuenow="{done}" aria-label="{label}" '
        f'style="width:320px;max-width:100%;height:8px;border:1px solid {color};border-radius:4px">'
        f'<div style="width:{100 * done / status.total_steps:.1f}%;height:100%;background:{color}"></div></div>'
    )


def _facts(status: JobStatus) -> tuple[str, ...]:
    numbers = [
        "" if status.step is None else f"step {status.step}" + (f" of {status.total_steps}" if status.total_steps else ""),
        "" if status.loss is None else f"loss {status.loss:.4g}",
        "" if not status.steps_per_s else f"{status.steps_per_s:.2f} steps/s",
        "" if status.eta_s is None or status.state.final else f"{status.eta_s:.0f} s to go",
        f"restart {status.restarts}" if status.restarts else "",
    ]
    of = " · ".join(x for x in (status.name, status.user, f"pool {status.pool}" if status.pool else "") if x)
    return (of, "  ".join(n for n in numbers if n), status.reason)


def line(job_id: str, status: JobStatus | None, note: str = "") -> str:
    """A job as one line of text. Pure."""
    facts = ["no status yet"] if status is None else [str(status.state), *_facts(status)[1:]]
    return "  ".join(part for part in (job_id, *facts, note) if part)


def _display(job_id: str) -> Show | None:
    """A display in place, where IPython shows HTML; else None."""
    if "IPython" not in sys.modules:
        return None
    from importlib import import_module

    shell: Any = import_module("IPython").get_ipython()
    if shell is None or not hasattr(shell, "kernel"):
        return None  # a terminal: lines are better there
    tools: Any = import_module("IPython.display")

    def shown(status: JobStatus | None, note: str = "") -> dict[str, str]:
        return {"text/html": card(job_id, status, note), "text/plain": line(job_id, status, note)}

    handle = tools.display(shown(None), raw=True, display_id=True)
    return lambda status, note: handle.update(shown(status, note), raw=True)


def _lines(job_id: str) -> Show:
    def show(status: JobStatus | None, note: str) -> None:
        sys.stdout.write(line(job_id, status, note) + "\n")
        sys.stdout.flush()

    return show

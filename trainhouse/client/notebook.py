"""A job shown live: as a card in a notebook, as lines elsewhere.

Holds: every text of a job is escaped: a name can never be markup; what is shown is the newest status and nothing else.
"""

import html
import sys
from collections.abc import Callable, Iterable
from typing import Any

from trainhouse.events import JobStatus

# Of their own on light and dark ground alike.
COLORS = {"RUNNING": "#0b7285", "SUCCEEDED": "#2b8a3e", "FAILED": "#c92a2a", "REJECTED": "#c92a2a", "CANCELLED": "#b35c00"}
OTHER = "#5f6b7a"


def show_live(job_id: str, statuses: Iterable[JobStatus]) -> JobStatus | None:
    """Shows each status as it comes; gives the last. Blocks as long as the statuses do."""
    last = None
    show = _display(str(job_id)) or _lines(str(job_id))
    for status in statuses:
        last = status
        show(status)
    return last


def card(job_id: str, status: JobStatus | None, note: str = "") -> str:
    """A job as HTML, without scripts and without a request to anywhere. Pure."""
    told = html.escape
    if status is None:
        return f"<div><b>{told(job_id)}</b> <span>{told(note or 'no status yet')}</span></div>"
    color = COLORS.get(str(status.state), OTHER)
    head = f'<b>{told(job_id)}</b> <span style="color:{color};font-weight:bold">{told(str(status.state))}</span>'
    parts = [head, _bar(status, color), *(f"<div>{told(line)}</div>" for line in _facts(status) if line)]
    if note:
        parts.append(f"<div><i>{told(note)}</i></div>")
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


def _display(job_id: str) -> Callable[[JobStatus], None] | None:
    """A display in place, where IPython shows HTML; else None."""
    if "IPython" not in sys.modules:
        return None
    from importlib import import_module

    shell: Any = import_module("IPython").get_ipython()
    if shell is None or not hasattr(shell, "kernel"):
        return None  # a terminal: lines are better there
    tools: Any = import_module("IPython.display")
    handle = tools.display(tools.HTML(card(job_id, None)), display_id=True)

    def show(status: JobStatus) -> None:
        handle.update(tools.HTML(card(job_id, status)))

    return show


def _lines(job_id: str) -> Callable[[JobStatus], None]:
    def show(status: JobStatus) -> None:
        facts = "  ".join(f for f in _facts(status)[1:] if f)
        sys.stdout.write(f"{job_id}  {status.state}  {facts}".rstrip() + "\n")
        sys.stdout.flush()

    return show

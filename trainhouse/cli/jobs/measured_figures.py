"""Measured figures of a job for `status`: use of its devices, and the hours to its end.

Holds: what no rank reported is None: a device without NVML, a peak that is not known. Figures are the newest of the lowest rank that
reports them.
"""

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainhouse.client import TrainhouseClient
    from trainhouse.client.quick.quick_reads import QuickReads

METRICS = ("system/device_utilization_pct", "mfu", "tokens_per_s")
"""All that is asked for: a job may have thousands."""
_SECONDS = 3600
_PERCENT = 100
_MOST_AS_SHARE = 1.5
"""A program's own `mfu` above it is in percent; the alert `mfu-low` takes it so too."""


def figures_of(client: "QuickReads | TrainhouseClient", status: Mapping[str, Any]) -> dict[str, float | None]:
    """Asks the tables for the job's newest metrics; without tables only what its status, as JSON, holds is known. Blocks."""
    from trainhouse.client.errors import ClientError
    from trainhouse.client.rows import FINAL

    try:
        rows = client.last_metrics(status["job_id"], METRICS) if status["job_id"] and status["step"] is not None else []
    except ClientError:
        rows = []
    return figures(None if status["state"] in FINAL else status["eta_s"], rows)


def figures(eta_s: float | None, rows: Iterable[Mapping[str, Any]]) -> dict[str, float | None]:
    """Returns shares of 1 (`gpu_utilization`, `mfu`), tokens a second, and hours, by name."""
    newest = {str(row["metric"]): float(row["value"]) for row in rows if row["value"] is not None and math.isfinite(float(row["value"]))}
    used = newest.get("system/device_utilization_pct")
    mfu = newest.get("mfu")
    return {
        "gpu_utilization": None if used is None else used / _PERCENT,
        "mfu": mfu / _PERCENT if mfu is not None and mfu > _MOST_AS_SHARE else mfu,
        "tokens_per_s": newest.get("tokens_per_s"),
        "estimated_remaining_hours": None if eta_s is None else eta_s / _SECONDS,
    }


def lines(found: Mapping[str, float | None]) -> list[tuple[str, str]]:
    """The figures as (name, text), without those that are not known."""
    texts = (
        ("GPU use", found["gpu_utilization"], "{:.0%}"),
        ("MFU", found["mfu"], "{:.1%}"),
        ("tokens", found["tokens_per_s"], "{:,.0f} tokens/s"),
    )
    return [(name, text.format(value)) for name, value, text in texts if value is not None]

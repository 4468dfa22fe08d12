"""A Gantt chart of devices: which gang had which device when, coloured by the gang's size.

Holds: at most MAX_BARS bars; where there are more, the largest (devices x time) are drawn, and the title says how much they cover.
"""

from collections.abc import Iterable, Sequence
from heapq import nlargest
from pathlib import Path

from trainhouse.scheduler.sim.drawing import INK, figure, save, tidy, time_axis
from trainhouse.scheduler.sim.summary import SIZES, size_name
from trainhouse.scheduler.sim.types import SimNode, SimResult

MAX_BARS = 6000
MAX_LABELS = 24
RAMP = ("#B3CFE5", "#86B3D8", "#5594C4", "#2B6A9F", "#F2B77C", "#E08A3C", "#B85410", "#6B2A00")
"""One colour a class of SIZES: blue up to a node of 8, then orange, darker with size."""

LIGHTER = 0.22
"""Every other job is drawn so much lighter, so that neighbours differ."""

Bar = tuple[int, int, int, int, int]
"""(start second, length, first row, rows, twice the class of size, and 1 more for every other job)"""


def gantt(result: SimResult, nodes: Sequence[SimNode], folder: Path, about: str) -> list[Path]:
    """Writes `gantt_POLICY.png` and `.svg`."""
    from matplotlib.collections import PolyCollection
    from matplotlib.patches import Patch

    shown = figure(11, 7)
    axes = shown.add_subplot()
    rows, labels = layout(nodes)
    found = list(bars(result, rows))
    kept = nlargest(MAX_BARS, found, key=lambda b: (b[1] * b[3], -b[0], -b[2]))
    covered = sum(b[1] * b[3] for b in kept) / max(1, sum(b[1] * b[3] for b in found))
    tidy(axes, f"{result.policy}: devices over time, {about}{coverage(len(kept), len(found), covered)}", "node")
    unit_s = time_axis(axes, result.first_s, result.last_s)
    shapes = [_corners(b, result.first_s, unit_s) for b in kept]
    shades = [shade for colour in RAMP for shade in (colour, lighter(colour))]
    edge = 0.4 if len(kept) < 400 else 0.0
    axes.add_collection(PolyCollection(shapes, facecolors=[shades[b[4]] for b in kept], edgecolors="white", linewidths=edge))
    total = sum(n.gpus for n in nodes)
    axes.set_ylim(total, 0)
    axes.set_yticks([row for row, _ in labels], labels=[name for _, name in labels], fontsize=7)
    axes.grid(False)
    axes.set_facecolor("#F7F7F7")
    used = sorted({b[4] // 2 for b in found})
    patches = [Patch(facecolor=RAMP[c], label=f"{size_name(*SIZES[c])} GPU{'s' if c else ''}") for c in used]
    shown.legend(handles=patches, loc="outside lower center", ncols=max(1, len(patches)), frameon=False, fontsize=9, labelcolor=INK)
    return save(shown, folder, f"gantt_{file_part(result.policy)}")


def layout(nodes: Sequence[SimNode]) -> tuple[dict[str, int], list[tuple[float, str]]]:
    """The first row of each node, and labels for some of them: (middle row, node)."""
    rows: dict[str, int] = {}
    total = 0
    for node in nodes:
        rows[node.node_id] = total
        total += node.gpus
    every = max(1, -(-len(nodes) // MAX_LABELS))
    return rows, [(rows[n.node_id] + n.gpus / 2, n.node_id) for n in nodes[::every]]


def bars(result: SimResult, rows: dict[str, int]) -> Iterable[Bar]:
    """A bar for each run of neighbouring devices of each segment."""
    kinds = {r.job_id: 2 * _class(r.gpus) + n % 2 for n, r in enumerate(result.rows)}
    for segment in result.segments:
        kind = kinds[segment.job_id]
        for first, count in runs(segment.devices):
            yield segment.from_s, segment.to_s - segment.from_s, rows[segment.node_id] + first, count, kind


def _class(gpus: int) -> int:
    return next(n for n, (low, high) in enumerate(SIZES) if low <= gpus <= high)


def lighter(colour: str) -> str:
    """A colour nearer to white."""
    parts = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(p + (255 - p) * LIGHTER):02X}" for p in parts)


def runs(devices: int) -> Iterable[tuple[int, int]]:
    """(first position, how many) of each run of set bits."""
    at = 0
    while devices:
        skip = (devices & -devices).bit_length() - 1
        devices >>= skip
        count = (~devices & (devices + 1)).bit_length() - 1
        yield at + skip, count
        devices >>= count
        at += skip + count


def coverage(kept: int, found: int, share: float) -> str:
    """Returns the title's note about bars that are not drawn; empty if all are."""
    return "" if kept == found else f"\n{kept:,} of {found:,} bars, {int(1000 * share) / 10:.1f} % of the device time in use"


def file_part(policy: str) -> str:
    """A policy's name as part of a file's name."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "_" for c in policy) or "policy"


def _corners(bar: Bar, first_s: int, unit_s: int) -> list[tuple[float, float]]:
    start, length, row, count, _ = bar
    left, right = (start - first_s) / unit_s, (start + length - first_s) / unit_s
    return [(left, row), (right, row), (right, row + count), (left, row + count)]

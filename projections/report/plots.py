"""The report's plots: failures over time, times to recover, where device time went, worst nodes.

Holds: no plot of nothing; a category has the same colour in every plot; names from the data are drawn as they are.
Never: computes a figure that the model has not.
"""

from trainhouse.events.model.verdict import FailureCategory
from trainhouse.projections.report.definitions import CAUSE_WORDS
from trainhouse.projections.report.device_time import CAUSES
from trainhouse.projections.report.drawing import COLOURS, INK, figure, legend, svg, tidy, whole_ticks
from trainhouse.projections.report.model import Health

CATEGORIES = tuple(c.value for c in FailureCategory)
HELD = (("blames", "blamed"), ("losses", "lost"), ("quarantines", "quarantined"), ("probes_failed", "self test failed"))
TICKS = ((1, "1 s"), (10, "10 s"), (60, "1 min"), (600, "10 min"), (3600, "1 h"), (6 * 3600, "6 h"), (86_400, "1 d"), (7 * 86_400, "7 d"))
MAX_LABELS = 8
MAX_NAME = 28


def plots(now: Health) -> dict[str, str]:
    """SVG elements by name, of what there is data for. Raises PlotsMissingError."""
    drawn = {}
    if now.over_time:
        drawn["failures"] = _failures(now)
    if now.total is not None and now.total.recovered:
        drawn["recovery"] = _recovery(now)
    if now.measured_s:
        drawn["time"] = _time(now)
    if now.nodes:
        drawn["nodes"] = _nodes(now)
    return drawn


def _colour(category: str) -> str:
    return COLOURS[CATEGORIES.index(category) % len(COLOURS)] if category in CATEGORIES else COLOURS[-1]


def _failures(now: Health) -> str:
    shown = figure(3.4)
    axes = shown.add_subplot()
    tidy(axes, "failed attempts")
    pieces = range(now.period.pieces)
    below = [0] * len(pieces)
    for category in sorted({c for _, c in now.over_time}, key=lambda c: (CATEGORIES.index(c) if c in CATEGORIES else 99, c)):
        heights = [now.over_time.get((p, category), 0) for p in pieces]
        axes.bar(pieces, heights, bottom=below, width=0.8, color=_colour(category), label=category.replace("_", " ").lower())
        below = [b + h for b, h in zip(below, heights, strict=True)]
    whole_ticks(axes.yaxis)
    _piece_axis(axes, now)
    legend(shown, axes, 4)
    return svg(shown)


def _time(now: Health) -> str:
    shown = figure(3.9)
    axes = shown.add_subplot()
    tidy(axes, "device-hours")
    pieces = range(now.period.pieces)
    below = [0.0] * len(pieces)
    for number, cause in enumerate(CAUSES):
        heights = [now.time.get((p, cause), 0.0) / 3600 for p in pieces]
        if any(heights):
            axes.bar(pieces, heights, bottom=below, width=0.8, color=_CAUSE_COLOURS[number], label=CAUSE_WORDS[cause])
            below = [b + h for b, h in zip(below, heights, strict=True)]
    _piece_axis(axes, now)
    legend(shown, axes, 2)
    return svg(shown)


_CAUSE_COLOURS = ("#009E73", "#D55E00", "#E69F00", "#56B4E9", "#0072B2", "#CC79A7", "#9AA0A6")


def _piece_axis(axes: "object", now: Health) -> None:
    """Labels some of the pieces."""
    every = -(-now.period.pieces // MAX_LABELS)
    at = list(range(0, now.period.pieces, every))
    axes.set_xticks(at, labels=[now.period.label(p) for p in at])  # type: ignore[attr-defined]
    axes.set_xlim(-0.6, now.period.pieces - 0.4)  # type: ignore[attr-defined]


def _recovery(now: Health) -> str:
    found = [(c, r) for c, r in now.by_category.items() if r.recovered]
    shown = figure(1.3 + 0.42 * len(found))
    axes = shown.add_subplot()
    tidy(axes, along="x")
    for row, (category, r) in enumerate(found):
        low, high, worst = (max(0.5, s or 0.0) for s in (r.p50_s, r.p95_s, r.worst_s))
        colour = _colour(category)
        axes.hlines(row, low, worst, color=colour, linewidth=2)
        axes.plot([low], [row], "o", color=colour, markersize=9, label="median" if not row else None)
        axes.plot([high], [row], "|", color=colour, markersize=16, markeredgewidth=3, label="p95" if not row else None)
        axes.plot([worst], [row], "D", color=colour, markersize=6, label="worst" if not row else None)
    axes.set_xscale("log")
    most = max(r.worst_s or 1 for _, r in found)
    ticks = [t for t in TICKS if t[0] <= max(60, 3 * most)]
    axes.set_xlim(0.4, max(90, 1.6 * most))
    axes.minorticks_off()
    axes.set_xticks([t[0] for t in ticks], labels=[t[1] for t in ticks])
    axes.set_yticks(range(len(found)), labels=[f"{c.replace('_', ' ').lower()} ({r.recovered})" for c, r in found])
    axes.set_ylim(len(found) - 0.4, -0.6)
    axes.set_xlabel("from the failure to the next step", color=INK, fontsize=10)
    legend(shown, axes, 3)
    return svg(shown)


def _nodes(now: Health) -> str:
    shown = figure(1.3 + 0.36 * len(now.nodes))
    axes = shown.add_subplot()
    tidy(axes, along="x")
    rows = range(len(now.nodes))
    left = [0] * len(now.nodes)
    for number, (key, label) in enumerate(HELD):
        widths = [int(r[key]) for r in now.nodes]
        if any(widths):
            axes.barh(rows, widths, left=left, height=0.65, color=(COLOURS[3], COLOURS[0], COLOURS[1], COLOURS[4])[number], label=label)
            left = [a + b for a, b in zip(left, widths, strict=True)]
    names = [str(r["node_id"]) for r in now.nodes]
    axes.set_yticks(rows, labels=[n if len(n) <= MAX_NAME else "…" + n[1 - MAX_NAME :] for n in names], parse_math=False)
    axes.set_ylim(len(names) - 0.4, -0.6)
    whole_ticks(axes.xaxis)
    legend(shown, axes, 4)
    return svg(shown)

"""Plots that compare policies: utilization and queue over time, waits by gang size.

Holds: a policy has the same colour in every plot; a line has at most MAX_POINTS points.
Never: computes a figure that the summary has not.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trainhouse.scheduler.sim.drawing import INK, figure, legend_below, save, style, tidy, time_axis, wait_axis
from trainhouse.scheduler.sim.summary import Group, Summary
from trainhouse.scheduler.sim.types import Point, SimResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_POINTS = 240


def utilization(results: Sequence[SimResult], folder: Path, about: str) -> list[Path]:
    """Devices in use over devices in service, every policy a line."""
    shown = figure(10, 4.6)
    axes = shown.add_subplot()
    tidy(axes, f"GPUs in use, {about}", "share of GPUs in service (%)")
    unit_s = _span(axes, results)
    for n, result in enumerate(results):
        points = thin(result.timeline)
        shares = [100 * p.busy / p.devices if p.devices else 0.0 for p in points]
        _line(axes, (n, len(results)), result, points, shares, unit_s, f"{result.policy} (mean {100 * result.utilization:.1f} %)")
    axes.set_ylim(0, 102)
    legend_below(shown, axes, [r.policy for r in results])
    return save(shown, folder, "utilization")


def queue(results: Sequence[SimResult], folder: Path, about: str) -> list[Path]:
    """Jobs that wait, and the GPUs that they ask for."""
    shown = figure(10, 6.4)
    above, below = shown.subplots(2, 1, sharex=True)
    tidy(above, f"Waiting jobs, {about}", "jobs waiting")
    tidy(below, "GPUs that waiting jobs ask for", "GPUs asked for")
    unit_s = _span(below, results)
    for n, result in enumerate(results):
        points = thin(result.timeline)
        _line(above, (n, len(results)), result, points, [p.waiting for p in points], unit_s, result.policy)
        _line(below, (n, len(results)), result, points, [p.asked for p in points], unit_s, result.policy)
    for axes in (above, below):
        # Queues of policies differ by orders of magnitude.
        axes.set_yscale("symlog", linthresh=1, linscale=0.4)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    legend_below(shown, above, [r.policy for r in results])
    return save(shown, folder, "queue")


def waits_by_size(summaries: Sequence[Summary], folder: Path, about: str) -> list[Path]:
    """For each class of gang sizes and each policy: median, mean, p95 and p99 of the wait, side by side."""
    classes = _classes(summaries)
    shown = figure(max(8.0, 1.2 + 0.28 * (len(summaries) + 1) * len(classes)), 5.2)
    axes = shown.add_subplot()
    tidy(axes, f"Waits by gang size, {about}", "wait")
    step = 0.8 / len(summaries)
    for n, summary in enumerate(summaries):
        places = [(k - 0.4 + step * (n + 0.5), summary.by_size[c]) for k, c in enumerate(classes) if c in summary.by_size]
        _stems(axes, n, summary.policy, places)
    most_s = max((g.p99_wait_s for s in summaries for g in s.by_size.values()), default=1)
    wait_axis(axes, max([most_s, *(g.mean_wait_s for s in summaries for g in s.by_size.values())]))
    axes.set_xticks(range(len(classes)), labels=[f"{c}\n{_jobs(summaries, c):,} jobs" for c in classes])
    axes.set_xlim(-0.5, max(1, len(classes)) - 0.5)
    axes.grid(False, axis="x")
    for k in range(1, len(classes)):
        axes.axvline(k - 0.5, color="#EEEEEE", linewidth=1, zorder=0)
    axes.set_xlabel("GPUs of the gang  (line: median to p99; circle: median; diamond: mean; bar: p95)", color=INK, fontsize=9)
    legend_below(shown, axes, [s.policy for s in summaries])
    return save(shown, folder, "waits_by_gang_size")


def thin(points: Sequence[Point]) -> list[Point]:
    """At most MAX_POINTS points: neighbours are joined, weighted by their time."""
    size = -(-len(points) // MAX_POINTS)
    return [_join(points[i : i + size]) for i in range(0, len(points), size)] if size > 1 else list(points)


def _join(points: Sequence[Point]) -> Point:
    from_s, to_s = points[0].from_s, points[-1].to_s
    whole = max(1, sum(p.to_s - p.from_s for p in points))

    def mean(name: str) -> float:
        total: float = sum(getattr(p, name) * (p.to_s - p.from_s) for p in points)
        return total / whole

    return Point(from_s, to_s, mean("busy"), mean("devices"), mean("waiting"), mean("asked"))


def _span(axes: "Axes", results: Sequence[SimResult]) -> int:
    """The x axis over all results."""
    return time_axis(axes, min(r.first_s for r in results), max(r.last_s for r in results))


def _line(
    axes: "Axes", place: tuple[int, int], result: SimResult, points: list[Point], values: list[float], unit_s: int, label: str
) -> None:
    """The line of policy n of so many. Earlier ones are broader, so that lines that coincide all show."""
    n, count = place
    colour, dashes = style(n)
    width = 1.2 + 0.55 * min(4, count - 1 - n)
    edges = [(p.from_s - result.first_s) / unit_s for p in points] + [(points[-1].to_s - result.first_s) / unit_s] if points else []
    axes.step(edges, [*values, *values[-1:]], where="post", color=colour, linestyle=dashes, linewidth=width, label=label)


def _stems(axes: "Axes", n: int, label: str, places: list[tuple[float, Group]]) -> None:
    colour, dashes = style(n)
    at = [x for x, _ in places]
    groups = [g for _, g in places]
    low, high = [g.p50_wait_s for g in groups], [g.p99_wait_s for g in groups]
    axes.vlines(at, low, high, color=colour, linestyle=dashes, linewidth=1.8, alpha=0.8)
    axes.plot(at, low, "o", color=colour, markersize=5, label=label)
    axes.plot(at, [g.mean_wait_s for g in groups], "D", color=colour, markersize=4, markerfacecolor="white")
    axes.plot(at, [g.p95_wait_s for g in groups], "_", color=colour, markersize=8, markeredgewidth=2)


def _classes(summaries: Sequence[Summary]) -> list[str]:
    """All classes that have jobs, small ones first."""
    named = {c for s in summaries for c in s.by_size}
    return sorted(named, key=lambda c: int(c.rstrip("+").partition("-")[0]))


def _jobs(summaries: Sequence[Summary], name: str) -> int:
    return max(s.by_size[name].jobs for s in summaries if name in s.by_size)

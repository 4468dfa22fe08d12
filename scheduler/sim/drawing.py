"""Shared parts of a simulation's plots: colours that tell many policies apart, axes of time, and writing PNG and SVG.

Holds: matplotlib is imported here and by the plots alone, through `figure`; without it the error says how to get it.
Never: uses pyplot (it keeps global state) or a display.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D1F")
"""Told apart by colour-blind eyes too (Okabe and Ito 2008, its yellow replaced by a darker one)."""
DASHES = ("-", "--", ":", "-.")
GRID = "#DDDDDD"
INK = "#333333"
UNITS = ((2 * 86_400, 86_400, "days"), (2 * 3_600, 3_600, "hours"), (2 * 60, 60, "minutes"), (0, 1, "seconds"))
WAIT_TICKS = ((0, "0"), (1, "1 s"), (10, "10 s"), (60, "1 min"), (600, "10 min"), (3600, "1 h"), (6 * 3600, "6 h"))
LONG_TICKS = ((86_400, "1 d"), (7 * 86_400, "7 d"), (30 * 86_400, "30 d"), (180 * 86_400, "180 d"))


class PlotsMissingError(RuntimeError):
    """matplotlib is not there."""


def figure(width_in: float, height_in: float) -> "Figure":
    """An empty figure. Raises PlotsMissingError."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PlotsMissingError(
            "plots need matplotlib, which is not installed: pip install 'trainhouse[sim]', or leave the plots out with --no-plots"
        ) from error
    return Figure(figsize=(width_in, height_in), layout="constrained")


def style(policy: int) -> tuple[str, str]:
    """Colour and dashes of the n-th policy."""
    return COLOURS[policy % len(COLOURS)], DASHES[policy // len(COLOURS) % len(DASHES)]


def tidy(axes: "Axes", title: str = "", ylabel: str = "") -> None:
    """Quiet axes: a grid behind, no box, the title on the left."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(INK)
    axes.grid(True, color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, labelsize=9)
    if title:
        axes.set_title(title, loc="left", fontsize=11, color=INK)
    axes.set_ylabel(ylabel, color=INK, fontsize=9)


def time_axis(axes: "Axes", first_s: int, last_s: int) -> int:
    """Labels the x axis as time since the first submission; the answer: how many seconds its unit has."""
    length = max(1, last_s - first_s)
    _, unit_s, name = next(u for u in UNITS if length >= u[0])
    axes.set_xlim(0, length / unit_s)
    axes.set_xlabel(f"{name} since the first submission", color=INK, fontsize=9)
    return unit_s


def wait_axis(axes: "Axes", most_s: float) -> None:
    """A y axis for waits: linear up to a second, then logarithmic, with ticks that people use."""
    ticks = [t for t in (*WAIT_TICKS, *LONG_TICKS) if t[0] <= max(10.0, 1.5 * most_s)]
    axes.set_yscale("symlog", linthresh=1, linscale=0.3)
    axes.set_ylim(-0.1, max(20.0, 1.6 * most_s))
    axes.set_yticks([t[0] for t in ticks], labels=[t[1] for t in ticks])
    axes.minorticks_off()


def legend_below(shown: "Figure", axes: "Axes", names: Sequence[str]) -> None:
    """One legend for all panels, under them."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        columns = min(len(names), 4)
        shown.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)


def save(shown: "Figure", folder: Path, name: str) -> list[Path]:
    """Writes `name.png` and `name.svg`. Raises OSError."""
    import matplotlib

    paths = []
    # A fixed salt and no date: the same figures give the same files.
    with matplotlib.rc_context({"svg.hashsalt": "trainhouse", "svg.fonttype": "none"}):
        for kind in ("png", "svg"):
            path = folder / f"{name}.{kind}"
            shown.savefig(path, dpi=150, metadata={"Date": None} if kind == "svg" else None)
            paths.append(path)
    return paths

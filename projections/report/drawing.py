"""Shared parts of the report's plots: matplotlib without a display, and SVG fit for a dark page.

Holds: the same figures give the same bytes; an SVG names no font, colour of text or ground of its own where the page has one.
Never: uses pyplot (it keeps global state) or reads markup in names from the data.
"""

import io
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

INK, GRID = "#123456", "#654321"
"""Stand-ins, for the page's own colours: `currentColor` and `var(--line)`."""
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#8C6D1F", "#9AA0A6")
"""Told apart by colour-blind eyes too, and on a dark ground (Okabe and Ito 2008, without black and yellow)."""
WIDTH_IN = 5.2


class PlotsMissingError(RuntimeError):
    """matplotlib is not there."""


def figure(height_in: float) -> "Figure":
    """An empty figure, narrow enough that its text can be read on a phone. Raises PlotsMissingError."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PlotsMissingError("plots need matplotlib, which is not installed: pip install 'trainhouse[sim]'") from error
    return Figure(figsize=(WIDTH_IN, height_in), layout="constrained")


def tidy(axes: "Axes", ylabel: str = "", along: str = "y") -> None:
    """Quiet axes: a grid behind along one direction, no box."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GRID)
    axes.grid(True, axis=along, color=GRID, linewidth=0.6)  # type: ignore[arg-type]
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, labelsize=10, length=0)
    axes.set_ylabel(ylabel, color=INK, fontsize=10)


def whole_ticks(axis: "Axis") -> None:
    """Ticks at whole numbers only."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=6, integer=True))


def legend(shown: "Figure", axes: "Axes", columns: int = 3) -> None:
    """One legend below."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        shown.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=10, labelcolor=INK)


def svg(shown: "Figure") -> str:
    """The figure as one SVG element that takes the page's font and colours."""
    import matplotlib

    written = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "trainhouse", "svg.fonttype": "none"}):
        shown.savefig(written, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = written.getvalue()
    text = text[text.index("<svg") :].strip()
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1; font-family: inherit", text)
    return text.replace(INK, "currentColor").replace(GRID, "var(--line, #888)")


def alone(element: str) -> str:
    """The same SVG as a file of its own, dark on white."""
    head, inside, rest = element.partition(">")
    ground = '<rect width="100%" height="100%" fill="#fff"/>'
    styled = f'{head} style="color:#22262b;--line:#dcdfe2;font-family:sans-serif">{ground}'
    return f'<?xml version="1.0" encoding="utf-8"?>\n{styled}{rest}\n' if inside else element

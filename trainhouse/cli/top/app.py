"""The screen of `top`: what the feed read, in tables.

Holds: it is drawn at most twice a second, whatever the feed brings; keys answer at once.
"""

import time
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.widgets import DataTable, Footer, Input, Static

from trainhouse.cli.top import cells
from trainhouse.cli.top.feed import Feed
from trainhouse.cli.top.job_page import JobScreen
from trainhouse.cli.top.picture import ORDERS, chosen, headline, queue
from trainhouse.cli.top.table import LiveTable
from trainhouse.client import TrainhouseClient

REDRAW_S = 0.5
# Ages grow although nothing comes.
AGE_S = 2.0
MAX_ROWS = 500
CSS = """
#head { height: 1; padding: 0 1; background: $panel; }
#problem { height: auto; padding: 0 1; background: $error; color: $text; display: none; }
#problem.there { display: block; }
#filter { display: none; height: 1; border: none; padding: 0 1; }
#filter.there { display: block; }
#jobs { height: 2fr; }
#below { height: 1fr; min-height: 6; border-top: solid $panel; }
#nodes { width: 1fr; }
#queue { width: 1fr; }
.-narrow #nodes { display: none; }
.-short #below { display: none; }
#title { height: 1; padding: 0 1; background: $panel; }
#page { padding: 0 1; }
#about, #why, #story { height: auto; }
#metrics { height: auto; }
.metric { height: 1; margin-top: 1; }
.spark { height: 2; width: 100%; }
"""


class Top(App[None]):
    """Jobs, nodes and queue, live."""

    CSS = CSS
    TITLE = "trainhouse top"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        ("q", "quit", "quit"),
        ("slash", "filter", "filter"),
        ("s", "sort", "sort"),
        ("tab", "focus_next", "next table"),
        ("escape", "unfilter", "all"),
    ]

    def __init__(self, client: TrainhouseClient) -> None:
        super().__init__()
        self.HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-wide")]
        self.VERTICAL_BREAKPOINTS = [(0, "-short"), (18, "-tall")]
        self._client = client
        self._order = 0
        self._text = ""
        self._drawn_at_s = 0.0
        self.feed = Feed(client)

    def compose(self) -> ComposeResult:
        """From top to bottom."""
        yield Static("", id="head")
        yield Static("", id="problem")
        yield Input(placeholder="words that a job must have", id="filter")
        yield LiveTable(cells.JOBS, "jobs")
        with Horizontal(id="below"):
            yield LiveTable(cells.QUEUE, "queue")
            yield LiveTable(cells.NODES, "nodes")
        yield Footer()

    def on_mount(self) -> None:
        """Begins to read and to draw."""
        self.query_one("#jobs", LiveTable).focus()
        self.feed.start()
        self._draw()
        self.set_interval(REDRAW_S, self._redraw)

    def on_unmount(self) -> None:
        """Lets the threads end."""
        self.feed.stop()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys of the list do nothing on a job's page, and are not shown there."""
        return action not in ("sort", "filter", "unfilter", "focus_next") or len(self.screen_stack) == 1

    def action_sort(self) -> None:
        """The next order."""
        self._order = (self._order + 1) % len(ORDERS)
        self._draw()

    def action_filter(self) -> None:
        """Opens the filter."""
        box = self.query_one("#filter", Input)
        box.add_class("there")
        box.focus()

    def action_unfilter(self) -> None:
        """Shows all again."""
        box = self.query_one("#filter", Input)
        box.value, self._text = "", ""
        box.remove_class("there")
        self.query_one("#jobs", LiveTable).focus()
        self._draw()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filters as one types."""
        self._text = event.value
        self._draw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Back to the list; the filter stays."""
        self.query_one("#jobs", LiveTable).focus()
        if not event.value:
            self.action_unfilter()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Opens the job's page."""
        if event.data_table.id in ("jobs", "queue") and event.row_key.value is not None:
            self.push_screen(JobScreen(self._client, event.row_key.value))

    def _redraw(self) -> None:
        if self.feed.changed() or time.monotonic() >= self._drawn_at_s + AGE_S:
            self._draw()

    def _draw(self) -> None:
        if len(self.screen_stack) > 1:
            return  # a job's page is on top
        now_ms, self._drawn_at_s = time.time_ns() // 1_000_000, time.monotonic()
        with self.feed.lock:
            picture = self.feed.picture
            jobs, nodes = list(picture.jobs.values()), list(picture.nodes)
            head, problem, ready = headline(picture), picture.problem, bool(picture.at_ms)
        shown = chosen(jobs, self._text, ORDERS[self._order])
        more = f"  ·  the first {MAX_ROWS} of {len(shown)}" if len(shown) > MAX_ROWS else ""
        line = f"{head}  ·  {ORDERS[self._order].name}{more}" if ready else f"asking {self._client.way.place} …"
        self.query_one("#head", Static).update(Text(line, no_wrap=True, overflow="ellipsis"))
        bar = self.query_one("#problem", Static)
        bar.set_class(bool(problem), "there")
        bar.update(Text(f"{problem}  (trying again; what is below may be old)" if problem else ""))
        self.query_one("#jobs", LiveTable).show(shown[:MAX_ROWS], "job_id", cells.job, now_ms)
        self.query_one("#queue", LiveTable).show(queue(jobs)[:MAX_ROWS], "job_id", cells.waiting, now_ms)
        self.query_one("#nodes", LiveTable).show(nodes[:MAX_ROWS], "node_id", cells.node, now_ms)

"""The page of one job in `top`: how it is, its states, its metrics as sparklines, why it waits.

Holds: what a job says of itself is shown as plain text; each refresh is one set of questions, asked in a thread.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import Screen
from textual.widgets import Footer, Sparkline, Static

from trainhouse.cli.jobs import job_events
from trainhouse.cli.jobs.job_status import details
from trainhouse.client import ClientError, Happening, TrainhouseClient
from trainhouse.client.backend_protocol import Row
from trainhouse.events import JobStatus

REFRESH_S = 2.0
MAX_METRICS = 6
POINTS = 120
MAX_EVENTS = 40
# These first, where a job has them; then the others by name.
FIRST = ("loss", "learning_rate", "accuracy", "steps_per_s", "tokens_per_s")


@dataclass
class Page:
    """All that the page shows of a job."""

    status: JobStatus | None = None
    story: list[Happening] = field(default_factory=list)
    metrics: list[Row] = field(default_factory=list)
    curves: dict[str, list[float]] = field(default_factory=dict)
    why: list[tuple[str, str]] = field(default_factory=list)
    problem: str = ""


def gather(client: TrainhouseClient, job_id: str) -> Page:
    """Asks everything. Blocks. A question that fails is told on the page."""
    from trainhouse.cli.jobs.why import lines

    page = Page()
    try:
        page.status = client.status(job_id)
        page.story = [h for h in client.events(job_id) if "progress" not in h.type][-MAX_EVENTS:]
        page.metrics = sorted(client.last_metrics(job_id), key=lambda m: (_rank(m["metric"]), m["metric"]))[:MAX_METRICS]
        page.curves = {m["metric"]: [p["mean"] for p in client.curve(job_id, m["metric"], POINTS)] for m in page.metrics}
        found = client.why(job_id) if str(page.status.state) == "PENDING" else None
        page.why = lines(found.model_dump(mode="json")) if found is not None else []
    except ClientError as error:
        page.problem = str(error)
    return page


def _rank(metric: str) -> int:
    return FIRST.index(metric) if metric in FIRST else len(FIRST)


class JobScreen(Screen[None]):
    """One job. Escape goes back."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape,q,backspace", "app.pop_screen", "back"),
        ("j,down", "down", "down"),
        ("k,up", "up", "up"),
    ]

    def __init__(self, client: TrainhouseClient, job_id: str) -> None:
        super().__init__()
        self._client = client
        self._job_id = job_id
        self._sparks: dict[str, tuple[Static, Sparkline]] = {}

    def compose(self) -> ComposeResult:
        """One column of parts."""
        yield Static(Text(self._job_id, style="bold"), id="title")
        with VerticalScroll(id="page"):
            yield Static("asking …", id="about")
            yield Static("", id="why")
            yield Vertical(id="metrics")
            yield Static("", id="story")
        yield Footer()

    def on_mount(self) -> None:
        """Asks at once, then now and then."""
        self._ask()
        self.set_interval(REFRESH_S, self._ask)

    def action_down(self) -> None:
        """Scrolls."""
        self.query_one("#page", VerticalScroll).scroll_down()

    def action_up(self) -> None:
        """Scrolls."""
        self.query_one("#page", VerticalScroll).scroll_up()

    @work(thread=True, exclusive=True, exit_on_error=True)
    def _ask(self) -> None:
        page = gather(self._client, self._job_id)
        if self.is_running:
            self.app.call_from_thread(self._show, page)

    def _show(self, page: Page) -> None:
        about = Text()
        if page.problem:
            about.append(page.problem + "\n", style="bold red")
        for name, text in details(page.status.model_dump(mode="json")) if page.status is not None else ():
            about.append(f"{name:<12}", style="dim")
            about.append(f"{text}\n")
        if page.status is not None or page.problem:
            self.query_one("#about", Static).update(about)
        self.query_one("#why", Static).update(_titled("why it waits", [f"{name:<14}{text}" for name, text in page.why]))
        self._show_metrics(page)
        lines = job_events.lines([(h.at_ms, h.type, h.summary) for h in reversed(page.story)], None)
        self.query_one("#story", Static).update(_titled("its story, newest first (UTC)", lines))

    def _show_metrics(self, page: Page) -> None:
        for row in page.metrics:
            name, values = row["metric"], page.curves.get(row["metric"]) or []
            if name not in self._sparks:
                pair = (Static("", classes="metric"), Sparkline([], classes="spark"))
                self._sparks[name] = pair
                self.query_one("#metrics", Vertical).mount(*pair)
            label, spark = self._sparks[name]
            label.update(Text(_figures(name, row, values)))
            spark.data = values


def _figures(name: str, row: Row, values: list[float]) -> str:
    value = "nan" if row["value"] is None else f"{row['value']:.5g}"
    span = f"   from {min(values):.4g} to {max(values):.4g}" if values else ""
    return f"{name}  {value} at step {row['step']}{span}"


def _titled(title: str, lines: list[str]) -> Text:
    if not lines:
        return Text("")
    return Text.assemble((f"{title}\n", "bold"), "\n".join(lines), "\n")

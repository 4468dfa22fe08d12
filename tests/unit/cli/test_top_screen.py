"""`trainhouse top` driven by keys, over a way in that answers from memory; and its pure parts."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from textual.pilot import Pilot

from trainhouse.cli.top import cells
from trainhouse.cli.top.app import Top
from trainhouse.cli.top.job_page import JobScreen
from trainhouse.cli.top.picture import MAX_JOBS, ORDERS, Picture, chosen, headline
from trainhouse.cli.top.picture import queue as waiting
from trainhouse.cli.top.table import LiveTable
from trainhouse.client import Happening, JobFilter, NotReachableError, TrainhouseClient, UnknownJobError
from trainhouse.client.rows import row_of
from trainhouse.events import JobStatus

EVIL = "[red]a[/red]"


def a_status(job: str, seq: int, state: str, **more: Any) -> JobStatus:
    fields = {"job_id": job, "status_seq": seq, "state": state, "user": "ann", "pool": "default", "submitted_at_ms": 1000, "world_size": 2}
    return JobStatus.model_validate(fields | more)


class Memory:
    """The port's part that `top` uses. What is put into `news` is told; `away` makes every question fail."""

    place = "a place in memory"

    def __init__(self) -> None:
        self.news: queue.Queue[JobStatus] = queue.Queue()
        self.known = {s.job_id: s for s in (a_status("run", 3, "RUNNING", name=EVIL, submitted_at_ms=2000), a_status("ended", 5, "FAILED"))}
        self.known["late"] = a_status("late", 0, "PENDING", reason="no room: it needs 9 devices", submitted_at_ms=3000)
        self.away = ""

    def _ask(self) -> None:
        if self.away:
            raise NotReachableError(self.away)

    def jobs(self, keep: JobFilter, limit: int) -> list[dict[str, Any]]:
        self._ask()
        return [row_of(s) for s in self.known.values()]

    def watch_all(self) -> Iterator[JobStatus | None]:
        while True:
            self._ask()
            try:
                yield self.news.get(timeout=0.05)
            except queue.Empty:
                yield None

    def nodes(self) -> list[dict[str, Any]]:
        self._ask()
        return [{"node_id": "n1", "state": "ALIVE", "pool": "default", "devices": 8, "device_type": "cpu", "last_heartbeat_at_ms": 1}]

    def pools(self) -> list[dict[str, Any]]:
        return []

    def alerts(self) -> list[dict[str, Any]]:
        return []

    def status(self, job_id: str) -> JobStatus:
        if job_id not in self.known:
            raise UnknownJobError(job_id)
        return self.known[job_id]  # type: ignore[index]

    def events(self, *_: Any) -> list[Happening]:
        return [Happening(1000, "trainhouse.job.submitted.v1", f"submitted {EVIL}")]

    def last_metrics(self, job_id: str, names: Any = ()) -> list[dict[str, Any]]:
        return [{"metric": "loss", "step": 9, "value": 0.25}, {"metric": "nan", "step": 9, "value": None}]

    def curve(self, job_id: str, metric: str, points: int) -> list[dict[str, Any]]:
        return [{"step": s, "mean": 1 / (s + 1)} for s in range(4)] if metric == "loss" else []

    def why(self, *_: Any) -> None:
        return None


async def until(pilot: Pilot[None], true: Callable[[], bool]) -> None:
    """Waits for a condition, 60 s at most."""
    for _ in range(1200):
        if true():
            return
        await pilot.pause(0.05)
    raise AssertionError("it did not come true within 60 s")


def drive(work: Callable[[Pilot[None], Top, Memory], Any], size: tuple[int, int] = (140, 40)) -> None:
    """Runs the screen with a person's keys."""

    async def run() -> None:
        way = Memory()
        app = Top(TrainhouseClient(way))  # type: ignore[arg-type]
        async with app.run_test(size=size) as pilot:
            jobs = app.query_one("#jobs", LiveTable)
            await until(pilot, lambda: jobs.row_count == 3)
            await work(pilot, app, way)

    asyncio.run(run())


def shown(app: Top, table: str = "#jobs") -> list[list[str]]:
    it = app.query_one(table, LiveTable)
    return [[str(cell) for cell in it.get_row_at(n)] for n in range(it.row_count)]


def test_keys_filter_sort_open_and_go_back() -> None:
    async def work(pilot: Pilot[None], app: Top, way: Memory) -> None:
        assert [row[0] for row in shown(app)] == ["run", "late", "ended"]
        assert [row[0] for row in shown(app, "#queue")] == ["late"]
        await pilot.press("s")
        assert [row[0] for row in shown(app)] == ["late", "run", "ended"]
        await pilot.press("slash", *"fail", "enter")
        await until(pilot, lambda: [row[0] for row in shown(app)] == ["ended"])
        await pilot.press("escape")
        await until(pilot, lambda: len(shown(app)) == 3)
        jobs = app.query_one("#jobs", LiveTable)
        assert jobs.chosen == "ended"
        await pilot.press("k", "k")
        assert jobs.chosen == "late"
        await pilot.press("j")
        assert jobs.chosen == "run"
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, JobScreen))
        await until(pilot, lambda: "0.25 at step 9" in text_of(app))
        assert EVIL in text_of(app) and "ann" in text_of(app)
        await pilot.press("escape")
        assert not isinstance(app.screen, JobScreen)
        await pilot.press("q")
        assert app.return_code == 0

    drive(work)


def text_of(app: Top) -> str:
    from textual.widgets import Static

    return "\n".join(str(widget.render()) for widget in app.screen.query(Static))


def test_news_are_shown_in_place_and_the_cursor_stays() -> None:
    async def work(pilot: Pilot[None], app: Top, way: Memory) -> None:
        await pilot.press("j", "j")
        assert app.query_one("#jobs", LiveTable).chosen == "ended"
        way.news.put(a_status("new", 1, "RUNNING", submitted_at_ms=9000))
        way.news.put(a_status("run", 2, "PENDING"))  # older than what is known
        await until(pilot, lambda: len(shown(app)) == 4)
        assert {row[0]: row[1] for row in shown(app)}["run"] == "RUNNING"
        assert app.query_one("#jobs", LiveTable).chosen == "ended"

    drive(work)


def test_servers_that_are_away_are_told_and_come_back() -> None:
    async def work(pilot: Pilot[None], app: Top, way: Memory) -> None:
        way.away = "Kafka at x does not answer"
        await until(pilot, lambda: "does not answer" in text_of(app))
        assert len(shown(app)) == 3
        way.known["back"] = a_status("back", 1, "RUNNING")  # type: ignore[index]
        way.away = ""
        await until(pilot, lambda: len(shown(app)) == 4 and "does not answer" not in text_of(app))

    drive(work)


@pytest.mark.parametrize("size", [(40, 10), (79, 20), (300, 80)])
def test_any_size_will_do(size: tuple[int, int]) -> None:
    async def work(pilot: Pilot[None], app: Top, way: Memory) -> None:
        assert app.query_one("#nodes", LiveTable).display is (size[0] >= 110)
        await pilot.resize_terminal(120, 30)
        await until(pilot, lambda: bool(app.query_one("#nodes", LiveTable).display))

    drive(work, size)


def test_a_list_that_is_behind_takes_nothing_back() -> None:
    picture = Picture()
    picture.listed([row_of(a_status("run", 3, "RUNNING"))])
    picture.on_status(a_status("run", 4, "SUCCEEDED"))
    picture.on_status(a_status("new", 1, "PENDING"))
    picture.listed([row_of(a_status("run", 3, "RUNNING")), row_of(a_status("seen", 2, "RUNNING")) | {"node_ids": ["n1"]}])
    assert {name: row["state"] for name, row in picture.jobs.items()} == {"run": "SUCCEEDED", "new": "PENDING", "seen": "RUNNING"}
    picture.listed([row_of(a_status("seen", 3, "FAILED"))])
    assert picture.jobs["seen"]["state"] == "FAILED"


def test_the_picture_is_bounded() -> None:
    picture = Picture()
    picture.listed(row_of(a_status(f"e{n}", 1, "SUCCEEDED", submitted_at_ms=n)) for n in range(MAX_JOBS))
    picture.on_status(a_status("runs", 1, "RUNNING", submitted_at_ms=0))
    assert len(picture.jobs) == MAX_JOBS and "runs" in picture.jobs and "e0" not in picture.jobs


def test_a_filter_wants_every_word_and_the_headline_counts() -> None:
    picture = Picture()
    for status in Memory().known.values():
        picture.on_status(status)
    rows = picture.jobs.values()
    assert [r["job_id"] for r in chosen(rows, "ANN fail", ORDERS[0])] == ["ended"]
    assert chosen(rows, "ann nobody", ORDERS[0]) == []
    assert [r["job_id"] for r in waiting(rows)] == ["late"]
    assert headline(picture).startswith("1 running, 1 waiting, 1 ended")
    assert str(cells.job(picture.jobs["run"], 5000)[0]) == "run"
    assert cells.plain(EVIL).plain == EVIL

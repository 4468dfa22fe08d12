"""Live streams without servers: what waits for a watcher, when it is cut, and what its place says."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trainhouse.gateway.live import messages
from trainhouse.gateway.live.hub import KINDS, LOG, METRICS, MOST_RECENT, RECENT_S, STATUS, Hub, News
from trainhouse.gateway.live.messages import Place
from trainhouse.gateway.live.poller import news_of, whole_records

ALL = frozenset(KINDS)


def status(job: str, seq: int) -> dict[str, Any]:
    return {"job_id": job, "status_seq": seq}


def test_only_the_newest_status_of_a_job_waits_and_other_news_wait_in_order() -> None:
    hub = Hub(10, 10)
    fleet, one = hub.join(None, frozenset({STATUS})), hub.join("a", ALL)
    for seq in range(1000):
        hub.status(status("a", seq))
    hub.status(status("b", 1))
    hub.news(News(LOG, "a", [1], 1))
    hub.news(News(METRICS, "a", [2], 2))
    hub.news(News(LOG, "b", [3], 3))
    assert fleet.take() == ([status("a", 999), status("b", 1)], [])
    assert one.take() == ([status("a", 999)], [News(LOG, "a", [1], 1), News(METRICS, "a", [2], 2)])
    assert one.take() == ([], [])


def test_a_new_watcher_is_told_what_the_projections_may_not_have_yet() -> None:
    now_s = [100.0]
    hub = Hub(10, 10, lambda: now_s[0])
    hub.status(status("a", 1))
    now_s[0] += RECENT_S / 2
    hub.status(status("b", 1))
    hub.status(status("b", 2))
    assert hub.join(None, ALL).take()[0] == [status("a", 1), status("b", 2)]
    assert hub.join("b", ALL).take()[0] == [status("b", 2)] and hub.join("c", ALL).take() == ([], [])
    assert hub.join("b", frozenset({LOG})).take() == ([], [])
    now_s[0] += RECENT_S / 2 + 1
    assert hub.join(None, ALL).take()[0] == [status("b", 2)]
    for n in range(MOST_RECENT + 10):
        hub.status(status(f"many-{n}", 1))
    assert len(hub.join(None, ALL).take()[0]) == MOST_RECENT


def test_a_watcher_that_falls_behind_is_cut_and_costs_no_more() -> None:
    hub = Hub(10, 5)
    slow, other = hub.join("a", ALL), hub.join("a", ALL)
    for offset in range(100):
        hub.news(News(LOG, "a", [offset], offset))
        other.take()
    assert "Last-Event-ID" in slow.cut and not other.cut
    assert [news.offset for news in slow.take()[1]] == list(range(5))


def test_watchers_are_bounded_and_forgotten() -> None:
    hub = Hub(2, 5)
    watchers = [hub.join("a", ALL), hub.join(None, ALL)]
    assert hub.full and hub.watched(LOG) == ["a"]
    for watcher in watchers:
        hub.leave(watcher)
        hub.leave(watcher)
    assert not hub.full and not len(hub) and hub.watched(LOG) == []


def test_a_kind_that_nobody_wants_is_not_asked_for() -> None:
    hub = Hub(10, 5)
    watcher = hub.join("a", frozenset({STATUS, METRICS}))
    hub.news(News(LOG, "a", [1], 1))
    assert hub.watched(METRICS) == ["a"] and hub.watched(LOG) == [] and watcher.take() == ([], [])


def test_waiting_ends_with_news_with_time_and_with_the_end() -> None:
    async def scene() -> None:
        hub = Hub(10, 5)
        watcher = hub.join("a", ALL)
        assert not await watcher.wait(0.01)
        waiting = asyncio.create_task(watcher.wait(10))
        await asyncio.sleep(0)
        hub.status(status("a", 1))
        assert await asyncio.wait_for(waiting, 1)
        watcher.take()
        hub.end("closing")
        assert await watcher.wait(10) and watcher.cut == "closing"

    asyncio.run(scene())


@given(st.integers(-1, 10**17), st.integers(-1, 10**17), st.integers(-1, 10**17), st.integers(0, 10**17))
def test_a_place_is_its_id(seq: int, metrics: int, lines: int, event_ms: int) -> None:
    place = Place(seq, metrics, lines, event_ms)
    assert Place.parse(str(place)) == place


@given(st.text(max_size=60))
def test_no_text_makes_a_place_fail(text: str) -> None:
    assert Place.parse(text) is None or str(Place.parse(text))


def test_an_event_is_one_block_whatever_it_holds() -> None:
    made = messages.event("log", {"line": "a\nb\r\n\ndata: x"}, "s1.m1.l1.e1", 1000)
    assert made.endswith(b"\n\n") and made.count(b"\n\n") == 1
    assert made.startswith(b"id: s1.m1.l1.e1\nretry: 1000\nevent: log\ndata: {")


Rows = list[dict[str, Any]]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 1)), max_size=40), st.integers(1, 50))
def test_news_are_whole_records_and_no_row_is_lost(shape: list[tuple[str, int]], limit: int) -> None:
    rows: Rows = [
        {"job_id": job, "source_partition": partition, "source_offset": n // 3, "n": n} for n, (job, partition) in enumerate(shape)
    ]
    rows.sort(key=lambda r: (r["source_partition"], r["source_offset"], r["job_id"]))
    told = [row["n"] for news in news_of(LOG, rows) for row in news.rows]
    assert told == [row["n"] for row in rows]
    cut = rows[:limit]
    kept = whole_records(cut, limit)
    assert kept == cut[: len(kept)]
    if len(kept) < len(cut):
        left = {(row["source_partition"], row["source_offset"]) for row in cut[len(kept) :]}
        assert len(left) == 1 and not left & {(row["source_partition"], row["source_offset"]) for row in kept}

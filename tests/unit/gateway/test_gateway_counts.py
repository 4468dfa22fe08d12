"""What the gateway counts before it tells the audit: accesses that repeat, too many kinds, texts that are too long."""

from __future__ import annotations

import pytest
from annotated_types import MaxLen

from trainhouse.events import AccessEnded, AccessGranted, AccessRefused, Event
from trainhouse.events.model.audit_texts import MAX_CHARS
from trainhouse.events.runtime.counts import MINUTE_MS, TOGETHER, WINDOW_MS, Counts
from trainhouse.gateway.audit import grants
from trainhouse.gateway.audit.grants import Grant, GrantBook, end_of, event_of
from trainhouse.gateway.audit.refusals import Refusal, RefusalBook

NOW_MS = 1_800_000_000_000
READ = Grant("read", "GET /v1/nodes", "", "ana", "t", "", "127.0.0.1", "reader")


def test_an_access_is_told_at_once_and_its_repeats_with_their_count_and_bytes() -> None:
    book = GrantBook(per_minute=20)
    first = book.note(READ, 100, NOW_MS)
    assert first is not None and (first.count, first.size_bytes, first.sub) == (1, 100, "ana")
    assert all(book.note(READ, 10, NOW_MS + n) is None for n in range(7))
    assert book.due(NOW_MS + WINDOW_MS - 1) == []
    (repeats,) = book.due(NOW_MS + WINDOW_MS)
    assert (repeats.count, repeats.size_bytes, repeats.since_ms) == (7, 70, NOW_MS)


def test_an_access_that_goes_on_is_one_event_a_window_and_is_forgotten_after_a_quiet_one() -> None:
    book = GrantBook(per_minute=20)
    book.note(READ, 0, NOW_MS)
    book.note(READ, 0, NOW_MS + 1)
    assert len(book.due(NOW_MS + WINDOW_MS)) == 1
    assert book.note(READ, 0, NOW_MS + WINDOW_MS + 1) is None
    assert [event.count for event in book.due(NOW_MS + 2 * WINDOW_MS)] == [1]
    assert book.due(NOW_MS + 3 * WINDOW_MS) == []
    assert book.note(READ, 0, NOW_MS + 3 * WINDOW_MS + 1) is not None


def test_kinds_beyond_the_bound_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grants, "MAX_KINDS", 2)
    book = GrantBook(per_minute=2)
    for n in range(5):
        book.note(Grant("read", target=f"job-{n}"), 10, NOW_MS)
    assert book.full
    due = book.due(NOW_MS + MINUTE_MS)
    assert [(event.reason, event.target, event.count, event.size_bytes) for event in due] == [(TOGETHER, "", 3, 30)]


def test_refusals_counted_together_keep_their_status_and_say_no_one_s_reason() -> None:
    book = RefusalBook(per_minute=10_000)
    for n in range(1_003):
        book.note(Refusal(404, sub=f"user-{n}"), "job-1", "no job", NOW_MS)
    (together,) = book.due(NOW_MS + WINDOW_MS)
    assert (together.status, together.count, together.reason, together.target, together.sub) == (404, 3, TOGETHER, "", "")


def test_no_more_are_told_a_minute_than_allowed_and_what_waits_is_told_later() -> None:
    counts: Counts[int, None] = Counts(per_minute=3, max_kinds=100, stays=False)
    assert [counts.add(kind, None, NOW_MS) for kind in range(5)] == [True, True, True, False, False]
    assert counts.due(NOW_MS + WINDOW_MS) == []
    assert [(kind, counted.count) for kind, counted in counts.due(NOW_MS + MINUTE_MS)] == [(3, 1), (4, 1)]


def test_texts_of_callers_are_cut_to_the_bounds_of_the_events() -> None:
    long = Grant("read", *["x" * 5_000] * 7)
    granted, ended = event_of(long, NOW_MS, NOW_MS, 1), end_of(long, NOW_MS, "id", 200, took_ms=5)
    refused = RefusalBook(1).note(Refusal(404, *["x" * 5_000] * 4), "y" * 5_000, "z" * 5_000, NOW_MS)
    assert refused is not None and len(refused.reason) == 1024 and len(granted.session_id) == 128 and len(ended.action) == 256


@pytest.mark.parametrize("model", [AccessRefused, AccessGranted, AccessEnded])
def test_the_bounds_of_texts_are_those_of_the_events(model: type[Event]) -> None:
    fields = {name: field for name, field in model.model_fields.items() if name in MAX_CHARS}
    bounds = {name: next(each.max_length for each in field.metadata if isinstance(each, MaxLen)) for name, field in fields.items()}
    assert len(bounds) >= 5 and bounds == {name: MAX_CHARS[name] for name in bounds}


def test_a_clock_that_is_set_back_keeps_nothing_from_being_told() -> None:
    """An hour of silence in the audit would be what a thief wishes for."""
    counts: Counts[int, None] = Counts(per_minute=2, max_kinds=100, stays=False)
    assert [counts.add(kind, None, NOW_MS) for kind in (1, 2, 2)] == [True, True, False]
    back_ms = NOW_MS - 60 * MINUTE_MS
    assert counts.add(3, None, back_ms), "the minute at hand is another one"
    assert [(kind, counted.count) for kind, counted in counts.due(back_ms)] == [(2, 1)]

"""Bounds of observations: the future, the sizes, what nothing says."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from trainhouse.events import PredictionsObserved, ReferenceRecorded
from trainhouse.events.model.dataset_profile import MOST_BINS, ordered_key
from trainhouse.events.model.errors import InvalidEvent
from trainhouse.events.model.model_observations import MOST_AHEAD_MS, MOST_OUTCOMES, MOST_WINDOW_MS
from trainhouse.events.wire.codec import HEADERS, decode, encode
from trainhouse.events.wire.envelope import envelope_of
from trainhouse.events.wire.topics import OBSERVATIONS, topic

END_MS = 1_800_000_000_000
WINDOW = {"project": "p", "name": "m", "version": 1, "count": 9, "window_start_ms": END_MS - 1000, "window_end_ms": END_MS}
EMPTY = {"least": 0.0, "most": 0.0, "mean": 0.0, "shift": 0, "bins": [0], "counts": [0]}


def full_sketch() -> dict[str, Any]:
    first = ordered_key(1.0)
    bins, counts = list(range(first, first + MOST_BINS)), [1] + [0] * (MOST_BINS - 1)
    return {"least": 1.0, "most": 1.0, "mean": 1.0, "shift": 0, "bins": bins, "counts": counts}


def test_a_window_may_end_as_far_ahead_as_clocks_differ_and_no_further() -> None:
    observed = PredictionsObserved.model_validate(WINDOW)
    assert observed.refusal(END_MS - MOST_AHEAD_MS) == ""
    assert "set the sender's clock" in observed.refusal(END_MS - MOST_AHEAD_MS - 1)


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"window_end_ms": END_MS - 1000}, "ends after it begins"),
        ({"window_start_ms": END_MS - MOST_WINDOW_MS - 1}, "31 days"),
        ({"count": 0}, "nothing was observed"),
        ({"outcomes": {"a": {f"{n}": 1.0 for n in range(3000)}, "b": {f"{n}": 1.0 for n in range(3000)}}}, "6000 outcomes"),
        ({"inputs": {f"f{n}": {"samples": 9, "numbers": full_sketch()} for n in range(33)}}, "16896 bins"),
        (
            {"inputs": {f"f{n}": {"samples": 9, "values": {"distinct": 64, "top": {f"v{m}": 0 for m in range(64)}}} for n in range(33)}},
            "2112 values",
        ),
        ({"inputs": {f"f{n}": {"samples": 9} for n in range(65)}}, "64"),
        ({"inputs": {"age": {"samples": 0, "numbers": EMPTY}}}, "age has bins without one number: leave it out"),
        ({"outputs": {"text": {"samples": 9, "lengths": EMPTY}}}, "text has bins without one number"),
        ({"outcomes": {"a": {"p": float("nan")}}}, "outcomes"),
        ({"version": 0}, "version"),
    ],
)
def test_what_cannot_be_is_refused(fields: dict[str, Any], part: str) -> None:
    with pytest.raises(ValidationError, match=part):
        PredictionsObserved.model_validate(WINDOW | fields)


def test_a_reference_has_histograms() -> None:
    with pytest.raises(ValidationError, match="a reference has histograms"):
        ReferenceRecorded.model_validate({"name": "m", "version": 1, "count": 9, "source": "train"})


def test_the_largest_event_is_taken_by_its_topic_and_unknown_fields_are_not() -> None:
    sketches = {f"json.{'x' * 100}{n}": {"samples": 9, "numbers": full_sketch()} for n in range(32)}
    values = {f"{n}": {"samples": 9, "values": {"distinct": 64, "top": {f"{m:02}" + "é" * 62: 0 for m in range(64)}}} for n in range(16)}
    more = {f"json.{n}": each for n, each in values.items()}
    outcomes = {"accuracy": {f"{n:064}": -1.234567890123e-05 for n in range(MOST_OUTCOMES)}}
    observed = PredictionsObserved.model_validate(WINDOW | {"inputs": sketches | more, "outputs": values, "outcomes": outcomes})
    value = encode(envelope_of(observed, id="e", source="tests", now_ms=END_MS))
    assert decode(value, HEADERS).event == observed
    assert len(value) < topic(OBSERVATIONS).max_message_bytes
    with pytest.raises(InvalidEvent):
        decode(value.replace(b'"count":9', b'"counted":1,"count":9', 1), HEADERS)

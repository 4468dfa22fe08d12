"""Filters of listings: times, states, owners."""

from datetime import UTC, datetime

import pytest

from trainhouse.cli.shared.exit_codes import CliError
from trainhouse.cli.shared.filters import STATES, job_filter, parse_time
from trainhouse.events import JobState

NOW_MS = round(datetime(2026, 5, 1, 12, tzinfo=UTC).timestamp() * 1000)


def test_times() -> None:
    assert parse_time("90s", NOW_MS) == NOW_MS - 90_000
    assert parse_time("2h", NOW_MS) == NOW_MS - 7_200_000
    assert parse_time("1.5d", NOW_MS) == NOW_MS - 129_600_000
    assert parse_time("2026-05-01T12:00", 0) == NOW_MS
    assert parse_time("2026-05-01T14:00+02:00", 0) == NOW_MS
    for wrong in ("yesterday", "2x", ""):
        with pytest.raises(CliError, match="no time"):
            parse_time(wrong, NOW_MS)


def test_states_are_those_of_the_contract() -> None:
    assert set(STATES) == {s.value for s in JobState}


def test_what_is_kept() -> None:
    row = {"user": "ada", "team": "t", "project": "p", "pool": "default", "state": "RUNNING", "submitted_at_ms": NOW_MS - 1000}
    assert job_filter(NOW_MS).keeps(row)
    assert job_filter(NOW_MS, user="ada", team="t", project="p", pool="default", state=["running"], since="2s").keeps(row)
    for wrong in ({"user": "bob"}, {"team": "x"}, {"project": "x"}, {"pool": "x"}, {"state": ["FAILED"]}, {"since": "1s"}, {"until": "5s"}):
        keeps = job_filter(NOW_MS, **wrong).keeps(row)  # type: ignore[arg-type]
        assert keeps is (wrong == {"since": "1s"}), wrong


def test_an_unknown_state_is_refused_with_the_known_ones() -> None:
    with pytest.raises(CliError, match="PENDING"):
        job_filter(NOW_MS, state=["DONE"])


def test_states_may_be_listed_with_commas() -> None:
    assert job_filter(NOW_MS, state=["pending,running", "FAILED"]).states == ("PENDING", "RUNNING", "FAILED")

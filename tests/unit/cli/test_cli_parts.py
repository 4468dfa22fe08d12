"""Small pure parts of the command line and the client: ids, places, exit codes, SQL text, one-line stories."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainhouse.cli.jobs.job_status import unknown
from trainhouse.cli.shared import settings_lookup
from trainhouse.cli.shared.exit_codes import MEANINGS, CliError, Exit, exit_of_state, explain
from trainhouse.cli.shared.output import duration
from trainhouse.cli.stack.token import MAX_DAYS, seconds_of
from trainhouse.client.errors import NotReachableError, QueryError
from trainhouse.client.kafka.job_events import summary_of
from trainhouse.client.kafka.status_feed import concerns
from trainhouse.client.log_lines import query_of as lines_query
from trainhouse.client.sql import clean_error, literal
from trainhouse.events import JobState, JobStatus, RankExited
from trainhouse.events.model.job_ids import RANDOM_BITS, job_id_of
from trainhouse.events.wire.envelope import rfc3339


@given(st.text(max_size=200), st.integers(0, 2**44), st.integers(0, 2**RANDOM_BITS - 1))
def test_any_name_gives_a_valid_id(name: str, now_ms: int, random: int) -> None:
    assert len(job_id_of(name, now_ms, random)) <= 128


@given(st.integers(0, 2**44), st.integers(0, 2**44))
def test_ids_of_one_name_sort_by_time(one: int, two: int) -> None:
    if one < two:
        assert job_id_of("gpt", one, 2**RANDOM_BITS - 1) < job_id_of("gpt", two, 0)


def test_every_exit_code_has_a_meaning_and_every_final_state_a_code() -> None:
    assert set(MEANINGS) == set(Exit)
    codes = {state: exit_of_state(state) for state in JobState if state.final}
    assert codes == {"SUCCEEDED": 0, "FAILED": 1, "REJECTED": 3, "CANCELLED": 4}


def test_expected_errors_are_sentences_and_bugs_are_not() -> None:
    found = explain(NotReachableError("Kafka at x does not answer"))
    assert found is not None
    assert found.code == Exit.UNAVAILABLE
    assert explain(QueryError("no such table")).code == Exit.DATA  # type: ignore[union-attr]
    assert explain(KeyError("x")) is None


def test_the_nearest_data_folder_is_found_upward(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert settings_lookup.find_data_dir(None, {}, inner) == inner / ".trainhouse"
    (tmp_path / ".trainhouse").mkdir()
    (tmp_path / ".trainhouse" / "trainhouse.toml").write_text("")
    assert settings_lookup.find_data_dir(None, {}, inner) == tmp_path / ".trainhouse"
    assert settings_lookup.find_data_dir(None, {"TRAINHOUSE_DATA_DIR": "/elsewhere"}, inner) == Path("/elsewhere")
    assert settings_lookup.find_data_dir(Path("/given"), {"TRAINHOUSE_DATA_DIR": "/elsewhere"}, inner) == Path("/given")
    assert settings_lookup.find_config(None, {"TRAINHOUSE_CONFIG": "/c.toml"}, inner) == Path("/c.toml")
    assert settings_lookup.find_config(None, {}, inner) == tmp_path / ".trainhouse" / "trainhouse.toml"


def test_no_stack_is_told_with_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in os.environ if n.startswith("TRAINHOUSE_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CliError, match="trainhouse up") as caught:
        settings_lookup.use(None)
    assert caught.value.code == Exit.UNAVAILABLE
    with pytest.raises(CliError, match="no stack was ever started there"):
        settings_lookup.use(tmp_path)


def test_an_unknown_job_is_told_with_its_nearest() -> None:
    assert "did you mean gpt-1k7x3m9qp2f8d?" in str(unknown("gpt-1k7x3m9qp2f8e", {"gpt-1k7x3m9qp2f8d": 1, "other": 1}))
    assert "trainhouse status" in str(unknown("gpt", {}))


def test_lengths_of_time_for_people() -> None:
    assert [duration(s) for s in (None, 0.25, 59, 60, 95, 3600, 3725, 90000)] == ["", "0.2s", "59s", "1m", "1m35s", "1h", "1h2m", "1d1h"]


def test_text_in_sql_is_escaped() -> None:
    assert literal("a'b\\") == "'a\\'b\\\\'"
    assert literal(3) == "3"
    assert "'x\\' OR 1'" in lines_query("x' OR 1", None, None, None, {})


def test_log_queries_read_on_from_what_was_read() -> None:
    query = lines_query("j", 0, None, None, {(1, 0, "stdout"): 77})
    assert "rank = 0" in query
    assert "offset > 77" in query
    assert "NOT IN ((1, 0, 'stdout'))" in query


def test_log_lines_are_in_the_order_of_the_topic() -> None:
    """Times of a rank's two streams are no order: each is read in turn."""
    assert "ORDER BY epoch, source_partition, source_offset, offset," in lines_query("j", None, None, None, {})


def test_clickhouse_errors_are_cut_to_their_words() -> None:
    text = "Code: 60. DB::Exception: Unknown table expression identifier 'jbs' in scope SELECT 1. (UNKNOWN_TABLE) (version 26.9.1 (x))"
    assert clean_error(text) == "Unknown table expression identifier 'jbs' in scope SELECT 1. (UNKNOWN_TABLE)"


def test_a_rejected_resubmission_is_nobody_elses_news() -> None:
    mine = JobStatus(job_id="j", status_seq=1, state=JobState.REJECTED, submission_id="e2")  # type: ignore[arg-type]
    assert concerns("e2", mine, "j", "e2")
    assert not concerns("e2", mine, "j", "e1")
    running = JobStatus(job_id="j", status_seq=1, state=JobState.RUNNING)  # type: ignore[arg-type]
    assert concerns("j", running, "j", "e1")
    assert not concerns("k", running, "j", "e1")
    theirs = running.model_copy(update={"spec_sha256": "a"})
    assert concerns("j", theirs, "j", "e1", "a")
    assert not concerns("j", theirs, "j", "e1", "b")


def test_a_story_line_holds_the_facts_and_no_noise() -> None:
    event = RankExited(
        job_id="j",  # type: ignore[arg-type]
        attempt=1,  # type: ignore[arg-type]
        epoch=2,  # type: ignore[arg-type]
        node_id="n",  # type: ignore[arg-type]
        pool="default",  # type: ignore[arg-type]
        rank=1,
        exit_code=3,
        reason="line one\nline two",
        exited_at_ms=5,
    )
    text = summary_of(event)
    assert "3" in text
    assert text.endswith(": line two")
    assert "\n" not in text


def test_a_token_ends_at_a_time_that_can_be_told() -> None:
    assert seconds_of("90m") == 5400
    assert rfc3339(1000 * (2**32 + seconds_of(f"{MAX_DAYS}d"))).startswith("22")
    for text in ("9999999d", "0d", "d", "1w", "-1d", ""):
        with pytest.raises(CliError, match="--expires"):
            seconds_of(text)


def test_stacks_are_given_where_they_are_asked_for_and_not_among_what_ranks_wrote() -> None:
    assert "stream != 'stacks'" in lines_query("j", None, None, 1, {})
    assert "stream != 'stacks'" not in lines_query("j", None, "stderr", None, {})
    assert "stream = 'stacks'" in lines_query("j", None, "stacks", 1, {})

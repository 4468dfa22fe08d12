"""Answers to submissions, as `submit` shows them."""

import pytest

from trainhouse.cli.jobs import job_events
from trainhouse.cli.jobs.follow import line_of
from trainhouse.cli.jobs.logs import Printed
from trainhouse.cli.jobs.submit import Following, check_rank, finish
from trainhouse.cli.shared.admission import next_steps, refusal, unanswered
from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.output import one_line, printable_line
from trainhouse.client import Job, Line, Submitted, TrainhouseClient
from trainhouse.client.backend_protocol import Position
from trainhouse.client.kafka.status_feed import FirstStatuses, earliest
from trainhouse.events import JobId, JobSpec, JobState, JobStatus


def status(state: JobState, reason: str = "") -> JobStatus:
    return JobStatus(job_id=None, status_seq=0, state=state, reason=reason)


def test_a_rejected_job_ends_the_command_with_its_reason() -> None:
    found = {"a-1": status(JobState.PENDING), "b-2": status(JobState.REJECTED, "it needs 99 devices\nand more")}
    error = refusal(found)
    assert error is not None and error.code is Exit.REJECTED
    assert str(error) == "b-2 was REJECTED: it needs 99 devices | and more"
    assert refusal({"a-1": status(JobState.PENDING), "c-3": None}) is None


def test_of_many_rejected_jobs_the_first_are_named() -> None:
    error = refusal({f"j-{n}": status(JobState.REJECTED, "no pool") for n in range(8)})
    assert error is not None
    lines = str(error).splitlines()
    assert len(lines) == 6 and lines[-1] == "and 3 more; `trainhouse status --state REJECTED` lists them"


def test_a_job_without_an_answer_is_named() -> None:
    assert unanswered({"a-1": status(JobState.PENDING)}, ["a-1"]) == ""
    assert unanswered({"a-1": None}, ["a-1"]).startswith("a-1 has no answer of the control plane after 10 s; what")
    found = {"a-1": None, "b-2": None, "c-3": status(JobState.PENDING)}
    assert unanswered(found, ["a-1", "b-2", "c-3"]).startswith("2 of 3 jobs have no answer")


def test_a_job_that_was_not_asked_for_is_not_one_without_an_answer() -> None:
    told = unanswered({"a-1": status(JobState.PENDING), "b-2": None}, ["a-1", "b-2", "c-3", "d-4"])
    assert told.startswith("b-2 has no answer of the control plane after 10 s; 2 of 4 jobs have not been asked for: the 10 s were up; what")
    assert "no answer" not in unanswered({}, ["a-1"])


class Known:
    """A way that knows some first statuses and none of the rest; `asked`: how many it was asked for, call by call."""

    def __init__(self, found: dict[str, JobStatus | None]) -> None:
        self.found, self.asked = found, list[int]()

    def first_statuses(self, jobs: list[Submitted], timeout_s: float) -> dict[str, JobStatus | None]:
        self.asked.append(len(jobs))
        return self.found


def test_jobs_are_asked_for_together_and_those_without_an_answer_are_named_beside_a_refused_one(capsys: pytest.CaptureFixture[str]) -> None:
    way = Known({"a-1": status(JobState.REJECTED, "no pool"), "b-2": None})
    client = TrainhouseClient(way)  # type: ignore[arg-type]
    jobs = [Job(client, Submitted(JobId.parse(name), "", None)) for name in ("a-1", "b-2", "c-3")]
    with pytest.raises(CliError, match="a-1 was REJECTED: no pool"):
        finish(client, jobs, Following(None))
    assert way.asked == [3]
    assert "b-2 has no answer" in (told := capsys.readouterr().err) and "c-3 has not been asked for" in told


def test_one_feed_answers_for_all_submissions_by_job_or_by_event() -> None:
    jobs = [Submitted(JobId.parse(f"j-{n}"), f"e-{n}", Position({0: n})) for n in range(300)]
    first = FirstStatuses(jobs)
    for n in range(299):
        first.take(f"j-{n}", status(JobState.PENDING))
        first.take(f"j-{n}", status(JobState.RUNNING))
    first.take("other", status(JobState.RUNNING))
    assert not first.is_complete() and first.found["j-299"] is None
    first.take("e-299", status(JobState.REJECTED, "taken"))
    assert first.is_complete()
    states = {found.state for name, found in first.found.items() if found and name != "j-299"}
    assert states == {JobState.PENDING}, "the first one of each, not the newest"


def test_a_feed_for_many_begins_before_all_of_them() -> None:
    assert earliest([Position({0: 7, 1: 3}), Position({0: 5, 1: 9, 2: 4})]) == Position({0: 5, 1: 3, 2: 4})


def test_a_rank_that_the_gang_does_not_have_is_refused() -> None:
    def spec(ranks: int) -> JobSpec:
        return JobSpec.model_validate({"name": "a", "user": "ada", "gang": ranks, "runtime": {"command": ["true"]}})

    with pytest.raises(CliError, match="--rank 7: the gang has 1 rank, number 0"):
        check_rank(7, True, [spec(1)])
    with pytest.raises(CliError, match="--rank 4: the gang has 4 ranks, 0 to 3"):
        check_rank(4, True, [spec(8), spec(4)])
    check_rank(3, True, [spec(4)])
    check_rank(7, None, [spec(1)])


HARM = "boom \x1b]0;title\x07 \x1b[31mred\x1b[0m\ttab"
SHOWN = "boom \\x1b]0;title\\x07 \\x1b[31mred\\x1b[0m tab"


def test_no_text_of_a_job_reaches_the_terminal_with_its_escapes() -> None:
    assert one_line(HARM) == SHOWN == one_line(SHOWN)
    assert line_of(status(JobState.FAILED, HARM)) == f"FAILED  ({SHOWN})"
    for width in (None, 80):
        assert job_events.lines([(0, "trainhouse.job.failed.v1", HARM)], width) == [f"00:00:00.000  job.failed.v1  {SHOWN}"]


def test_logs_keep_colours_on_a_terminal_and_all_in_a_pipe(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [Line("2026-01-01", 1, 0, 0, "stderr", 0, HARM)]
    Printed(times=False, ranks=False, json=False).show([lines])
    assert capsys.readouterr().out == HARM + "\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    Printed(times=False, ranks=False, json=False).show([lines])
    assert capsys.readouterr().out == "boom \\x1b]0;title\\x07 \x1b[31mred\x1b[0m\ttab\n"


def test_one_line_each_for_logs_page_and_why() -> None:
    assert next_steps(["a-1"], "http://g:1/") == ["logs: trainhouse logs a-1 -f", "page: http://g:1/jobs/a-1", "why:  trainhouse why a-1"]
    assert next_steps(["a-1", "b-2"], "http://g:1")[1] == "page: http://g:1/jobs"
    assert [line[:4] for line in next_steps(["a-1"], "")] == ["logs", "why:"]


def test_output_of_a_rank_cannot_move_the_cursor() -> None:
    assert printable_line("a\tb \x1b[31mred\x1b[0m \x1b[2J\r\x07") == "a\tb \x1b[31mred\x1b[0m \\x1b[2J\\r\\x07"

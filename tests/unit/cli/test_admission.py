"""Answers to submissions, as `submit` shows them."""

from trainhouse.cli.jobs.follow import printable_line
from trainhouse.cli.shared.admission import next_steps, refusal, unanswered
from trainhouse.cli.shared.exit_codes import Exit
from trainhouse.events import JobState, JobStatus


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
    assert unanswered({"a-1": status(JobState.PENDING)}) == ""
    assert unanswered({"a-1": None}).startswith("a-1 has no answer of the control plane after 10 s")
    assert unanswered({"a-1": None, "b-2": None, "c-3": status(JobState.PENDING)}).startswith("2 of 3 jobs have no answer")


def test_one_line_each_for_logs_page_and_why() -> None:
    assert next_steps(["a-1"], "http://g:1/") == ["logs: trainhouse logs a-1 -f", "page: http://g:1/jobs/a-1", "why:  trainhouse why a-1"]
    assert next_steps(["a-1", "b-2"], "http://g:1")[1] == "page: http://g:1/jobs"
    assert [line[:4] for line in next_steps(["a-1"], "")] == ["logs", "why:"]


def test_output_of_a_rank_cannot_move_the_cursor() -> None:
    assert printable_line("a\tb \x1b[31mred\x1b[0m \x1b[2J\r\x07") == "a\tb \x1b[31mred\x1b[0m \\x1b[2J\\r\\x07"

"""Output of a job that is followed: its last lines come before the command ends, however far the tables are behind."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.support.waiting import until
from trainhouse.cli.jobs.follow import follow, follow_all
from trainhouse.client.backend_protocol import CATCH_UP_S, Line
from trainhouse.client.job import followed
from trainhouse.events import JobState, JobStatus


@dataclass
class LateReader:
    """Lines, of which the last are in the tables only when a reader has waited for them."""

    lines: list[str]
    late: list[str]
    waits: int = 0
    given: int = field(default=0)
    allowed_s: list[float] = field(default_factory=list)

    def more(self) -> Iterator[Line]:
        known = self.lines + (self.late if self.waits else [])
        for text in known[self.given :]:
            self.given += 1
            yield Line("", 1, 0, 0, "stdout", self.given, text)

    def catch_up(self, wait_s: float = CATCH_UP_S) -> None:
        self.waits += 1
        self.allowed_s.append(wait_s)
        began_s = time.monotonic()
        until(lambda: time.monotonic() > began_s + 0.01)


@dataclass
class OneJob:
    """A client of one job that ends at once."""

    reader: LateReader
    job_id: str = "j-1"

    def watch(self, job: Any, timeout_s: float | None = None) -> Iterator[JobStatus | None]:
        yield JobStatus(job_id=self.job_id, status_seq=1, state=JobState.RUNNING, allocated_at_ms=1)
        yield JobStatus(job_id=self.job_id, status_seq=2, state=JobState.SUCCEEDED, allocated_at_ms=1)

    def lines(self, job_id: str, rank: int | None = None) -> LateReader:
        return self.reader


def test_the_last_lines_of_a_job_come_before_its_end(capsys: Any) -> None:
    client = OneJob(LateReader(["a"], ["b", "c"]))
    last = follow(client, client, None, rank=0)  # type: ignore[arg-type]
    assert last is not None and last.state is JobState.SUCCEEDED
    shown = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in shown] == ["a", "j-1 RUNNING", "b", "c", "j-1 SUCCEEDED"]
    assert client.reader.waits == 1


def test_the_last_lines_of_all_followed_jobs_are_waited_for_together() -> None:
    client = OneJob(LateReader(["a"], []))
    client.way = None  # type: ignore[attr-defined]
    follow_all(client, [client] * 3, None, rank=0)  # type: ignore[arg-type, list-item]
    first, second, third = client.reader.allowed_s
    assert CATCH_UP_S == first > second > third


def test_a_followed_job_gives_its_last_lines_to_a_program_too() -> None:
    client = OneJob(LateReader(["a"], ["b"]))
    found = [line.text for batch in followed(client.watch("j-1"), client.reader) for line in batch]
    assert found == ["a", "b"]


def test_a_job_that_goes_on_is_not_waited_for() -> None:
    reader = LateReader(["a"], ["b"])
    running = JobStatus(job_id="j-1", status_seq=1, state=JobState.RUNNING)
    assert [line.text for batch in followed([running, None], reader) for line in batch] == ["a"]
    assert reader.waits == 0

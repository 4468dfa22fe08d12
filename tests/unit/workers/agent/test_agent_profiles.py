"""Profiles as an agent follows them: requests to ranks' sessions, the ranks' states, and answers that always end."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.waiting import until
from trainhouse.events import ProfileRanks
from trainhouse.workers.agent.debug import profiles
from trainhouse.workers.agent.debug.profiles import FollowedRank, Profiles, read_status
from trainhouse.workers.launcher import AttemptPaths
from trainhouse.workers.launcher.processes import write_process


@dataclass
class Answer:
    """What one rank's asker got."""

    parts: list[str] = field(default_factory=list)
    ended: tuple[str, int | None, str] | None = None

    def part(self, text: str) -> None:
        self.parts.append(text)

    def end(self, text: str, exit_code: int | None, why: str = "") -> None:
        assert self.ended is None, "it ends once"
        self.ended = (text, exit_code, why)


@dataclass
class Attempt:
    """An attempt's folder with ranks that live; each has a process of its own."""

    paths: AttemptPaths
    profiles: Profiles
    processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    secrets: list[str] | None = field(default_factory=list)

    def start(self, rank: int, *, session: bool = True) -> None:
        self.paths.rank(rank).folder.mkdir(parents=True)
        self.processes[rank] = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
        write_process(self.paths.rank(rank).pid, self.processes[rank].pid)
        if session:
            self.paths.rank(rank).spool.touch()

    def stop(self, rank: int) -> None:
        self.processes[rank].kill()
        self.processes[rank].wait()

    def report(self, rank: int, state: str, text: str, request: str = "r") -> None:
        new = self.paths.rank(rank).trace_status.with_suffix(".new")
        new.write_text(json.dumps({"id": request, "state": state, "text": text}))
        os.replace(new, self.paths.rank(rank).trace_status)

    def ask(self, *ranks: int, request: str = "r", timeout_s: float = 60.0) -> dict[int, Answer]:
        answers = {rank: Answer() for rank in ranks}
        self.profiles.begin(asked(*ranks, request=request, timeout_s=timeout_s), self.paths, answers, lambda: self.secrets)
        return answers


def asked(*ranks: int, request: str = "r", timeout_s: float = 60.0) -> ProfileRanks:
    fields = {"request_id": request, "node_id": "n", "job_id": "j", "expires_at_ms": 1, "ranks": ranks, "steps": 5, "timeout_s": timeout_s}
    return ProfileRanks.model_validate(fields)


@pytest.fixture
def attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Attempt]:
    monkeypatch.setattr(profiles, "LOOK_EVERY_S", 0.01)
    made = Attempt(AttemptPaths(tmp_path), Profiles())
    yield made
    made.profiles.close()
    for process in made.processes.values():
        process.kill()
        process.communicate()


def test_sessions_see_the_request_and_each_rank_has_its_own_answer(attempt: Attempt) -> None:
    for rank in (0, 1):
        attempt.start(rank)
    answers = attempt.ask(0, 1)
    seen = json.loads(attempt.paths.profile.read_bytes())
    assert (seen["id"], seen["ranks"], seen["steps"]) == ("r", [0, 1], 5)
    attempt.report(0, "recording", "records 5 steps from step 9")
    until(lambda: answers[0].parts == ["rank 0 records 5 steps from step 9\n"])
    attempt.report(0, "done", "steps 9–13, 0.1 MiB: profiles/r/rank-0.pt.trace.json.gz")
    until(lambda: answers[0].ended is not None)
    assert answers[1].ended is None and attempt.paths.profile.exists()
    attempt.report(1, "failed", "no trace: it does not work")
    until(lambda: answers[1].ended is not None)
    assert answers[0].ended == ("rank 0: steps 9–13, 0.1 MiB: profiles/r/rank-0.pt.trace.json.gz\n", 0, "")
    assert answers[1].ended == ("rank 1: no trace: it does not work\n", 1, "rank 1: no trace: it does not work")
    until(lambda: not attempt.paths.profile.exists())


def test_one_profile_at_a_time(attempt: Attempt) -> None:
    attempt.start(0)
    first, second = attempt.ask(0), attempt.ask(0, request="r2")
    assert second[0].ended is not None and "another profile of this attempt is under way" in second[0].ended[0]
    assert json.loads(attempt.paths.profile.read_bytes())["id"] == "r"
    attempt.report(0, "done", "x")
    until(lambda: first[0].ended is not None and not attempt.paths.profile.exists())
    third = until(lambda: (found := attempt.ask(0, request="r3"))[0].ended is None and found)
    attempt.report(0, "done", "y", request="r3")
    until(lambda: third[0].ended is not None)


def test_a_rank_without_a_session_is_refused_with_what_to_do(attempt: Attempt) -> None:
    attempt.start(0, session=False)
    answers = attempt.ask(0)
    assert answers[0].ended is not None and "`Session.start().steps(total)`" in answers[0].ended[0] and answers[0].ended[1] == 1
    assert not attempt.paths.profile.exists()


def test_a_rank_that_is_killed_in_the_middle_ends_its_answer(attempt: Attempt) -> None:
    attempt.start(0)
    answers = attempt.ask(0)
    attempt.report(0, "recording", "records 5 steps from step 9")
    until(lambda: answers[0].parts)
    attempt.stop(0)
    until(lambda: answers[0].ended is not None)
    assert answers[0].ended == (
        "rank 0 ended before its trace was stored; see `trainhouse logs j`\n",
        1,
        "rank 0 ended before its trace was stored; see `trainhouse logs j`",
    )


def test_when_the_agent_stops_each_answer_ends(attempt: Attempt) -> None:
    for rank in (0, 1):
        attempt.start(rank)
    answers = attempt.ask(0, 1)
    attempt.profiles.close()
    for rank, answer in answers.items():
        assert answer.ended is not None and answer.ended[1] == 1
        assert answer.ended[0].startswith(f"rank {rank}: this node's agent stops")
    assert not attempt.paths.profile.exists()


def test_an_error_in_following_ends_each_answer(attempt: Attempt) -> None:
    class Broken(Answer):
        def part(self, text: str) -> None:
            raise RuntimeError("no more room")

        def end(self, text: str, exit_code: int | None, why: str = "") -> None:
            raise RuntimeError("no more room")

    for rank in (0, 1):
        attempt.start(rank)
    broken, other = Broken(), Answer()
    attempt.profiles.begin(asked(0, 1), attempt.paths, {0: broken, 1: other}, lambda: attempt.secrets)
    attempt.report(0, "recording", "records 5 steps from step 9")
    until(lambda: other.ended is not None)
    assert other.ended is not None and other.ended[0].startswith(
        "rank 1: its profile is not followed any more (RuntimeError: no more room)"
    )
    until(lambda: not attempt.paths.profile.exists())


def test_a_rank_that_comes_to_no_boundary_or_does_not_store_in_time(attempt: Attempt) -> None:
    attempt.start(0)
    rank = FollowedRank(asked(0, timeout_s=60), 0, attempt.paths.rank(0), 100.0)
    assert rank.look(100 + 60 + profiles.STEP_S) == []
    ((text, code),) = rank.look(161 + profiles.STEP_S)
    assert code == 1 and "came to the end of no step within 60 s" in text and "--timeout" in text
    attempt.report(0, "storing", "recorded steps 1–5; stores the trace")
    assert rank.look(161 + profiles.STEP_S) == [("rank 0 recorded steps 1–5; stores the trace", None)]
    ((text, code),) = rank.look(161 + profiles.STORE_S)
    assert code == 1 and "not stored in time" in text


def test_what_a_rank_writes_is_not_trusted(attempt: Attempt, tmp_path: Path) -> None:
    attempt.start(0)
    paths = attempt.paths.rank(0)
    for raw in (b"[]", b"{", b'{"id": "r"}', b'{"id": "r", "state": 1, "text": "x"}', b'{"id": "other", "state": "done", "text": "x"}'):
        paths.trace_status.write_bytes(raw)
        assert read_status(paths, "r").state == ""
    paths.trace_status.unlink()
    (tmp_path / "elsewhere").write_text(json.dumps({"id": "r", "state": "done", "text": "x"}))
    paths.trace_status.symlink_to(tmp_path / "elsewhere")
    assert read_status(paths, "r").state == ""
    paths.trace_status.unlink()
    attempt.secrets = ["hunter2-is-long"]
    answers = attempt.ask(0)
    attempt.report(0, "done", "\x1b[2Jit is hunter2-is-long " + "x" * 3000)
    until(lambda: answers[0].ended is not None)
    assert answers[0].ended is not None
    assert answers[0].ended[0].startswith("rank 0:  [2Jit is *** xx") and len(answers[0].ended[0]) < 1100


def test_a_secret_is_masked_also_over_lines_and_where_the_text_is_cut(attempt: Attempt) -> None:
    attempt.start(0)
    attempt.secrets = ["hunter2-is-long", "first-line-of-a-key\nand-its-second"]
    answers = attempt.ask(0)
    text = "first-line-of-a-key\nand-its-second "
    attempt.report(0, "failed", text + "x" * (profiles.MAX_TEXT_CHARS - len(text) - 7) + "hunter2-is-long")
    until(lambda: answers[0].ended is not None)
    assert answers[0].ended is not None and answers[0].ended[0].startswith("rank 0: *** xx")
    assert "hunter2" not in answers[0].ended[0] and "second" not in answers[0].ended[0]

"""A job's reason is one line: what ended, where, and the last exception's own line."""

import pytest

from tests.support.core_world import Driver, admitted, diverged, exited, going, gone, registered, running, saved
from trainhouse.events import FailureBlamed, GangAllocated, JobState, JobStatus, LaunchFailed
from trainhouse.events.wire.rank_end import report_text

TRACEBACK = """[rank0]: Traceback (most recent call last):
[rank0]:   File "/code/train.py", line 7, in <module>
[rank0]:     restore()
[rank0]:   File "/code/train.py", line 3, in restore
[rank0]:     raise NoCheckpointError("commit 4 of base is not there")
[rank0]: NoCheckpointError: commit 4 of base is not there"""
PEER_GONE = """Traceback (most recent call last):
  File "/code/train.py", line 9, in <module>
    dist.all_reduce(x)
RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:38032"""


def _failed(text: str, code: int | None = 1, signal: int | None = None, **limits: int) -> Driver:
    d = Driver()
    d.feed(registered("a"))
    gang = running(d, "j", ranks=2, limits={"restarts": 0} | limits)
    d.feed(exited(gang, 0, code, signal, text), *gone(gang))
    return d


def _lines(d: Driver) -> None:
    assert all("\n" not in s.reason for s in d.all(JobStatus)), [s.reason for s in d.all(JobStatus)]


def test_a_rank_that_raised_is_told_by_its_exception_alone() -> None:
    d = _failed(report_text(0, "exited with code 1", "", TRACEBACK, ""))
    _lines(d)
    final = d.status("j")
    assert final.state is JobState.FAILED
    assert final.reason == (
        "rank 0 on node a exited with code 1 (NoCheckpointError: commit 4 of base is not there). Blamed on user code. "
        "limits.restarts allows none."
    )


def test_what_became_of_it_follows_on_the_same_line() -> None:
    d = Driver()
    d.feed(registered("a"))
    gang = running(d, "j", ranks=2, limits={"restarts": 1})
    d.feed(saved(gang, 4), exited(gang, 0, 1, None, TRACEBACK), *gone(gang))
    assert any(
        s.reason
        == "restarting: rank 0 on node a exited with code 1 (NoCheckpointError: commit 4 of base is not there). Blamed on user code."
        for s in d.all(JobStatus)
    )
    again = going(d, "j")
    d.feed(exited(again, 0, 1, None, TRACEBACK), *gone(again))
    _lines(d)
    assert d.status("j").reason.endswith(
        "All 1 restarts that limits.restarts allows are used. Its last checkpoint is kept: commit 4, step 40."
    )


def test_the_rank_that_began_it_is_named_whichever_was_reported_first() -> None:
    d = Driver()
    d.feed(registered("a", 1), registered("b", 1))
    gang = running(d, "j", ranks=2, limits={"restarts": 0})
    d.feed(exited(gang, 0, 1, None, PEER_GONE), exited(gang, 1, 1, None, TRACEBACK), *gone(gang))
    node = gang.placements[1].node_id
    assert d.status("j").reason.startswith(f"rank 1 on node {node} exited with code 1 (NoCheckpointError: commit 4 of base is not there)")
    _lines(d)


def test_the_last_words_stay_in_the_verdict() -> None:
    evidence = _failed(report_text(0, "exited with code 1", "", TRACEBACK, "")).last(FailureBlamed).evidence
    assert evidence.startswith("rank 0 on node a exited with code 1 (NoCheckpointError") and 'File "/code/train.py", line 3' in evidence


@pytest.mark.parametrize(
    ("text", "code", "signal", "line"),
    [
        (
            report_text(0, "exited with code 2", "", "loading\nno such file: data.bin\n", ""),
            2,
            None,
            "exited with code 2 (no such file: data.bin)",
        ),
        (report_text(0, "exited with code 2", "", "", "flight recorder: rank 0 is at …"), 2, None, "exited with code 2. "),
        (
            report_text(0, "was ended by SIGKILL", "Memory cgroup out of memory: the kernel killed 1", "a\nb", ""),
            None,
            9,
            "was killed by SIGKILL (Memory cgroup out of memory: the kernel killed 1). ",
        ),
        (
            report_text(0, "was ended by SIGKILL (if nobody sent it, the kernel was out of memory)", "", "a\nb", ""),
            None,
            9,
            "was killed by SIGKILL (by the",
        ),
        ("rank 0 exited with code 1: the loss exploded", 1, None, "exited with code 1 (the loss exploded). "),
        ("", 1, None, "exited with code 1. "),
        ("rank 0 is gone and how it ended was not recorded", None, None, "is gone; how it ended could not be learnt. "),
        ("ValueError: " + "x" * 5000, 1, None, "exited with code 1 (ValueError: xxx"),
    ],
)
def test_other_ends(text: str, code: int | None, signal: int | None, line: str) -> None:
    d = _failed(text, code, signal)
    _lines(d)
    told = next(s.reason for s in d.all(JobStatus) if "rank 0 on node a" in s.reason)
    assert f"rank 0 on node a {line}".rstrip(". ") in told and len(told) < 1000


def test_a_launch_that_failed_and_a_loss_that_diverged() -> None:
    d = Driver()
    d.feed(registered("a"), admitted("j", ranks=1))
    gang = d.last(GangAllocated)
    about = {"job_id": "j", "attempt": gang.attempt, "epoch": gang.epoch, "node_id": "a", "pool": "default"}
    d.feed(LaunchFailed.model_validate(about | {"reason": "no room:\n  2 GiB are left", "retryable": False}), *gone(gang))
    _lines(d)
    assert d.status("j").reason.startswith("node a could not start its ranks: no room: 2 GiB are left.")
    other = running(d, "k", ranks=1)
    d.feed(diverged(other, 2), *gone(other))
    _lines(d)
    assert d.status("k").reason == "its loss diverged at step 55: nan. Commit 2 is its last good checkpoint, and is kept."

"""Parts of the classifier: which end is the root, rules of a policy, fingerprints, history, and what is remembered of a text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.support.failure_cases import cases
from trainhouse.events import FailureCategory
from trainhouse.events.model.failure_policy import BlameRule
from trainhouse.events.model.safe_regex import costly
from trainhouse.scheduler.core.blame import Evidence, PastFailure, RankEnd, blame, gist
from trainhouse.scheduler.core.blame.log_parsing import read
from trainhouse.scheduler.core.blame.rank_exit import Causality, examine
from trainhouse.scheduler.core.blame.rules import CAUSES, CONSEQUENCES, LAUNCH
from trainhouse.workers.agent.launch.rank_watch import reason
from trainhouse.workers.launcher import ExitRecord, RankPaths

CLOSED = "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:38032"
TRACE = """Traceback (most recent call last):
  File "/workspace/train.py", line {line}, in step
    x = {code}
  File "/usr/lib/python3.11/site-packages/torch/functional.py", line 9, in split
    return tensor.split()
ArithmeticError: at 0x7f{line:04x} of {line}"""
NOW = 1_000_000_000


def _end(rank: int, text: str = "", *, code: int | None = 1, signal: int | None = None, at: int = 0) -> RankEnd:
    return RankEnd(rank, f"n{rank}", f"d{rank}", None if signal else code, signal, text, NOW + at)


def _of(*ends: RankEnd, **more: object) -> Evidence:
    return replace(Evidence("j", ends, failed_at_ms=NOW), **more)  # type: ignore[arg-type]


def test_who_follows_is_not_the_root_even_when_his_clock_is_ahead() -> None:
    found = blame(_of(_end(0, CLOSED, at=-5_000), _end(1, signal=11), _end(2, CLOSED, at=40)))
    assert (found.rank, found.category) == (1, FailureCategory.USER_CODE)


def test_an_exception_raised_from_a_lost_connection_follows_too() -> None:
    text = f"{CLOSED}\n\nThe above exception was the direct cause of the following exception:\n\nTraceback (most recent call last):\n"
    text += '  File "/workspace/loop.py", line 3, in run\n    raise StepError("step 4 failed") from error\nloop.StepError: step 4 failed'
    found = blame(_of(_end(0, text), _end(1, signal=9, at=900)))
    assert (found.rank, found.category) == (1, FailureCategory.UNKNOWN)


def test_of_two_causes_the_first_counts() -> None:
    found = blame(_of(_end(0, "ValueError: b", at=10), _end(1, "OSError: [Errno 28] No space left on device", at=5)))
    assert (found.rank, found.category) == (1, FailureCategory.STORAGE)


def test_clean_ends_say_nothing() -> None:
    assert blame(_of(_end(0, "Xid (PCI:0000:01:00): 79", code=0))).rule == "unknown"


def test_rules_of_the_policy_come_first_and_see_one_line() -> None:
    rule = BlameRule(name="licence", pattern=r"^licence .* denied$", category=FailureCategory.PLATFORM, summary="no licence")
    found = blame(_of(_end(0, "licence server 7 denied\nModuleNotFoundError: No module named 'x'")), (rule,))
    assert (found.category, found.rule) == (FailureCategory.PLATFORM, "licence")
    assert "no licence" in found.summary
    assert blame(_of(_end(0, "licence server\nwas denied")), (rule,)).rule != "licence"


COSTLY = [r"(a+)+$", r"(?:\w|\d)*x", r"(.*)\1", r".*a.*b.*c", r"(a{1,300})*", r"((ab)*c)+", r"(?:(?:a|b)c)+", r"(?:a?a?)+b"]
COSTLY += [r"(?:.*a){12}b", r"a.{0,200}a.{0,200}a.{0,200}b", r"(a{1,3}){60}b", r"(?:a?){30}a{30}b", r"(?:a|aa){40}b"]


@pytest.mark.parametrize("pattern", COSTLY)
def test_a_policy_refuses_patterns_that_could_take_long(pattern: str) -> None:
    with pytest.raises(ValidationError, match="very long"):
        BlameRule(name="x", pattern=pattern, category=FailureCategory.DATA)


USUAL = [r"NCCL .*timeout", r"Xid \([^)]*\): (?:48|79)\b", r"(?:ab)+c", r"a{2,5}b?", r"[(*+]\)x*", r"(?i)\bloss (nan|inf)\b"]
USUAL += [r"(?:foo|bar) .*? baz .*", r"(?:\d{1,3}\.){3}\d{1,3}", r"https?://(\w{1,9}\.){2,3}", r"a{2}(?:b|c)?"]


@pytest.mark.parametrize("pattern", USUAL)
def test_usual_patterns_pass(pattern: str) -> None:
    assert costly(pattern) == ""


def test_shipped_rules_have_names_of_their_own_and_texts_for_people() -> None:
    rules = (*CAUSES, *CONSEQUENCES)
    assert len({r.name for r in rules}) == len(rules) >= 70
    assert all(r.summary for r in (*rules, *LAUNCH))


def test_fingerprints_know_a_failure_again_whatever_its_numbers() -> None:
    prints = [blame(_of(_end(0, TRACE.format(line=n, code=c)))).fingerprint for n, c in ((12, "a"), (99, "a b"))]
    assert prints[0] == prints[1] == "python|ArithmeticError|train.py:step"
    assert blame(_of(_end(0, "Boom Error: no name"))).fingerprint != prints[0]


def _past(node: str, job: str = "j", fingerprint: str = "sigkill", at: int = 0) -> PastFailure:
    return PastFailure(job, NOW + at, FailureCategory.UNKNOWN, fingerprint, node)


def test_the_same_failure_on_three_nodes_is_the_jobs_own() -> None:
    two = _of(_end(0, signal=9), past=(_past("n8"), _past("n8")))
    assert not blame(two).mine
    three = _of(_end(0, signal=9), past=(_past("n8"), _past("n9")))
    found = blame(three)
    assert (found.category, found.mine, found.rule) == (FailureCategory.USER_CODE, True, "same-on-many-nodes")
    old = _of(_end(0, signal=9), past=(_past("n8", at=-90_000_000), _past("n9", at=-90_000_000)))
    assert not blame(old).mine


def test_broken_machines_follow_a_job_only_if_it_got_nowhere_in_between() -> None:
    xid = "NVRM: Xid (PCI:0000:41:00): 79, pid=1, GPU has fallen off the bus."
    for known in (_of(_end(0, xid)), _of(lost_node="n0")):
        found = blame(known)
        past = [_past(node, fingerprint=found.fingerprint) for node in ("n8", "n9")]
        assert blame(replace(known, past=tuple(past))).rule == "same-on-many-nodes", "it breaks whatever it is given"
        past[0] = replace(past[0], got_on=True)
        assert blame(replace(known, past=tuple(past))) == found
    killed = tuple(replace(_past(node), got_on=True) for node in ("n8", "n9"))
    assert blame(_of(_end(0, signal=9), past=killed)).mine, "what a program can do to itself counts all the same"


def test_what_meets_other_jobs_on_a_node_is_the_nodes() -> None:
    others = (_past("n0", "x"), _past("n0", "y"))
    assert blame(_of(_end(0, signal=11), past=others)).category is FailureCategory.NODE
    assert blame(_of(_end(0, signal=11), past=others[:1])).category is FailureCategory.USER_CODE
    assert blame(_of(_end(0, "ImportError: x"), past=others)).category is FailureCategory.USER_CODE


@pytest.mark.parametrize(
    ("code", "signal", "rule"), [(None, 9, "sigkill"), (None, 11, "sigsegv"), (None, 7, "sigbus"), (3, None, "exit-3")]
)
def test_the_agents_own_words_about_an_end_mislead_nobody(code: int | None, signal: int | None, rule: str, tmp_path: Path) -> None:
    text = reason(0, ExitRecord(code, signal, 5), RankPaths(tmp_path))
    assert blame(_of(_end(0, text, code=code, signal=signal))).rule == rule


def test_known_shards_are_found_by_name() -> None:
    text = "reading part-00031\nzlib.error: Error -3 while decompressing data: incorrect header check"
    assert blame(_of(_end(0, text), shards=("part-00030", "part-00031"))).shard == "part-00031"


def test_a_gist_keeps_what_rules_know_and_is_short() -> None:
    frames = "\n".join(
        f"frame #{n}: c10d::ProcessGroupNCCL::watchdogHandler() + 0x1da (0x7fa14b231b5a in libtorch_cuda.so)" for n in range(60)
    )
    chatter = "\n".join(f"step {n} loss {n / 7}" + "." * n for n in range(200))
    cause = "  what():  [Rank 5] Process group watchdog thread terminated with exception: CUDA error: uncorrectable ECC error encountered"
    text = f"{cause}\n{frames}\n{chatter}"
    short = gist(text, 2_000)
    assert len(short) <= 2_000 and cause in short and "frame #" not in short and short.endswith("." * 199)
    assert gist("a", 2_000) == "a"


def test_cases_are_judged_alike_by_their_gist() -> None:
    """With frames of C++ and chatter around, and all of it remembered in 2,000 characters."""
    frames = "\n".join(f"frame #{n}: at::native::copy_(at::Tensor&) + 0x1da (0x7fa14b231b5a in libtorch_cuda.so)" for n in range(40))
    noise = "\n".join(f"worker {n}: {'x' * n}" for n in range(100))
    wrong = []
    for case in cases():
        long = tuple(replace(e, text=gist(f"{noise}\n{e.text}\n{frames}" if e.text else "", 2_000)) for e in case.evidence.ends)
        if blame(replace(case.evidence, ends=long)).category is not blame(case.evidence).category:
            wrong.append(case.name)
    assert len(wrong) <= 2, wrong


@given(st.text(max_size=3000), st.integers(1, 500))
def test_any_text_is_read_and_any_gist_is_short(text: str, most: int) -> None:
    assert len(gist(text, most)) <= most
    assert len(read(text).text) <= len(text) + 1
    found = blame(_of(_end(0, text)))
    assert len(found.summary) <= 1024 and len(found.fingerprint) <= 256


def test_a_librarys_own_key_error_is_not_taken_for_the_programs_and_an_end_that_was_asked_for_stands_last() -> None:
    def ended(text: str = "", code: int | None = 1, signal: int | None = None) -> RankEnd:
        return RankEnd(0, "a", "d", code, signal, text, NOW)

    inside = TRACE.format(line=7, code="y").replace("ArithmeticError: at 0x7f0007 of 7", "KeyError: 'x'")
    outside = "\n".join(line for n, line in enumerate(inside.splitlines()) if n not in (3, 4))
    assert [examine(ended(text), ()).mine for text in (inside, outside)] == [False, True]
    assert examine(ended(code=None, signal=15), ()).standing is Causality.ASKED

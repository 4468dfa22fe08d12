"""The classifier against labelled failures: real lines of torch, NCCL, CUDA, S3 and Python."""

import json

from tests.support.failure_cases import Case, accuracy, by_code_alone, cases, confusion
from trainhouse.events import FailureCategory
from trainhouse.scheduler.core.blame import Evidence, blame

AIM = 0.95


def _category(evidence: Evidence) -> FailureCategory:
    return blame(evidence).category


def _share(some: list[Case]) -> float:
    return accuracy(confusion(some, _category))


def test_the_corpus_is_large_and_has_every_category() -> None:
    all_cases = cases()
    assert len(all_cases) >= 60
    assert len({c.name for c in all_cases}) == len(all_cases)
    assert {c.category for c in all_cases} == set(FailureCategory)


def test_accuracy_over_all_and_over_what_rules_were_not_made_on() -> None:
    all_cases = cases()
    matrix = confusion(all_cases, _category)
    wrong = [(c.name, c.category.value, blame(c.evidence)) for c in all_cases if _category(c.evidence) is not c.category]
    told = json.dumps(matrix, indent=1) + "\n" + "\n".join(map(str, wrong))
    assert accuracy(matrix) >= AIM, told
    assert _share([c for c in all_cases if c.held_out]) >= 0.9, told


def test_reading_what_was_written_beats_the_exit_code() -> None:
    all_cases = cases()
    assert accuracy(confusion(all_cases, by_code_alone)) < _share(all_cases) - 0.3


def test_the_culprit_is_named_where_the_label_names_one() -> None:
    wrong = []
    for case in cases():
        found = blame(case.evidence)
        names = {"rank": found.rank, "node": found.node_id, "shard": found.shard, "mine": found.mine}
        wrong += [(case.name, key, want, names[key]) for key, want in case.label.items() if key in names and names[key] != want]
    assert len(wrong) <= 2, wrong


def test_equal_evidence_gives_an_equal_answer() -> None:
    assert [blame(c.evidence) for c in cases()] == [blame(c.evidence) for c in cases()]

"""`trainhouse study create --from`: what is taken, what is left out and named, and what refuses the whole."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.study_requests import study_spec
from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.studies.earlier_trials import with_known
from trainhouse.cli.studies.study_file import WrittenStudy
from trainhouse.client.errors import UnknownStudyError
from trainhouse.client.studies.study_reads import StudyReads
from trainhouse.events.model.known_trials import KnownTrial

WRITTEN = WrittenStudy("vision", "new", study_spec())


class Earlier(StudyReads):
    """Reads of studies that there are."""

    def study(self, project: str, name: str) -> Any:
        if project != "vision" or name not in ("old", "wide", "accuracy"):
            raise UnknownStudyError(project, name)
        return {"metrics": ["loss"], "modes": ["max" if name == "accuracy" else "min"]}

    def trials(self, project: str, name: str) -> Any:
        rates = (0.1, 0.2, 7.0) if name == "old" else (5.0, 6.0)
        about = {"state": "COMPLETE", "step": 9}
        return [about | {"trial": number, "parameters": {"lr": lr}, "values": {"loss": lr}} for number, lr in enumerate(rates)]

    def query(self, statement: str) -> Any:
        assert statement.startswith("SELECT")
        return [{"lr": 0.3, "loss": 0.5, "job_id": "a"}, {"lr": 0.3}]


@pytest.fixture(autouse=True)
def reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainhouse.client.studies.study_reads.study_reads", Earlier)


def test_trials_of_an_earlier_study_and_rows_are_taken_and_the_others_named(capsys: pytest.CaptureFixture[str]) -> None:
    written = with_known(WRITTEN, ["old", "old"], "SELECT lr, loss, job_id FROM points")
    assert [(dict(each.values), dict(each.metrics), each.study, each.trial) for each in written.spec.known] == [
        ({"lr": 0.1}, {"loss": 0.1}, "old", 0),
        ({"lr": 0.2}, {"loss": 0.2}, "old", 1),
        ({"lr": 0.3}, {"loss": 0.5}, "", None),
    ]
    assert written.spec.model_copy(update={"known": ()}) == WRITTEN.spec
    assert capsys.readouterr().err.splitlines() == [
        "2 trials of study old are known to the sampler; 1 left out:",
        "  trial 2: lr = 7.0 is not between 0.001 and 1.0",
        "1 trials of the query are known to the sampler; 1 left out:",
        "  row 2: it has no value of loss",
    ]


def test_what_the_file_names_itself_comes_first() -> None:
    own = KnownTrial.model_validate({"values": {"lr": 0.5}, "metrics": {"loss": 1.0}})
    written = with_known(WrittenStudy("vision", "new", study_spec(known=[own])), ["old"], None)
    assert written.spec.known[0] == own and len(written.spec.known) == 3
    assert with_known(WRITTEN, [], None) is WRITTEN


@pytest.mark.parametrize(
    ("study", "words"),
    [
        ("wide", "nothing of study wide can be taken; nothing was sent\n  trial 0: lr = 5.0 is not between 0.001 and 1.0"),
        ("accuracy", "study accuracy cannot be taken: its loss is best at its max, and the new study's at its min"),
    ],
)
def test_what_cannot_count_refuses_the_whole(study: str, words: str) -> None:
    with pytest.raises(CliError) as caught:
        with_known(WRITTEN, ["old", study], None)
    assert words in str(caught.value) and caught.value.code is Exit.USAGE


def test_a_study_that_is_not_there_is_named() -> None:
    with pytest.raises(UnknownStudyError):
        with_known(WRITTEN, ["none"], None)

"""`session.output`: names of the spec alone; outside of a job a folder, which the end of the session makes whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.workers.session.test_session_boundary import SavedInMemory, session_of
from trainhouse.workers.data.published_data import open_folder
from trainhouse.workers.session import InvalidUseError, Session
from trainhouse.workers.session.context import Context
from trainhouse.workers.session.logging.sink import open_sink
from trainhouse.workers.session.process_groups import Gang


def test_an_output_that_the_spec_does_not_name_is_refused(tmp_path: Path) -> None:
    session = session_of(tmp_path, SavedInMemory())
    with pytest.raises(InvalidUseError, match=r"the job's spec names none; give outputs: \[tokens\] there, or --output tokens"):
        session.output("tokens")


def test_outside_of_a_job_it_is_a_folder_and_the_end_of_the_session_closes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINHOUSE_OUTPUTS_DIR", str(tmp_path / "made"))
    context = Context(spool=tmp_path / "spool.jsonl")
    session = Session(context, Gang(context), open_sink(context), SavedInMemory())
    assert session.output("tokens") is session.output("tokens")
    session.output("tokens").add({"txt": "x"})
    session.close()
    assert open_folder(tmp_path / "made" / "tokens")[0]["txt"] == b"x"

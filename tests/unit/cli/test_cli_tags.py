"""Tags as they are typed, and the condition that a list filters by."""

import pytest

from trainhouse.cli.shared.exit_codes import CliError
from trainhouse.cli.shared.filters import job_filter
from trainhouse.cli.tags.tag_command import MAX_CHANGES, MAX_KEY_CHARS, NOTE, changes, done_text, tag_lines
from trainhouse.client.gateway import reads
from trainhouse.client.rows import jobs_query


def test_tags_and_the_note_are_set_and_removed() -> None:
    assert changes(["paper=a=b", "baseline="], ["old", "old"], "good") == ({"paper": "a=b", "baseline": "", NOTE: "good"}, ["old"])
    assert changes([], [], " ") == ({}, [NOTE]) and changes([], [], None) == ({}, [])
    assert done_text({"paper": "x", NOTE: "y"}, ["old", NOTE]) == "set tag paper, set note, removed tag old, removed note"


@pytest.mark.parametrize(
    ("tags", "remove", "note"),
    [
        (["paper"], [], None),
        (["=x"], [], None),
        (["a=1", "a=2"], [], None),
        (["a=1"], ["a"], None),
        (["k" * (MAX_KEY_CHARS + 1) + "=1"], [], None),
        (["a\nb=1"], [], None),
        (["a=" + "v" * 8001], [], None),
        ([], [""], None),
        ([f"{n}=1" for n in range(MAX_CHANGES + 1)], [], None),
        ([f"{NOTE}=x"], [], " "),
    ],
)
def test_tags_that_cannot_be_are_refused(tags: list[str], remove: list[str], note: str | None) -> None:
    with pytest.raises(CliError):
        changes(tags, remove, note)


def test_jobs_are_filtered_by_tags_with_every_way() -> None:
    keep = job_filter(0, tag=["paper=ic'ml", "baseline"])
    query = jobs_query(keep, 5)
    assert "job_id IN (SELECT job_id FROM tags WHERE key = 'paper' AND value = 'ic\\'ml')" in query
    assert "job_id IN (SELECT job_id FROM tags WHERE key = 'baseline')" in query
    request = next(reads.jobs(keep, 5))
    assert request.params["tag"] == ["paper=ic'ml", "baseline"]
    with pytest.raises(CliError, match="write --tag KEY=VALUE"):
        job_filter(0, tag=["=x"])


def test_status_shows_tags_and_note_in_lines() -> None:
    assert tag_lines({"paper": "icml", "baseline": "", NOTE: "one\ntwo"}) == [("tags", "paper=icml, baseline"), ("note", "one | two")]
    assert tag_lines({}) == tag_lines(None) == []

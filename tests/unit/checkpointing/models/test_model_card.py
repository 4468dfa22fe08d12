"""Model cards: Hugging Face's own reader reads them, people's text stays, and the unknown says so."""

from __future__ import annotations

import pytest
from huggingface_hub import ModelCard

from tests.support.manifests import bare_manifest
from trainhouse.checkpointing.chain.commits import Writer
from trainhouse.checkpointing.chain.manifest import Manifest
from trainhouse.checkpointing.errors import InvalidStateError
from trainhouse.checkpointing.models.model_card import BEGIN, END, EvaluationFacts, card_of
from trainhouse.checkpointing.models.named_version import NamedVersion
from trainhouse.checkpointing.models.stage_chain import StagedVersion
from trainhouse.events.model.ids import AttemptNumber, Epoch, JobId
from trainhouse.events.model.model_content import ModelContent

VERSION = NamedVersion("default", "gpt", StagedVersion(version=3, semver="1.2.0", content="ab" * 32))
BARE = ModelContent(project="default", job_id=JobId("gpt-1"), commit=2, step=40, checkpoint="cd" * 32, bytes=2**20)
FULL = ModelContent.model_validate(
    BARE.model_dump()
    | {
        "licence": "apache-2.0",
        "framework": "PyTorch 2.9",
        "datasets": ("text@1.0.0",),
        "notes": "a <!-- b\n| c",
        "input_schema": {"x": "```"},
    }
)


def manifest() -> Manifest:
    return bare_manifest(Writer(JobId("gpt-1"), Epoch(1), AttemptNumber(0), "w"), 2, {"loss": 0.25})


def test_hugging_faces_reader_reads_it() -> None:
    card = ModelCard(card_of(VERSION, FULL, manifest()))
    data = card.data.to_dict()
    assert data["license"] == "apache-2.0" and data["library_name"] == "pytorch" and data["tags"] == ["trainhouse"]
    assert data["trainhouse_version"] == "model:gpt@3" and "`text@1.0.0`" in card.text and "| loss | 0.25 |" in card.text
    assert "> a &lt;!-- b\n> | c" in card.text and card.text.count(BEGIN) == card.text.count(END) == 1


def test_the_unknown_says_so() -> None:
    text = card_of(VERSION, BARE, manifest())
    assert ModelCard(text).data.to_dict()["license"] == "unknown"
    for line in (
        "| licence | not known |",
        "| code | not known |",
        "| data | not known |",
        "Schema of an input: not known.",
        "are not known here",
    ):
        assert line in text
    assert "## Intended use\n\nNot written yet (not known)." in text


def test_figures_of_evaluations_have_their_intervals() -> None:
    found = [EvaluationFacts("accuracy", "text@1.0.0/test", "top1", 0.91, 0.9, 0.92), EvaluationFacts("latency", "", "p99_ms", 3.0)]
    text = card_of(VERSION, FULL, manifest(), found)
    assert (
        "| accuracy | text@1.0.0/test | top1 | 0.91 | 0.9 to 0.92 |" in text and "| latency | not known | p99_ms | 3 | not known |" in text
    )


def test_peoples_text_and_metadata_stay_and_facts_are_new() -> None:
    first = card_of(VERSION, BARE, manifest())
    edited = first.replace("Not written yet (not known).", "For digits alone: 7 | 8.", 1).replace("# gpt", "# gpt\n\nWritten by people.", 1)
    edited = edited.replace("license: unknown", "license: unknown\nlanguage: de\npipeline_tag: text-generation")
    edited = edited.replace("- trainhouse", "- trainhouse\n- mine")
    after = card_of(VERSION, FULL, manifest(), [], edited)
    card = ModelCard(after)
    data = card.data.to_dict()
    assert "Written by people." in after and "For digits alone: 7 | 8." in after
    assert data["language"] == "de" and data["pipeline_tag"] == "text-generation" and data["tags"] == ["trainhouse", "mine"]
    assert data["license"] == "apache-2.0" and "| licence | apache-2.0 |" in after and after.count(BEGIN) == 1
    assert card_of(VERSION, FULL, manifest(), [], after) == after


def test_a_card_of_people_alone_gets_the_facts_at_its_end() -> None:
    text = card_of(VERSION, FULL, manifest(), None, "# Mine\n\nText.\n")
    assert (
        "# Mine\n\nText." in text and text.index("Text.") < text.index(BEGIN) and ModelCard(text).data.to_dict()["license"] == "apache-2.0"
    )


@pytest.mark.parametrize("written", [f"# x\n{BEGIN}\nno end", f"{BEGIN}{END}{BEGIN}{END}", "---\n- a\n---\n# list"])
def test_a_card_that_cannot_be_read_is_left_alone(written: str) -> None:
    with pytest.raises(InvalidStateError, match="mend"):
        card_of(VERSION, FULL, manifest(), None, written)

"""Names of versions, manifests and their hash, and how a spec names data."""

from typing import Any

import orjson
import pytest
from pydantic import ValidationError

from tests.support.core_world import spec
from tests.support.dataset_versions import manifest
from trainhouse.events.model.dataset import Manifest, version_of
from trainhouse.events.model.dataset_profile import FieldProfile, NumberSketch, VersionProfiles
from trainhouse.events.model.version_names import DatasetNameError, VersionName

SHA = "a" * 64


@pytest.mark.parametrize("text", [f"speech@sha256:{SHA}", "speech@1.2.0", "a.b_c-d@0.0.1-rc.1"])
def test_a_version_is_named_by_its_hash_or_a_tag(text: str) -> None:
    assert str(VersionName.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "speech",
        "speech@",
        "speech@1.2",
        "speech@01.2.0",
        f"speech@{SHA}",
        f"speech@sha256:{SHA.upper()}",
        "a/b@1.0.0",
        "../x@1.0.0",
        "@1.0.0",
    ],
)
def test_another_text_names_none(text: str) -> None:
    with pytest.raises(DatasetNameError, match="names no version of a dataset: write"):
        VersionName.parse(text)


def test_the_hash_of_a_manifest_is_that_of_its_canonical_bytes_and_survives_them() -> None:
    one = manifest()
    again = Manifest.model_validate(orjson.loads(one.canonical_json()))
    assert again == one and again.sha256() == one.sha256()
    other_order = Manifest.model_validate(dict(reversed(list(one.model_dump().items()))))
    assert other_order.sha256() == one.sha256()
    assert manifest(licence="MIT").sha256() != one.sha256()


def test_the_facts_of_a_manifest_are_small_and_have_its_hash() -> None:
    facts = version_of(manifest(), "speech", "vision")
    assert facts.sha256 == manifest().sha256() and str(facts.name) == f"speech@sha256:{facts.sha256}"
    assert facts.splits["train"].shards == 1 and facts.row_count == 10


@pytest.mark.parametrize("change", [{"row_count": 9}, {"bytes": 1}, {"schema_hash": SHA}, {"split_config_hash": SHA}])
def test_a_manifest_whose_sums_or_hashes_are_wrong_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="publish again"):
        Manifest.model_validate(manifest().model_dump() | change)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ({"uri": "s3://b/d"}, "by both uri and sha256"),
        ({}, "by both uri and sha256"),
        ({"uri": "s3://b/d", "sha256": SHA, "dataset": "d@1.0.0"}, "dataset excludes uri and sha256"),
        ({"uri": "s3://b/d", "sha256": SHA, "split": "train"}, "split is for a dataset"),
        ({"dataset": "d"}, "pattern"),
    ],
)
def test_a_spec_names_data_in_exactly_one_form(data: dict[str, str], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        spec(data=data)


def test_opaque_data_is_written_as_before_there_were_datasets() -> None:
    opaque = spec(data={"uri": "s3://b/d", "sha256": SHA})
    assert orjson.loads(opaque.canonical_json())["data"] == {"uri": "s3://b/d", "sha256": SHA}
    named = spec(data={"dataset": "d@1.0.0", "split": "train"})
    assert orjson.loads(named.canonical_json())["data"] == {"dataset": "d@1.0.0", "split": "train"}


def test_a_version_of_before_there_were_distributions_has_the_id_that_it_had() -> None:
    assert manifest().sha256() == "7913654841cd2682697bbeda74dc22902fa2a9c70c6b019bae0c992adbf50765"  # pragma: allowlist secret


def test_profiles_of_too_many_bytes_are_those_of_the_first_fields() -> None:
    fields = {f"c{n}": FieldProfile(samples=n) for n in range(8)}
    made = VersionProfiles(splits={"train": fields, "dev": {"c7": fields["c7"]}})
    assert made.bounded() == made and VersionProfiles.model_validate(orjson.loads(made.canonical_json())) == made
    few = made.bounded(100)
    assert few.cut and few.splits == {"train": {"c0": fields["c0"], "c1": fields["c1"]}, "dev": {}} and len(few.canonical_json()) <= 100


def test_a_profile_of_more_values_than_samples_is_refused() -> None:
    assert FieldProfile.model_validate({"samples": 2, "values": {"distinct": 1, "top": {"a": 2}}})
    with pytest.raises(ValidationError, match="more values than samples"):
        FieldProfile.model_validate({"samples": 1, "values": {"distinct": 1, "top": {"a": 2}}})


@pytest.mark.parametrize(
    "changes",
    [{"bins": [2, 1]}, {"bins": [1]}, {"bins": [1, 2**64]}, {"shift": 64}, {"mean": float("nan")}, {"counts": [1, -1]}],
)
def test_a_damaged_sketch_is_refused(changes: dict[str, Any]) -> None:
    sound = {"least": 0.0, "most": 1.0, "mean": 0.5, "shift": 0, "bins": [0, 1], "counts": [1, 1]}
    assert NumberSketch.model_validate(sound).count == 2
    with pytest.raises(ValidationError):
        NumberSketch.model_validate(sound | changes)


def test_a_sketch_whose_bins_have_no_numbers_is_read_and_adds_nothing() -> None:
    empty = NumberSketch.model_validate({"least": -9.0, "most": 9.0, "mean": 5.0, "shift": 3, "bins": [0], "counts": [0]})
    some = NumberSketch.model_validate({"least": 0.0, "most": 1.0, "mean": 0.5, "shift": 0, "bins": [0, 1], "counts": [1, 1]})
    assert NumberSketch.merged([empty, some, empty]) == some
    assert NumberSketch.merged([empty, empty]).count == 0

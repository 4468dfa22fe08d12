"""Manifests read without their models are those that the models read, or are left to them; the store is that of the settings, or none."""

from __future__ import annotations

import copy
import hashlib
from typing import Any

import orjson
import pytest
from pydantic import BaseModel, ValidationError

from tests.support.dataset_versions import manifest
from tests.unit.client.test_plain_events import altered, same
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.client.quick.plain_events import NotPlainError, plain_document
from trainhouse.client.quick.quick_manifests import ARTIFACT, DATASET, schema_of, schema_path
from trainhouse.client.quick.quick_store import QuickStore, store_of
from trainhouse.events.model.artifact import ArtifactFile, ArtifactManifest
from trainhouse.events.model.dataset import Manifest

MODELS: dict[str, type[BaseModel]] = {ARTIFACT: ArtifactManifest, DATASET: Manifest}
FILES = tuple(ArtifactFile(path=path, bytes=3, sha256=hashlib.sha256(path.encode()).hexdigest()) for path in ("a", "b/c"))
NAMED = {"name": "tokenizer", "sha256": "3" * 64}
SOURCES = [
    {"kind": "jsonl", "sha256": "4" * 64, "bytes": 1, "files": 1},
    {"kind": "job", "sha256": "5" * 64, "bytes": 1, "files": 1, "job": "j-1"},
]
SAMPLES = {
    ARTIFACT: ArtifactManifest.of("file", FILES),
    DATASET: manifest(sources=SOURCES, licence="CC0", purposes=["trials"], artifacts=[NAMED]),
}
THEIRS = {"TRAINHOUSE_S3_BUCKET": "other", "TRAINHOUSE_S3_SECRET_KEY": "theirs"}  # pragma: allowlist secret
KEYS = {"access_key": "id", "secret_key": "s3cret"}  # pragma: allowlist secret


@pytest.mark.parametrize("kind", MODELS)
def test_the_schema_is_that_of_the_model(kind: str) -> None:
    text = orjson.dumps(MODELS[kind].model_json_schema(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    assert schema_path(kind).read_bytes() == text, f"write this to {schema_path(kind)}:\n{text.decode()}"


@pytest.mark.parametrize("kind", MODELS)
def test_what_is_stored_is_plain(kind: str) -> None:
    for model in (SAMPLES[kind], *([manifest()] if kind == DATASET else [])):
        stored = orjson.loads(model.canonical_json())
        plain = plain_document(schema_of(kind), stored)
        assert orjson.dumps(plain.model_dump(mode="json")) == orjson.dumps(model.model_dump(mode="json"))
        assert same(plain, model)


@pytest.mark.parametrize("kind", MODELS)
def test_whatever_is_read_plainly_is_as_its_model_reads_it(kind: str) -> None:
    read = 0
    for data in altered(orjson.loads(SAMPLES[kind].canonical_json())):
        try:
            plain = plain_document(schema_of(kind), copy.deepcopy(data))
        except NotPlainError:
            continue
        try:
            model = MODELS[kind].model_validate(data)
        except ValidationError as error:
            # It breaks a rule across fields, which what is named by a hash does not.
            assert {each["type"] for each in error.errors()} == {"value_error"}, data
            continue
        assert plain.model_dump(mode="json") == model.model_dump(mode="json") and same(plain, model), data
        read += 1
    assert read, "some alterations are as good as the sample"


@pytest.mark.parametrize("section", [KEYS, KEYS | {"endpoint": "https://s3.lan:9000", "bucket": "b", "region": "eu"}])
@pytest.mark.parametrize("environment", [{"AWS_PROFILE": "mine"}, THEIRS])
def test_the_store_is_that_of_the_settings(section: dict[str, str], environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    settings = StoreSettings(**({name: value for name, value in section.items() if f"TRAINHOUSE_S3_{name.upper()}" not in environment}))  # type: ignore[arg-type]
    assert settings.secret_key is not None
    found = store_of({"s3": section}, environment)
    assert found == QuickStore(
        str(settings.endpoint), settings.bucket, settings.region, str(settings.access_key), settings.secret_key.get_secret_value()
    )
    assert settings.secret_key.get_secret_value() not in repr(found)


NOT_OURS: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({}, {}),
    ({"access_key": "id"}, {}),
    (KEYS | {"endpoint": "s3.lan:9000"}, {}),
    (KEYS | {"endpoint": "http://id:key@s3.lan:9000"}, {}),  # pragma: allowlist secret
    (KEYS | {"ca_file": "/ca.pem"}, {}),
    (KEYS | {"lease": "/run/lease"}, {}),
    (KEYS | {"bucket": 7}, {}),
    (KEYS, {"HTTP_PROXY": "http://proxy:1"}),
    (KEYS | {"endpoint": "https://s3.lan:9000"}, {"AWS_CA_BUNDLE": "/ca.pem"}),
    (KEYS, {"AWS_SESSION_TOKEN": "t"}),
]


@pytest.mark.parametrize(("section", "environment"), NOT_OURS)
def test_the_settings_decide_about_another_store(section: dict[str, Any], environment: dict[str, str]) -> None:
    assert store_of({"s3": section}, environment) is None

"""What is read of an `MLmodel`, where versions lie for clients, and how they are shown."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest
from pydantic import ValidationError

from tests.support.fakes.memory_store import MemoryObjectStore
from tests.support.registry_requests import Registry, content_of, facts_of, observed
from trainhouse.events import Event, ModelRegistered
from trainhouse.events.model.model_content import ModelContentError
from trainhouse.gateway.mlflow.bodies import SearchLoggedModels
from trainhouse.gateway.mlflow.errors import MlflowError
from trainhouse.gateway.mlflow.filter_language import Entity, Ordering, parse_filter, parse_orders
from trainhouse.gateway.mlflow.logged_model_routes import delete, whole_models
from trainhouse.gateway.mlflow.mlflow_ports import Ports
from trainhouse.gateway.mlflow.mlmodel import MOST_MLMODEL_BYTES, parts_of_mlmodel
from trainhouse.gateway.mlflow.registry_entities import (
    LOGGED_MODEL,
    OF_MODELS,
    OF_VERSIONS,
    keeps,
    model_json,
    model_tags,
    tags_of_client,
    version_json,
    version_tags,
)
from trainhouse.gateway.mlflow.request_scope import RequestScope
from trainhouse.gateway.mlflow.version_files import place_of, version_placed
from trainhouse.scheduler.core.registry.registry_state import ModelEntry, Version

MODEL = "m-" + "ab" * 16
MLMODEL = """
flavors:
  python_function: {loader_module: mlflow.sklearn}
  sklearn: {sklearn_version: 1.9.1, serialization_format: skops}
mlflow_version: 3.17.2
signature:
  inputs: '[{"type": "double", "name": "x", "required": true}]'
  outputs: '[{"type": "double", "required": true}]'
  params: null
"""


def test_framework_and_schemas_are_those_of_the_file() -> None:
    parts = parts_of_mlmodel(MLMODEL.encode())
    assert parts.framework == "sklearn 1.9.1"
    assert parts.input_schema == {"columns": [{"type": "double", "name": "x", "required": True}]}
    assert parts.output_schema == {"columns": [{"type": "double", "required": True}]}


@pytest.mark.parametrize(
    ("text", "framework"),
    [
        ("flavors: {python_function: {}}\nmlflow_version: 3.17.2", "mlflow 3.17.2"),
        ("{}", "mlflow"),
        ("flavors: [1]\nsignature: x", "mlflow"),
        ("flavors: {sklearn: 1}\nsignature: {inputs: '{', outputs: 3}", "sklearn"),
        ("flavors: {torch: {torch_version: 3}}\nsignature: {inputs: '{}'}", "torch 3"),
    ],
)
def test_what_it_does_not_say_is_left_out(text: str, framework: str) -> None:
    parts = parts_of_mlmodel(text.encode())
    assert (parts.framework, parts.input_schema, parts.output_schema) == (framework, None, None)


@pytest.mark.parametrize("text", [b"\xff\xfe\xff", b"[", b"- 1", b"", b"{" * 5000, b"[" * 60_000, b"!!python/object/apply:os.system [ls]"])
def test_what_is_no_such_file_is_refused(text: bytes) -> None:
    with pytest.raises(ModelContentError, match="MLmodel is no"):
        parts_of_mlmodel(text)


BOMB = "a0: &a0 {k: v}\n" + "".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}\n" for n in range(1, 100))


@pytest.mark.parametrize("text", [BOMB, "version: " + "1:" * 30_000 + "1", "{}\n" + "#" * (MOST_MLMODEL_BYTES - 3)])
def test_what_would_grow_while_it_is_read_stays_text(text: str) -> None:
    assert parts_of_mlmodel(text.encode()).framework == "mlflow"


def test_numbers_and_dates_are_text() -> None:
    parts = parts_of_mlmodel(b"flavors: {sklearn: {sklearn_version: 1.9}}\nsignature: {inputs: null, outputs: 2026-01-01}")
    assert (parts.framework, parts.input_schema, parts.output_schema) == ("sklearn 1.9", None, None)


def test_a_long_one_is_not_read() -> None:
    with pytest.raises(ModelContentError, match="MLmodel has 65537 bytes, and may have 65536"):
        parts_of_mlmodel(b" " * ((64 << 10) + 1))


def registered(commit: int, job_id: str, **tags: str) -> tuple[ModelEntry, Version]:
    registry = Registry()
    registry.ask(ModelRegistered(project="a b", name="resnet", content=content_of(1), user="ada", tags=tags), "r")
    registry.ask(observed("r", facts_of(1, commit=commit, job_id=job_id, project="a b"), project="a b"))
    model = registry.state.model("a b", "resnet")
    assert model is not None
    return model, model.versions[0]


def test_no_tag_replaces_what_the_registry_knows() -> None:
    said = {"trainhouse.semver": "9.9.9", "trainhouse.content": "another", "note": "mine"}
    model, version = registered(4, "gpt", **said)
    known = {"trainhouse.semver": version.semver, "trainhouse.content": version.facts.content}
    assert version_tags(version) == known | {"note": "mine"}
    assert {each["key"]: each["value"] for each in version_json(model, version)["tags"]} == known | {"note": "mine"}
    other = replace(model, tags=(("trainhouse.project", "another"),))
    assert model_tags(other) == {"trainhouse.project": model.project}
    assert model_json(other)["tags"] == [{"key": "trainhouse.project", "value": model.project}]


@pytest.mark.parametrize(
    ("commit", "job_id", "tag", "shown"),
    [
        (4, "gpt", "", ("runs:/gpt/checkpoints/4", "gpt", None)),
        (0, "run", MODEL, (f"models:/{MODEL}", "run", MODEL)),
        (0, MODEL, MODEL, (f"models:/{MODEL}", "", MODEL)),
        (0, "run", "no id", ("runs:/run", "run", None)),
    ],
)
def test_a_version_says_what_it_is_of(commit: int, job_id: str, tag: str, shown: tuple[str, str, str | None]) -> None:
    found = version_json(*registered(commit, job_id, **({LOGGED_MODEL: tag} if tag else {})))
    assert (found["source"], found["run_id"], found.get("model_id")) == shown


def like(pattern: str, value: str, comparator: str = "LIKE") -> bool:
    return keeps(parse_filter(f"name {comparator} '{pattern}'", OF_MODELS), {"name": value}, {})


@pytest.mark.parametrize(
    ("pattern", "value", "is_like"),
    [
        ("", "", True),
        ("%", "", True),
        ("a%", "ab\nc", True),
        ("%c", "abc", True),
        ("%bc%c", "abcc", True),
        ("%bc%c", "abc", False),
        ("a%a", "a", False),
        ("a_c", "abc", True),
        ("a_c", "ac", False),
        ("%a_%_b%", "xaxbxb", True),
        ("%.%", "abc", False),
        ("res%", "Resnet", False),
    ],
)
def test_a_pattern_has_any_text_and_any_character(pattern: str, value: str, is_like: bool) -> None:
    assert like(pattern, value) == is_like
    assert like(pattern.upper(), value, "ILIKE") == (is_like or pattern == "res%")


def test_a_pattern_of_many_parts_is_compared_in_no_time() -> None:
    parts = "%".join("a" * 127)
    assert not like(f"{parts}%b", "a" * 250)
    assert like(f"{parts}%", "a" * 250)
    with pytest.raises(MlflowError, match="a pattern of LIKE has at most 256 characters"):
        like("a%" * 200, "a")


def test_an_order_of_much_white_space_is_read_in_no_time() -> None:
    assert parse_orders([f"name{' ' * 200_000}DESC", "version_number", "name\tasc"], OF_VERSIONS) == [
        Ordering(Entity.ATTRIBUTE, "name", descending=True),
        Ordering(Entity.ATTRIBUTE, "version_number", descending=False),
        Ordering(Entity.ATTRIBUTE, "name", descending=False),
    ]
    with pytest.raises(MlflowError):
        parse_orders([f"name{' ' * 200_000}x"], OF_VERSIONS)


def test_a_page_of_logged_models_has_at_most_a_hundred() -> None:
    found = [SearchLoggedModels.model_validate({"max_results": asked}).max_results for asked in (1, 100, 1000)]
    assert found == [1, 100, 100]
    with pytest.raises(ValidationError):
        SearchLoggedModels(max_results=1001)


class Counted(dict[str, Any]):
    """A row that counts how often it is looked at."""

    looks = 0

    def __getitem__(self, key: str) -> Any:
        self.looks += 1
        return super().__getitem__(key)


def test_parameters_and_tags_are_looked_at_once_however_many_models_there_are() -> None:
    ids = [f"m-{n:032x}" for n in range(100)]
    row = dict.fromkeys(("experiment_id", "name", "created_ms", "updated_ms", "status", "model_type", "source_run_id"), "")
    parts = [Counted(job_id=each, part=part, key=key, value=each) for key in "ba" for part in ("tag", "param") for each in ids]
    found = whole_models([row | {"model_id": each} for each in ids], parts)
    assert [each["info"]["model_id"] for each in found] == ids
    assert found[7]["data"]["params"] == found[7]["info"]["tags"] == [{"key": "a", "value": ids[7]}, {"key": "b", "value": ids[7]}]
    assert max(part.looks for part in parts) < 10
    bare = whole_models([row | {"model_id": ids[0]}], [])[0]
    assert bare["data"]["params"] == bare["info"]["tags"] == []


def test_tags_of_the_platform_are_not_a_clients() -> None:
    shown = {"team": "blue", "trainhouse.semver": "1.0.0", LOGGED_MODEL: MODEL}
    assert tags_of_client({"team": "blue", "trainhouse": "x"}) == {"team": "blue", "trainhouse": "x"}
    for key in (LOGGED_MODEL, "trainhouse.semver", "trainhouse."):
        with pytest.raises(MlflowError, match=f"tag {key} is set by the platform alone"):
            tags_of_client({"team": "blue", key: "x"})
    assert tags_of_client(shown, is_copy=True) == {"team": "blue"}


def test_a_request_beside_its_deletion_does_not_keep_a_logged_model() -> None:
    row = dict.fromkeys(("experiment_id", "experiment", "name", "user", "model_type", "source_run_id"), "1")
    row |= {"project": "vision", "model_id": MODEL, "job_id": MODEL}

    class Desk(RequestScope):
        """Another request reads the model before the tables have its deletion."""

        def __init__(self) -> None:
            self.ports = Ports(cast(Any, None), cast(Any, MemoryObjectStore()))

        async def logged_model(self, model_id: str, allows_deleted: bool = False) -> dict[str, Any]:
            return row

        async def send(self, *events: Event) -> None:
            self.remember(row)

    desk = Desk()
    assert asyncio.run(delete(MODEL, desk)) == {} and not desk.ports.runs


def test_an_address_leads_back_to_its_version() -> None:
    place = place_of(*registered(4, "gpt")).removeprefix("mlflow-artifacts:/")
    word = place.split("/")[1]
    assert version_placed(place) == (word, "resnet", "1", "") and " " not in word
    assert version_placed(f"{place}/data/model.skops") == (word, "resnet", "1", "data/model.skops")
    for other in ("7/run/artifacts/models/a/b/1", "models/a/b", "models/a/b/0", "models/a/b/x"):
        assert version_placed(other) is None
    with pytest.raises(MlflowError):
        version_placed(f"{place}/../x")

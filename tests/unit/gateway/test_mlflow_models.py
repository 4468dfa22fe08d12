"""What is read of an `MLmodel`, where versions lie for clients, and how they are shown."""

from __future__ import annotations

import pytest

from tests.support.registry_requests import Registry, content_of, facts_of, observed
from trainhouse.events import ModelRegistered
from trainhouse.events.model.model_content import ModelContentError
from trainhouse.gateway.mlflow.errors import MlflowError
from trainhouse.gateway.mlflow.mlmodel import parts_of_mlmodel
from trainhouse.gateway.mlflow.registry_entities import LOGGED_MODEL, version_json
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
        ("flavors: {torch: {torch_version: 3}}\nsignature: {inputs: '{}'}", "torch"),
    ],
)
def test_what_it_does_not_say_is_left_out(text: str, framework: str) -> None:
    parts = parts_of_mlmodel(text.encode())
    assert (parts.framework, parts.input_schema, parts.output_schema) == (framework, None, None)


@pytest.mark.parametrize("text", [b"\xff\xfe\xff", b"[", b"- 1", b"", b"{" * 5000, b"!!python/object/apply:os.system [ls]"])
def test_what_is_no_such_file_is_refused(text: bytes) -> None:
    with pytest.raises(ModelContentError, match="MLmodel is no"):
        parts_of_mlmodel(text)


def registered(commit: int, job_id: str, **tags: str) -> tuple[ModelEntry, Version]:
    registry = Registry()
    registry.ask(ModelRegistered(project="a b", name="resnet", content=content_of(1), user="ada", tags=tags), "r")
    registry.ask(observed("r", facts_of(1, commit=commit, job_id=job_id, project="a b"), project="a b"))
    model = registry.state.model("a b", "resnet")
    assert model is not None
    return model, model.versions[0]


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


def test_an_address_leads_back_to_its_version() -> None:
    place = place_of(*registered(4, "gpt")).removeprefix("mlflow-artifacts:/")
    word = place.split("/")[1]
    assert version_placed(place) == (word, "resnet", "1", "") and " " not in word
    assert version_placed(f"{place}/data/model.skops") == (word, "resnet", "1", "data/model.skops")
    for other in ("7/run/artifacts/models/a/b/1", "models/a/b", "models/a/b/0", "models/a/b/x"):
        assert version_placed(other) is None
    with pytest.raises(MlflowError):
        version_placed(f"{place}/../x")

"""The committed contract: schemas, golden samples and topics agree with the models, in both directions."""

import math
from pathlib import Path

import jsonschema
import orjson
import pytest

from trainhouse.events import event_classes
from trainhouse.events.wire import schemas
from trainhouse.events.wire.codec import decode, encode
from trainhouse.events.wire.topic_types import TOPIC_EVENTS
from trainhouse.events.wire.topics import TOPICS

SAMPLES = Path(schemas.__file__).parents[1] / "contract" / "samples"
TYPES = sorted(event_classes())


def test_every_schema_is_committed_and_unchanged() -> None:
    committed = {p.stem: p.read_bytes() for p in schemas.COMMITTED.glob("trainhouse.*.json")}
    current = {name: schemas.dump(document) for name, document in schemas.json_schemas().items()}
    assert sorted(committed) == sorted(current)
    changed = [name for name, text in current.items() if committed[name] != text]
    assert not changed, (
        f"these types changed within their version: {changed}; add a version and an upcaster, or an optional field and commit it"
    )


def test_asyncapi_is_committed_and_unchanged() -> None:
    assert (schemas.COMMITTED / "asyncapi.json").read_bytes() == schemas.dump(schemas.asyncapi())


def test_every_type_has_one_sample_and_a_topic() -> None:
    assert sorted(p.stem for p in SAMPLES.glob("*.json")) == TYPES
    carried = {cls.event_type for classes in TOPIC_EVENTS.values() for cls in classes}
    assert carried == set(TYPES)
    assert set(TOPIC_EVENTS) <= {t.name for t in TOPICS}


@pytest.mark.parametrize("name", TYPES)
def test_a_sample_reads_and_writes_back_the_same(name: str) -> None:
    raw = (SAMPLES / f"{name}.json").read_bytes()
    again = orjson.loads(encode(decode(raw)))
    _holds(orjson.loads(raw), again, name)


@pytest.mark.parametrize("name", TYPES)
def test_a_sample_fits_its_published_schema(name: str) -> None:
    data = orjson.loads((SAMPLES / f"{name}.json").read_bytes())["data"]
    schema = orjson.loads((schemas.COMMITTED / f"{name}.json").read_bytes())
    jsonschema.Draft202012Validator(schema).validate(_numbers(data))


def _holds(old: object, new: object, path: str) -> None:
    """Everything that the old writer said is still there; a newer model may only add."""
    if isinstance(old, dict):
        assert isinstance(new, dict), path
        for key, value in old.items():
            assert key in new, f"{path}.{key} is gone"
            _holds(value, new[key], f"{path}.{key}")
    elif isinstance(old, list):
        assert isinstance(new, list) and len(new) == len(old), path
        for n, value in enumerate(old):
            _holds(value, new[n], f"{path}[{n}]")
    else:
        assert old == new, path


def _numbers(value: object) -> object:
    """NaN and the infinities travel as text, since JSON has no such numbers."""
    if isinstance(value, dict):
        return {k: _numbers(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_numbers(v) for v in value]
    return math.nan if value == "NaN" else value

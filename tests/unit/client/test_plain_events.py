"""Events read without their models are those that the models read, or are left to them."""

from __future__ import annotations

import copy
import typing
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from pydantic import BaseModel

from trainhouse.client.quick.plain_events import LEFT_OUT, PUBLIC_INPUT, READABLE, SCHEMAS, Fields, NotPlainError, plain_event, plain_record
from trainhouse.events import Event, InvalidEvent, decode, encode, envelope_of
from trainhouse.events.model import topic_record, upgrade
from trainhouse.events.model.artifact import ArtifactManifest
from trainhouse.events.model.base import event_class
from trainhouse.events.model.dataset import Manifest

assert topic_record and upgrade, "their events are of no topic that all know, so that nothing else loads them"
SAMPLES = SCHEMAS.parent / "samples"
INSTEAD: tuple[Any, ...] = (None, "", "x", "a\nb", -1, 0, 1, 2, 2.5, 10**17, True, [], {}, ["x"], {"x": 1}, "NaN")


def written(event_type: str) -> dict[str, Any]:
    """A record of a type as a program of this version writes it."""
    event = decode((SAMPLES / f"{event_type}.json").read_bytes()).event
    found: dict[str, Any] = orjson.loads(encode(envelope_of(event, id="e", source="test", now_ms=1)))
    return found


def models_of(model: type[BaseModel]) -> set[type[BaseModel]]:
    """A model and those of its parts."""
    found: set[type[BaseModel]] = set()
    left: list[Any] = [model]
    while left:
        each = left.pop()
        if isinstance(each, type) and issubclass(each, BaseModel) and each not in found:
            found.add(each)
            left += [one.annotation for one in each.model_fields.values()]
        left += typing.get_args(each)
    return found


def altered(value: Any) -> Iterator[Any]:
    """The value with one thing in it absent, added or another."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield {key: each for key, each in value.items() if key != name}
            yield from ({**value, name: each} for each in (*INSTEAD, *altered(inner)))
        yield {**value, "of_a_newer_writer": 1}
    elif isinstance(value, list):
        yield [*value, "x"]
        yield from ([*value[:at], each, *value[at + 1 :]] for at, inner in enumerate(value) for each in altered(inner))
    elif isinstance(value, str):
        yield from (value + "x", value + "\n", value.upper(), value * 10_000)
    elif isinstance(value, int | float):
        yield from (value + 1, -value, float(value), value * 10**9)


def by_model(record: dict[str, Any]) -> Event | None:
    try:
        return decode(orjson.dumps(record)).event
    except InvalidEvent:
        return None


def same(plain: Any, model: Any) -> bool:
    """Whether attributes are those of the model, all the way down."""
    if isinstance(plain, Fields):
        return all(same(getattr(plain, name), getattr(model, name)) for name in type(model).model_fields)
    if isinstance(plain, dict):
        return list(plain) == list(model) and all(same(plain[name], model[name]) for name in plain)
    if isinstance(plain, tuple):
        return len(plain) == len(model) and all(map(same, plain, model))
    return bool(plain == model) and isinstance(plain, bool) == isinstance(model, bool)


@pytest.mark.parametrize("event_type", READABLE)
def test_what_this_version_writes_is_plain(event_type: str) -> None:
    record = written(event_type)
    plain, model = plain_record(orjson.dumps(record), (event_type,)), by_model(record)
    assert plain is not None and model is not None and plain.event_type == event_type
    assert orjson.dumps(plain.model_dump(mode="json")) == orjson.dumps(model.model_dump(mode="json"))
    assert same(plain, model)


@pytest.mark.parametrize("event_type", READABLE)
def test_whatever_is_read_plainly_is_as_its_model_reads_it(event_type: str) -> None:
    record = written(event_type)
    read = 0
    for data in altered(record["data"]):
        try:
            plain = plain_event(event_type, copy.deepcopy(data))
        except NotPlainError:
            continue
        model = by_model(record | {"data": data})
        if model is None:
            continue  # it breaks a rule across fields, which no writer does: these topics are the platform's own
        assert plain.model_dump(mode="json") == model.model_dump(mode="json"), data
        assert same(plain, model), data
        read += 1
    assert read, "some alterations are as good as the sample"


def test_fields_that_are_left_out_are_those_of_the_models() -> None:
    models = {model for each in (*map(event_class, READABLE), ArtifactManifest, Manifest) for model in models_of(each)}
    left_out = {model.__name__: frozenset(name for name, one in model.model_fields.items() if one.exclude_if) for model in models}
    assert {name: fields for name, fields in left_out.items() if fields} == LEFT_OUT


def test_types_whose_unknown_fields_are_refused_are_those_of_the_models() -> None:
    assert {event_type for event_type in READABLE if event_class(event_type).public_input} == PUBLIC_INPUT


def test_a_type_that_is_not_listed_is_left_to_its_model() -> None:
    with pytest.raises(NotPlainError):
        plain_event("trainhouse.job.submitted.v1", {})


@pytest.mark.parametrize("event_type", READABLE)
def test_an_event_of_an_older_or_a_newer_writer_is_plain(event_type: str) -> None:
    record = written(event_type)
    newer = [] if event_type in PUBLIC_INPUT else [{**record["data"], "of_a_newer_writer": 1}]
    for data in (*newer, *without_defaults(event_type, record["data"])):
        plain, model = plain_event(event_type, copy.deepcopy(data)), by_model(record | {"data": data})
        assert model is not None
        assert plain.model_dump(mode="json") == model.model_dump(mode="json") and same(plain, model), data


def without_defaults(event_type: str, data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The event as one wrote it who did not know one of its fields that have a default."""
    properties = orjson.loads((SCHEMAS / f"{event_type}.json").read_bytes())["properties"]
    yield from ({key: each for key, each in data.items() if key != name} for name in data if "default" in properties[name])

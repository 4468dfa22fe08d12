"""The published form of the contract: one JSON Schema per event type and version, and an AsyncAPI 3 document of all topics.

Holds: what is committed under `events/contract/schemas/` equals what the models say; a test fails when they part.
Never: writes outside the folder that it is given.
"""

from pathlib import Path
from typing import Any

import orjson

from trainhouse.events.model.base import Event, event_classes
from trainhouse.events.wire.topic_types import TOPIC_EVENTS
from trainhouse.events.wire.topics import TOPICS, Topic

COMMITTED = Path(__file__).parents[1] / "contract" / "schemas"
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema(cls: type[Event]) -> dict[str, Any]:
    """The JSON Schema (2020-12) of the `data` of one event type."""
    schema = cls.model_json_schema(mode="validation")
    return {"$schema": _DIALECT, "$id": f"urn:{cls.event_type}"} | schema


def json_schemas() -> dict[str, dict[str, Any]]:
    """All of them, by type string."""
    return {name: json_schema(cls) for name, cls in event_classes().items()}


def asyncapi() -> dict[str, Any]:
    """The AsyncAPI 3 document: a channel per topic, a message per event type."""
    used = sorted({cls.event_type for classes in TOPIC_EVENTS.values() for cls in classes})
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Trainhouse",
            "version": "1",
            "description": "Every fact about a training job is an event on one of these topics.",
        },
        "defaultContentType": "application/cloudevents+json",
        "channels": {t.name: _channel(t) for t in TOPICS},
        "operations": _operations(),
        "components": {"messages": {name: _message(name) for name in used}},
    }


def write(out: Path) -> list[Path]:
    """Writes every schema and `asyncapi.json` into `out` and returns the paths. Blocks on the disk."""
    out.mkdir(parents=True, exist_ok=True)
    documents = {f"{name}.json": schema for name, schema in json_schemas().items()} | {"asyncapi.json": asyncapi()}
    for name, document in documents.items():
        (out / name).write_bytes(dump(document))
    return [out / name for name in documents]


def dump(document: dict[str, Any]) -> bytes:
    """As the committed files hold it: two spaces, sorted keys, a newline at the end."""
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)


def _channel(topic: Topic) -> dict[str, Any]:
    names = [cls.event_type for cls in TOPIC_EVENTS.get(topic.name, ())]
    retention = "compacted" if topic.compacted else "for ever" if topic.retention_days is None else f"{topic.retention_days} days"
    return {
        "address": topic.name,
        "description": f"{topic.carries}. Keyed by {topic.key}; kept {retention}.",
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in names},
    }


def _message(name: str) -> dict[str, Any]:
    cls = event_classes()[name]
    return {
        "name": name,
        "title": cls.__name__,
        "summary": (cls.__doc__ or "").strip().splitlines()[0],
        "contentType": "application/cloudevents+json",
        "payload": {
            "type": "object",
            "required": ["specversion", "id", "source", "type", "data"],
            "properties": {"specversion": {"const": "1.0"}, "type": {"const": name}, "data": {"$ref": f"{name}.json"}},
        },
    }


def _operations() -> dict[str, Any]:
    """AsyncAPI operations of external clients: send to the public input, receive from the public output."""
    return {
        "submit": {"action": "receive", "channel": {"$ref": "#/channels/trainhouse.jobs"}},
        "status": {"action": "send", "channel": {"$ref": "#/channels/trainhouse.status"}},
    }

"""The page of topics and events: what is on each topic, and the fields of each event."""

from collections.abc import Mapping
from typing import Any

from trainhouse.events.model.base import Event, event_classes
from trainhouse.events.wire.topic_types import TOPIC_EVENTS
from trainhouse.events.wire.topics import TOPICS, Topic
from trainhouse.reference.markdown import code, table
from trainhouse.reference.model_pages import definitions, described

INTRODUCTION = """# Topics and events

Every record is a CloudEvent in JSON: `specversion`, `id`, `source`, `type`, `time`, and `data` with the fields below. `trainhouse schemas`
prints the JSON Schema of each type, and an AsyncAPI document of all topics. Journals hold records of their own
([the journal protocol](../internals/journal.md)). Who may write to which topic is in `events/security/grants.py`.
"""


def events() -> str:
    """Every topic, every event type, and the parts that events consist of."""
    parts: dict[str, Any] = {}
    sections = [_section(name, cls, parts) for name, cls in sorted(event_classes().items())]
    rows = [(code(t.name), t.carries, t.key, _kept(t), _types(t.name)) for t in TOPICS]
    return "\n".join(
        [
            INTRODUCTION,
            "## Topics\n",
            table(["topic", "what it carries", "key", "kept", "event types"], rows),
            "## Event types\n",
            *sections,
            "## Parts of events\n",
            *definitions(parts, "###"),
        ]
    )


def _section(name: str, cls: type[Event], parts: dict[str, Any]) -> str:
    schema: Mapping[str, Any] = cls.model_json_schema(mode="validation")
    parts |= schema.get("$defs", {})
    asked = "Any producer with access to the topic may write it.\n" if cls.public_input else ""
    return f"### {cls.__name__} {{#{anchor(name)}}}\n\n`{name}`. {asked}\n{described(schema)}"


def anchor(name: str) -> str:
    """The place of an event type in the page."""
    return name.replace(".", "-")


def _types(topic: str) -> str:
    return ", ".join(f"[{cls.__name__}](#{anchor(cls.event_type)})" for cls in TOPIC_EVENTS.get(topic, ()))


def _kept(topic: Topic) -> str:
    return "newest of each key" if topic.compacted else "for ever" if topic.retention_days is None else f"{topic.retention_days} days"

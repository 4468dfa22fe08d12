"""Events to Kafka bytes and back: CloudEvents 1.0 over Kafka, both content modes in, the structured one out.

Holds: decode(encode(e)) == e; a reader ignores unknown fields, but a public input with an unknown field is refused with a hint.
Never: raises anything but InvalidEvent on bad bytes; walks a value that is nested deeper than MAX_DEPTH.
"""

import base64
from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson
from pydantic import ValidationError

from trainhouse.events.model.base import Event, event_class
from trainhouse.events.model.bounds import read_clamped, read_stored
from trainhouse.events.model.errors import InvalidEvent, UnknownEventType
from trainhouse.events.model.ids import EventId
from trainhouse.events.wire.envelope import Envelope, Order, Origin, from_rfc3339, rfc3339
from trainhouse.events.wire.upcast import UPCASTERS
from trainhouse.events.wire.validation_messages import explain_validation

CONTENT_TYPE = "application/cloudevents+json; charset=utf-8"
MAX_TRACEPARENT = 128
# Levels of lists and objects in a record. Events have fewer than ten; at some hundred, what prints or validates a value fails on the stack.
MAX_DEPTH = 64
HEADERS: tuple[tuple[str, bytes], ...] = (("content-type", CONTENT_TYPE.encode()),)

_NESTING: Final = (dict, list)
_FLAT: Final = frozenset({str, int, float, bool, type(None)})

Headers = Iterable[tuple[str, str | bytes | None]] | Mapping[str, str | bytes | None] | None


def encode(envelope: Envelope) -> bytes:
    """The structured mode: one JSON object, ready to be a record's value. Send it with HEADERS."""
    attributes: dict[str, Any] = {
        "specversion": "1.0",
        "id": str(envelope.id),
        "source": envelope.source,
        "type": envelope.type,
        "datacontenttype": "application/json",
    }
    if envelope.subject:
        attributes["subject"] = envelope.subject
    if envelope.time_ms is not None:
        attributes["time"] = rfc3339(envelope.time_ms)
    for name, value in (
        ("pool", envelope.pool),
        ("causationid", envelope.causation_id),
        ("correlationid", envelope.correlation_id),
        ("order", envelope.order),
        ("traceparent", envelope.traceparent),
        ("project", envelope.project),
        ("origin", envelope.origin),
    ):
        if value is not None:
            attributes[name] = str(value)
    attributes["data"] = orjson.Fragment(envelope.event.model_dump_json())
    return orjson.dumps(attributes)


def decode(value: bytes | None, headers: Headers = None, *, stored: bool = False) -> Envelope:
    """Reads a record's value (and headers, for the binary mode). Raises InvalidEvent with the reason for a person.

    `stored`: as in `decode_parts`.
    """
    attributes, data = split(value, headers)
    return decode_parts(attributes, data, stored=stored)


def split(value: bytes | None, headers: Headers = None) -> tuple[dict[str, Any], Any]:
    """The attributes and the parsed data, not yet validated as an event. Raises InvalidEvent."""
    if value is None:
        raise InvalidEvent("the record has no value: a tombstone is no event; send a CloudEvents 1.0 JSON object")
    pairs = headers.items() if isinstance(headers, Mapping) else headers or ()
    known = {k.lower(): v.encode() if isinstance(v, str) else v for k, v in pairs if v is not None}
    parsed = parse_json(value)
    if "ce_specversion" in known:
        attributes: dict[str, Any] = {k[3:]: v.decode("utf-8", "replace") for k, v in known.items() if k.startswith("ce_")}
        return attributes, parsed
    if not isinstance(parsed, dict):
        raise InvalidEvent(f"the value is a JSON {type(parsed).__name__}, not an object; send a CloudEvents 1.0 JSON object")
    data = parsed.pop("data", None)
    if data is None and "data_base64" in parsed:
        data = parse_json(_base64(parsed.pop("data_base64")))
    return parsed, data


def parse_json(value: bytes) -> Any:
    """The parsed JSON, of at most MAX_DEPTH levels. Raises InvalidEvent."""
    try:
        parsed = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise InvalidEvent(f"the value is no JSON: {error}") from error
    if value.count(b"[") + value.count(b"{") > MAX_DEPTH and is_deep(parsed):
        raise InvalidEvent(f"the value is nested more than {MAX_DEPTH} levels deep; send a flatter one")
    return parsed


def is_deep(parsed: Any) -> bool:
    """Whether there are more than MAX_DEPTH levels. It goes level by level, since a recursion would fail on what it looks for."""
    level = [parsed] if isinstance(parsed, _NESTING) else []
    for _ in range(MAX_DEPTH):
        inside = (node.values() if type(node) is dict else node for node in level)
        # Most lists hold numbers or texts alone, and are long: their types are looked at without a step of Python for each.
        level = [child for many in inside if not _FLAT.issuperset(map(type, many)) for child in many if isinstance(child, _NESTING)]
        if not level:
            return False
    return True


def decode_parts(attributes: Mapping[str, Any], data: Any, *, stored: bool = False) -> Envelope:
    """An envelope from split attributes and data. Raises InvalidEvent, with job and event id where they can be read.

    `stored`: it counts already (a journal holds it), so what was allowed then is read, whatever is refused by now.
    """
    job_id = data.get("job_id") if isinstance(data, dict) else None
    event_id = attributes.get("id")
    hints = {
        "job_id": job_id if isinstance(job_id, str) else None,
        "event_id": event_id if isinstance(event_id, str) else None,
    }
    try:
        type_string = _attributes_are_whole(attributes)
        type_string, data = UPCASTERS.lift(type_string, data)
        event = _event(event_class(type_string), data, stored)
        if not stored and attributes["id"].endswith("\n"):
            raise InvalidEvent("the id ends with a newline; send it without")
        return Envelope(
            id=EventId.parse(attributes["id"]),
            source=attributes["source"],
            event=event,
            time_ms=from_rfc3339(attributes["time"]) if "time" in attributes else None,
            subject=str(attributes.get("subject") or event.subject()),
            pool=_optional(attributes, "pool"),
            causation_id=_optional(attributes, "causationid"),
            correlation_id=_optional(attributes, "correlationid"),
            order=Order.parse(attributes["order"]) if "order" in attributes else None,
            traceparent=_traceparent(attributes),
            project=_optional(attributes, "project"),
            origin=_origin(attributes),
        )
    except UnknownEventType as unknown:
        raise UnknownEventType(str(unknown), **hints) from unknown
    except InvalidEvent as invalid:
        raise InvalidEvent(str(invalid), **hints) from invalid
    except (ValueError, TypeError, AttributeError, RecursionError) as error:  # the last: `attributes` that came another way than by `split`
        raise InvalidEvent(f"attributes of the CloudEvent: {error}", **hints) from error


def _event(cls: type[Event], data: Any, stored: bool) -> Event:
    try:
        if stored:
            return read_stored(cls, data, "ignore")
        return cls.model_validate(data, extra="forbid") if cls.public_input else read_clamped(cls, data, "ignore")
    except ValidationError as error:
        raise InvalidEvent(f"{cls.event_type}: {explain_validation(error, cls)}") from error


def _attributes_are_whole(attributes: Mapping[str, Any]) -> str:
    if attributes.get("specversion") != "1.0":
        raise InvalidEvent(f'specversion is {attributes.get("specversion")!r}; send "specversion": "1.0" (CloudEvents)')
    for name in ("id", "source", "type"):
        if not isinstance(attributes.get(name), str) or not attributes[name]:
            raise InvalidEvent(f'the attribute "{name}" is missing or no text; CloudEvents 1.0 requires id, source and type')
    return str(attributes["type"])


def _optional(attributes: Mapping[str, Any], name: str) -> str | None:
    value = attributes.get(name)
    return None if value is None else str(value)


def _origin(attributes: Mapping[str, Any]) -> Origin | None:
    """Intake's own; another producer may use the name for something else, which is left out."""
    value = attributes.get("origin")
    try:
        return Origin.parse(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _traceparent(attributes: Mapping[str, Any]) -> str | None:
    """Returns the trace parent, or None for an invalid one: a bad trace must not cost anybody a job."""
    value = attributes.get("traceparent")
    return value if isinstance(value, str) and 0 < len(value) <= MAX_TRACEPARENT else None


def _base64(text: Any) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, TypeError) as error:
        raise InvalidEvent(f"data_base64 is no base64: {error}") from error

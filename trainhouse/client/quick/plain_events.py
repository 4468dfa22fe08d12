"""Events and manifests read by their JSON Schemas, without their models: those that are plain, which is nearly all.

Holds: an event is as its model reads it and, as JSON, as its model writes it, but that fields which its writer did not know come last;
whatever might differ (a value beyond its bounds, a keyword of a schema that is not known here) raises NotPlainError, and the model decides.
Never: looks at rules across fields. The platform alone writes what is read here, and its models held them.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import orjson

SCHEMAS: Final = Path(__file__).parents[2] / "events" / "contract" / "schemas"
# Fields that are left out where they have their default, by the title of their model: schemas do not say it. A test holds them.
LEFT_OUT: Final[Mapping[str, frozenset[str]]] = {
    "DataSource": frozenset({"job"}),
    "DatasetGrantRevoked": frozenset({"sha256", "reason"}),
    "DatasetGranted": frozenset({"sha256", "reason", "resent"}),
    "DatasetVersion": frozenset({"fields"}),
    "DatasetVersionDeprecated": frozenset({"resent"}),
    "DatasetVersionPublished": frozenset({"semver", "resent", "quarantine", "job_id"}),
    "GateEvaluation": frozenset(
        {"code", "command", "confidence", "dataset", "groups", "least_group", "model", "outputs", "program", "purpose", "repeats"}
        | {"resamples", "run_time_s", "split"}
    ),
    "GateSuite": frozenset({"dataset", "split"}),
    "Manifest": frozenset({"artifacts"}),
    "MetricLimits": frozenset({"against_champion", "at_least", "at_most", "margin"}),
    "ModelGate": frozenset({"evaluate", "max_age_days", "on_drift"}),
    "ProjectLimits": frozenset({"running", "queued", "cost_per_month"}),
    "SchedulingPolicy": frozenset({"unlisted_teams"}),
    "ShardQuarantined": frozenset({"resent", "split"}),
    "ShardsInQuarantine": frozenset({"lost"}),
    "TokenIssued": frozenset({"job_id"}),
    "VersionStatus": frozenset({"emergency"}),
}
READABLE: Final = (
    "trainhouse.dataset.grant-revoked.v1",
    "trainhouse.dataset.granted.v1",
    "trainhouse.dataset.shard-quarantined.v1",
    "trainhouse.dataset.shard-released.v1",
    "trainhouse.dataset.version-deprecated.v1",
    "trainhouse.dataset.version-published.v1",
    "trainhouse.model.status.v1",
    "trainhouse.policy.applied.v1",
    "trainhouse.pool.created.v1",
    "trainhouse.project.applied.v1",
    "trainhouse.token.issued.v1",
    "trainhouse.token.revoked.v1",
    "trainhouse.topic.recorded.v1",
    "trainhouse.upgrade.program-running.v1",
)
# Of these, which outsiders write, a reader refuses unknown fields; a test holds them.
PUBLIC_INPUT: Final = frozenset({"trainhouse.pool.created.v1"})
MOST_BYTES: Final = 1 << 20
TYPES: Final[Mapping[str, type | tuple[type, ...]]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
    "array": list,
    "object": dict,
}
ANNOTATIONS: Final = frozenset({"$defs", "$id", "$ref", "$schema", "anyOf", "default", "description", "examples", "title", "type"})
OF_NUMBERS: Final = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
OF_TEXTS: Final = frozenset({"minLength", "maxLength", "pattern"})
OF_LISTS: Final = frozenset({"items", "minItems", "maxItems"})
OF_OBJECTS: Final = frozenset(
    {"additionalProperties", "maxProperties", "minProperties", "patternProperties", "properties", "propertyNames", "required"}
)
KNOWN: Final = ANNOTATIONS | OF_NUMBERS | OF_TEXTS | OF_LISTS | OF_OBJECTS | {"enum", "const"}
Schema = Mapping[str, Any]


class NotPlainError(Exception):
    """The model of this event has to read it."""


class Fields:
    """An event, or a part of one, with its fields as attributes; enumerations are their texts."""

    __slots__ = ("_json", "_values", "event_type")

    def __init__(self, json: Mapping[str, Any], values: Mapping[str, Any], event_type: str = "") -> None:
        self._json, self._values, self.event_type = json, values, event_type

    def __getattr__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(name) from None

    def model_dump(self, *, mode: str, exclude: Collection[str] = ()) -> dict[str, Any]:
        """The JSON that its model writes. `mode`: "json" alone."""
        assert mode == "json"
        return {name: value for name, value in self._json.items() if name not in exclude}


def plain_event(event_type: str, data: Any) -> Fields:
    """An event of a type of READABLE from its JSON, which is changed. Raises NotPlainError."""
    schema = _schema(event_type)
    found = _fields_of(schema, data, _Reading(schema.get("$defs", {}), refuses_unknown=event_type in PUBLIC_INPUT))
    found.event_type = event_type
    return found


def plain_document(schema: Schema, data: Any) -> Fields:
    """A document that refuses unknown fields, from its JSON. `schema`: with the fields in the order of the model, in which they come.
    Raises NotPlainError."""
    return _fields_of(schema, data, _Reading(schema.get("$defs", {}), refuses_unknown=True, in_order=True))


def plain_record(value: bytes, types: Collection[str]) -> Fields | None:
    """The event that a record's value holds in the structured mode; None for an event of another type. Raises NotPlainError."""
    try:
        parsed = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise NotPlainError(str(error)) from error
    if len(value) > MOST_BYTES or not isinstance(parsed, dict) or parsed.get("specversion") != "1.0" or "data" not in parsed:
        raise NotPlainError("a record is not in the structured mode")
    texts = [parsed.get(name) for name in ("id", "source", "type")]
    if not all(isinstance(text, str) and text for text in texts):
        raise NotPlainError("a record has no id, source or type")
    event_type = str(texts[2])
    if event_type not in types:
        if not (SCHEMAS / f"{event_type}.json").is_file():
            raise NotPlainError(f"the type {event_type} is not known here")
        return None
    return plain_event(event_type, parsed["data"])


@dataclass(frozen=True)
class _Reading:
    """Rules of one reading. `in_order`: fields are put in the order of their schema."""

    defs: Schema
    refuses_unknown: bool = False
    in_order: bool = False


def _fields_of(schema: Schema, data: Any, reading: _Reading) -> Fields:
    _, found = _read(schema, data, reading)
    if not isinstance(found, Fields):
        raise NotPlainError(f"{schema.get('title')} is no object")
    return found


@lru_cache
def _schema(event_type: str) -> Schema:
    if event_type not in READABLE:
        raise NotPlainError(f"{event_type} is read by its model alone")
    found: Schema = orjson.loads((SCHEMAS / f"{event_type}.json").read_bytes())
    return found


def _read(schema: Schema, value: Any, reading: _Reading) -> tuple[Any, Any]:
    """The value as JSON and as the model has it."""
    if not KNOWN.issuperset(schema):
        raise NotPlainError(f"keywords {', '.join(sorted(set(schema) - KNOWN))}")
    if "anyOf" in schema:
        return _any_of(schema["anyOf"], value, reading)
    if "$ref" in schema:
        return _read(reading.defs[schema["$ref"].rpartition("/")[2]], value, reading)
    kind = str(schema.get("type"))
    if not _is_of(kind, value):
        raise NotPlainError(f"a value is no {kind}")
    if value not in schema.get("enum", (value,)) or value != schema.get("const", value):
        raise NotPlainError("a value is none of those that there are")
    if kind in ("integer", "number"):
        _check_number(schema, value)
        value = float(value) if kind == "number" else value
    elif kind == "string":
        _check_text(schema, value)
    elif kind == "array":
        return _list(schema, value, reading)
    elif kind == "object":
        return _object(schema, value, reading)
    return value, value


def _is_of(kind: str, value: Any) -> bool:
    return isinstance(value, TYPES.get(kind, ())) and (kind == "boolean" or not isinstance(value, bool))


def _any_of(schemas: list[Schema], value: Any, reading: _Reading) -> tuple[Any, Any]:
    for each in schemas:
        try:
            return _read(each, value, reading)
        except NotPlainError:
            continue
    raise NotPlainError("a value is of none of the forms that there are")


def _check_number(schema: Schema, value: float) -> None:
    if not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        raise NotPlainError("a number is beyond its bounds")
    if value <= schema.get("exclusiveMinimum", value - 1) or value >= schema.get("exclusiveMaximum", value + 1):
        raise NotPlainError("a number is beyond its bounds")


def _check_text(schema: Schema, value: str) -> None:
    if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
        raise NotPlainError("a text is too short or too long")
    # The end of a text is not the same place for all languages of patterns.
    if "pattern" in schema and ("\n" in value or not re.search(schema["pattern"], value)):
        raise NotPlainError("a text is not as it has to be")


def _list(schema: Schema, value: list[Any], reading: _Reading) -> tuple[Any, Any]:
    if "items" not in schema or not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        raise NotPlainError("a list is too short or too long")
    both = [_read(schema["items"], each, reading) for each in value]
    return [json for json, _ in both], tuple(found for _, found in both)


def _object(schema: Schema, value: dict[str, Any], reading: _Reading) -> tuple[Any, Any]:
    if "properties" in schema:
        return _fields(schema, value, reading)
    if not schema.get("minProperties", 0) <= len(value) <= schema.get("maxProperties", len(value)):
        raise NotPlainError("an object has too few or too many fields")
    names: Schema = schema.get("propertyNames", {})
    both = {}
    for name, each in value.items():
        _check_text(names, name)
        both[name] = _read(_of_name(schema, name), each, reading)
    return {name: json for name, (json, _) in both.items()}, {name: found for name, (_, found) in both.items()}


def _of_name(schema: Schema, name: str) -> Schema:
    """The schema of the values of an object whose names are free."""
    for pattern, found in schema.get("patternProperties", {}).items():
        if "\n" not in name and re.search(pattern, name):
            return found  # type: ignore[no-any-return]
    found = schema.get("additionalProperties")
    if not isinstance(found, dict):
        raise NotPlainError("an object has a name that is not known here")
    return found


def _fields(schema: Schema, value: dict[str, Any], reading: _Reading) -> tuple[Any, Any]:
    properties, title = schema["properties"], schema.get("title", "")
    left_out = LEFT_OUT.get(title, frozenset())
    json, values = {}, {}
    if reading.refuses_unknown and value.keys() - properties.keys():
        raise NotPlainError(f"{title} has an unknown field")
    # Else those of a newer writer are passed over, as by a reader's model.
    known = list(properties) if reading.in_order else [*(name for name in value if name in properties), *(properties.keys() - value.keys())]
    for name in known:
        if name not in value and "default" not in properties[name]:
            raise NotPlainError(f"{title} has no {name}")
        default = properties[name].get("default")
        json[name], values[name] = _read(properties[name], value.get(name, default), reading)
        if name in left_out and json[name] == default:
            del json[name]
    if schema.get("title") == "DatasetVersion":
        from trainhouse.events.model.version_names import VersionName

        values["name"] = VersionName(values["dataset"], sha256=values["sha256"])  # as the model's property
    return json, Fields(json, values)

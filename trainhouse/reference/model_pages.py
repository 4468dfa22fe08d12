"""Pages of models: each field with its type, bounds, default and meaning."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from trainhouse.events.model.policy import SchedulingPolicy
from trainhouse.events.model.spec import JobSpec
from trainhouse.reference.markdown import prose, table

Schema = Mapping[str, Any]
HEAD = ("field", "type", "default", "meaning")
_BOUNDS = (("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"), ("exclusiveMaximum", "<"))
_LENGTHS = {"Length": "characters", "Items": "items", "Properties": "entries"}


def job_spec() -> str:
    """The spec of a job."""
    return page("Job spec", "What `trainhouse submit spec.yaml` and the event `trainhouse.job.submitted.v1` take.", JobSpec)


def policy() -> str:
    """The policy of a pool."""
    return page("Policy", "The rules of a pool, as `trainhouse policy show POOL` prints and `policy apply` takes them.", SchedulingPolicy)


def page(title: str, introduction: str, model: type[BaseModel]) -> str:
    """A page about one model and all that it consists of."""
    schema = model.model_json_schema()
    return "\n".join([f"# {title}\n", introduction + "\n", described(schema), *definitions(schema.get("$defs", {}), "##")])


def definitions(parts: Mapping[str, Schema], level: str) -> Iterator[str]:
    """A section for each part, in the order of names."""
    for name in sorted(parts):
        yield f"{level} {name}\n\n{described(parts[name])}"


def described(schema: Schema) -> str:
    """The docstring of a model and its fields, or the values of an enumeration."""
    lines = [prose(schema.get("description")) + "\n"] if schema.get("description") else []
    if values := schema.get("enum"):
        return "\n".join([*lines, "One of " + ", ".join(f"`{v}`" for v in values) + ".\n"])
    required = set(schema.get("required", ()))
    rows = [
        (f"`{name}`", type_of(field), _default(name in required, field), prose(field.get("description")))
        for name, field in schema.get("properties", {}).items()
    ]
    return "\n".join([*lines, table(HEAD, rows) if rows else "It has no fields.\n"])


def type_of(field: Schema) -> str:
    """The type of a field with its bounds, with links to the parts of the page."""
    if reference := field.get("$ref"):
        name = reference.rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if options := field.get("anyOf") or field.get("oneOf") or field.get("allOf"):
        return " or ".join(type_of(option) for option in options)
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return ", ".join(f"`{v}`" for v in field["enum"])
    return _plain(field)


def _plain(field: Schema) -> str:
    kind = str(field.get("type", "any"))
    if kind == "array":
        items = field.get("items") or {}
        kind = "list of " + type_of(items) if items else "list"
    elif kind == "object":
        values = field.get("additionalProperties")
        kind = "map to " + type_of(values) if isinstance(values, dict) else "map"
    bounds = [f"{sign} {field[name]}" for name, sign in _BOUNDS if name in field]
    bounds += [f"≥ {field['min' + name]} {unit}" for name, unit in _LENGTHS.items() if field.get("min" + name)]
    bounds += [f"≤ {field['max' + name]} {unit}" for name, unit in _LENGTHS.items() if field.get("max" + name)]
    return f"{kind} ({', '.join(bounds)})" if bounds else kind


def _default(required: bool, field: Schema) -> str:
    if required:
        return "required"
    value = field.get("default")
    if value is None:
        return ""
    return "see there" if isinstance(value, dict) and value else f"`{json.dumps(value, ensure_ascii=False)}`"

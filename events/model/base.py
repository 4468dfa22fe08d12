"""The base of every event, and the registry from type string to model.

Holds: a model is frozen; a writer that names an unknown field fails; a reader ignores unknown fields (see codec).
Never: derives a type string from a Python class path.
"""

import re
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from pydantic_core import CoreSchema

from trainhouse.events.model import late_models
from trainhouse.events.model.common_fields import COMMON_FIELDS
from trainhouse.events.model.errors import UnknownEventType

_TYPE = re.compile(r"^trainhouse\.[a-z]+(-[a-z]+)*\.[a-z]+(-[a-z]+)*\.v([1-9][0-9]*)$")
_registry: dict[str, type["Event"]] = {}


class Model(BaseModel):
    """A frozen part of an event. Unknown fields are refused; `decode` lets a lenient reader skip them."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings", allow_inf_nan=True)

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        schema = handler(core_schema)
        for name, field in handler.resolve_ref_schema(schema).get("properties", {}).items():
            if name in COMMON_FIELDS:
                field.setdefault("description", COMMON_FIELDS[name])
        return schema


class Event(Model):
    """One event type in one version. Subclasses give `type=`, e.g. `class JobSubmitted(Event, type="trainhouse.job.submitted.v1")`.

    `public_input` marks types that outsiders write: their unknown fields are refused even when reading, so that a typo is told.
    `unshown`: fields (as pydantic's `exclude`) that are left out wherever the event is shown, such as in SQL.
    """

    event_type: ClassVar[str] = ""
    public_input: ClassVar[bool] = False
    unshown: ClassVar[Any] = None

    def __init_subclass__(cls, *, type: str = "", public_input: bool = False, **more: Any) -> None:
        super().__init_subclass__(**more)

    @classmethod
    def __pydantic_init_subclass__(cls, *, type: str = "", public_input: bool = False, **_: Any) -> None:
        if not type:
            return
        if not _TYPE.match(type):
            raise TypeError(f"{cls.__name__}: {type!r} is no event type; write trainhouse.<thing>.<what-happened>.v<N>")
        if type in _registry and _registry[type].__qualname__ != cls.__qualname__:
            raise TypeError(f"{cls.__name__}: the type {type!r} belongs to {_registry[type].__name__} already")
        cls.event_type = type
        cls.public_input = public_input
        _registry[type] = cls

    def subject(self) -> str:
        """Subject of the event (a job, a node …): the first id that it carries."""
        for name in ("job_id", "node_id", "pool", "request_id"):
            value = getattr(self, name, None)
            if value is not None:
                return str(value)
        return ""


def event_class(type_string: str) -> type[Event]:
    """The model of a type string. Raises UnknownEventType with the known versions of it, if any."""
    found = _registry.get(type_string)
    if found is None:
        late_models.load()
        found = _registry.get(type_string)
    if found is not None:
        return found
    stem = type_string.rpartition(".v")[0]
    versions = sorted(t for t in _registry if stem and t.rpartition(".v")[0] == stem)
    if versions:
        raise UnknownEventType(f"type {type_string!r}: this version is not known here; known: {', '.join(versions)}")
    raise UnknownEventType(f"type {type_string!r} is not an event type of Trainhouse; `trainhouse schemas` lists them")


def registered(type_string: str) -> type[Event] | None:
    """The model of a type string, where a module that is imported already has it."""
    return _registry.get(type_string)


def event_classes() -> dict[str, type[Event]]:
    """All registered types, sorted by type string."""
    late_models.load()
    return dict(sorted(_registry.items()))

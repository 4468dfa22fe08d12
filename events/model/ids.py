"""Typed ids: a JobId is never mistaken for a NodeId, by the reader, the type checker or the wire.

Holds: every id is a non-empty printable name of at most 128 characters that is safe in a path, a Kafka key and a URL.
"""

import re
from typing import Any, ClassVar, Final, Self

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from trainhouse.events.model.bounds import MOST_SMALL

TRAINHOUSE: Final = "trainhouse"
"""User of what no person asked for."""
_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$")


class Name(str):
    """A string that is an id of one kind; `Name.parse(text)` raises ValueError with what is allowed."""

    __slots__ = ()
    pattern: ClassVar[re.Pattern[str]] = _NAME
    most_chars: ClassVar[int] = 128

    @classmethod
    def parse(cls, text: str) -> Self:
        if not cls.pattern.fullmatch(text):
            raise ValueError(
                f"{text[:140]!r} is no valid id: use 1 to 128 letters, digits, '.', '_', ':' or '-', starting with a letter or digit"
            )
        return cls(text)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(cls.parse, core_schema.str_schema())

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"type": "string", "pattern": cls.pattern.pattern, "maxLength": cls.most_chars}


class EventId(Name):
    """Names one event for ever; a repeated one is the same event. Outsiders may use any text of up to 512 characters."""

    __slots__ = ()
    pattern = re.compile(r"^[\x20-\x7e]{1,512}$")
    most_chars = 512

    @classmethod
    def parse(cls, text: str) -> Self:
        """Also an id that ends with a newline: journals hold such from before `decode` refused them."""
        return cls(text) if cls.pattern.match(text) else super().parse(text)


class JobId(Name):
    """Names one job for ever, in one pool."""

    __slots__ = ()


class NodeId(Name):
    """Names one machine of the fleet."""

    __slots__ = ()


class PoolName(Name):
    """Names one pool of nodes."""

    __slots__ = ()


class DeviceId(Name):
    """Names one accelerator (its UUID) or one cpu slot of a node."""

    __slots__ = ()


class AttemptNumber(int):
    """Number of a job's attempt: 0, 1, 2 …"""

    __slots__ = ()

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(cls, core_schema.int_schema(ge=0, le=MOST_SMALL))


class Epoch(AttemptNumber):
    """The fence of an attempt: grows with every attempt of a job and never shrinks. 0: the job had none yet."""

    __slots__ = ()

    @property
    def attempt(self) -> AttemptNumber:
        """The number of the attempt that it is the fence of."""
        return AttemptNumber(self - 1)

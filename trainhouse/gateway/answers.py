"""Answers as JSON, made by orjson, and the form of a listing.

Holds: a listing is `{"items": [...], "next_cursor": ...}`; numbers that are none (NaN) are null.
"""

from typing import Any, Generic, TypeVar

import orjson
from pydantic import BaseModel
from starlette.responses import Response

T = TypeVar("T")


class Json(Response):
    """One JSON document."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return orjson.dumps(content, option=orjson.OPT_NON_STR_KEYS)


class Listing(BaseModel, Generic[T]):
    """One page of a listing; `next_cursor` asks for the next one, null: this was the last."""

    items: list[T]
    next_cursor: str | None = None

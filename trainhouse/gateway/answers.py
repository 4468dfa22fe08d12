"""Answers as JSON, made by orjson, the form of a listing, and objects of the store.

Holds: a listing is `{"items": [...], "next_cursor": ...}`; numbers that are none (NaN) are null.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import orjson
from pydantic import BaseModel
from starlette.responses import Response

if TYPE_CHECKING:
    from trainhouse.checkpointing.stores.object_store import ObjectStore

T = TypeVar("T")
PIECE_BYTES = 4 * 1024 * 1024


class Json(Response):
    """One JSON document."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return orjson.dumps(content, option=orjson.OPT_NON_STR_KEYS)


class Listing(BaseModel, Generic[T]):
    """One page of a listing; `next_cursor` asks for the next one, null: this was the last."""

    items: list[T]
    next_cursor: str | None = None


def stored_bytes(objects: "ObjectStore", key: str, size_bytes: int) -> Iterator[bytes]:
    """Yields the bytes of an object, a few MiB at a time. Blocks on the object store."""
    for start in range(0, size_bytes, PIECE_BYTES):
        yield objects.get_range(key, start, min(PIECE_BYTES, size_bytes - start))

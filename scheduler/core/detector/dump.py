"""The detector's state as bytes.

Holds: load(dump(s)) judges as s does, except that it has not ticked yet: whoever loads it has not listened since. Equal states have equal
bytes.
"""

from functools import cache
from typing import Final

import orjson
from pydantic import TypeAdapter

from trainhouse.scheduler.core.detector.state import DetectorState
from trainhouse.scheduler.core.snapshot import parse

FORMAT: Final = 2


def dump(state: DetectorState) -> bytes:
    """Canonical JSON, without the time of the last tick."""
    plain = _adapter().dump_python(state, mode="json") | {"ticked_at_ms": None}
    return orjson.dumps({"format": FORMAT, "state": plain}, option=orjson.OPT_SORT_KEYS)


def load(data: bytes) -> DetectorState:
    """The state back; raises BrokenInvariant when the bytes are of another format."""
    return _adapter().validate_python(parse(data, FORMAT)["state"])


@cache
def _adapter() -> TypeAdapter[DetectorState]:
    return TypeAdapter(DetectorState)

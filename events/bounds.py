"""How large a duration, a size or a count may be, and how to read what was stored before a bound was set.

Holds: a bound refuses what comes in from outside; what a journal, a snapshot or another part of the platform holds already is read with the
bound in its place, alike for every reader.
Never: changes a value that is within its bound, or one that is no number.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeVar

from pydantic import BaseModel, ValidationError

from trainhouse.events.errors import InvalidEvent

M = TypeVar("M", bound=BaseModel)
# A hundred years.
MOST_DURATION_S: Final = 3_155_760_000
MOST_BYTES: Final = 2**60
MOST_COUNT: Final = 2**53
# The times that RFC 3339 can write: from year 1 to the last millisecond of year 9999.
EARLIEST_MS: Final = -62_135_596_800_000
LATEST_MS: Final = 253_402_300_799_999


def read_stored(model: type[M], data: Any, extra: Literal["allow", "ignore", "forbid"] | None = None) -> M:
    """Validates what was written by an earlier version: a number beyond its bound counts as the bound. Raises ValidationError."""
    try:
        return model.model_validate(data, extra=extra)
    except ValidationError as error:
        bounded = data
        for problem in error.errors(include_url=False):
            most = problem.get("ctx", {}).get("le")
            if problem["type"] != "less_than_equal" or most is None or not problem["input"] > most:
                raise
            bounded = _replaced(bounded, problem["loc"], most)
        return model.model_validate(bounded, extra=extra)


def time_within(time_ms: int) -> int:
    """The same time. Raises InvalidEvent for one that could not be written again."""
    if not EARLIEST_MS <= time_ms <= LATEST_MS:
        raise InvalidEvent("time: it is beyond the years 1 to 9999 in UTC; send the time of the event, as RFC 3339 text")
    return time_ms


def _replaced(data: Any, path: Sequence[str | int], value: Any) -> Any:
    """A copy of `data` with another value at `path`, of which steps that are no key (the tag of a union) are passed over."""
    if not path:
        return value
    step, rest = path[0], path[1:]
    if isinstance(data, BaseModel):
        data = {name: getattr(data, name) for name in data.model_fields_set}
    if isinstance(data, Mapping):
        return {**data, step: _replaced(data[step], rest, value)} if step in data else _replaced(data, rest, value)
    if isinstance(data, list | tuple):
        if isinstance(step, int) and step < len(data):
            return [*data[:step], _replaced(data[step], rest, value), *data[step + 1 :]]
        return _replaced(data, rest, value)
    return data

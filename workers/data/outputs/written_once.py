"""Records that are written once: JSON under a key where there is none, and under the next one where that is torn.

Holds: nothing is replaced. Of the records under `KEY`, `KEY.2`, `KEY.3` … the first whole one counts, for all and for ever. A torn one, as
a killed process leaves it in some stores, is passed over and named in a warning.
"""

import re
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

import structlog

from trainhouse.checkpointing.stores.object_store import ObjectStore, get_or_none
from trainhouse.workers.data.errors import DamagedShardError

T = TypeVar("T")
MOST_TURNS: Final = 9
"""Of one record, as the rule of leases has it."""
_TURN: Final = re.compile(r"(?<=\.json)\.[2-9]\Z")
log = structlog.get_logger(__name__)


def put_record(objects: ObjectStore, key: str, content: bytes, parse: Callable[[bytes], object]) -> None:
    """Stores a record; one that is there and whole stays. `parse`: raises ValueError for a torn one. Blocks. Raises DamagedShardError where
    all of its keys are taken by torn ones."""
    for each in _keys(key):
        if objects.put_if_absent(each, content) or _parsed(objects, each, objects.get(each), parse) is not None:
            return
    raise DamagedShardError(f"{objects.uri(key)} and those beside it are torn; remove them")


def read_record(objects: ObjectStore, key: str, parse: Callable[[bytes], T]) -> T | None:
    """The record that counts; None where no whole one is there. Blocks."""
    for each in _keys(key):
        content = get_or_none(objects, each)
        if content is None:
            return None
        found = _parsed(objects, each, content, parse)
        if found is not None:
            return found
    return None


def without_turn(key: str) -> str:
    """The first key of the record that has this one."""
    return _TURN.sub("", key)


def warn_of_torn(objects: ObjectStore, key: str, why: str) -> None:
    """Names a record that is passed over."""
    log.warning("a record is torn, as a killed process leaves it, and counts as not there", record=objects.uri(key), error=why)


def _keys(key: str) -> Iterator[str]:
    yield key
    yield from (f"{key}.{turn}" for turn in range(2, MOST_TURNS + 1))


def _parsed(objects: ObjectStore, key: str, content: bytes, parse: Callable[[bytes], T]) -> T | None:
    try:
        return parse(content)
    except ValueError as error:
        warn_of_torn(objects, key, str(error).partition("\n")[0])
        return None

"""Steps between the formats of a machine's snapshots: each leads from one format to the next, on the parsed JSON.

Holds: pure; a step gives what this program's fold makes of the same records, so that a state that was lifted decides as one that was folded
from the journal's beginning. A step back undoes its step: until an update is finished, the version before reads what this one writes.
Never: changes the mapping that it is given.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from trainhouse.scheduler.core.errors import BrokenInvariant

Step = Callable[[dict[str, Any]], dict[str, Any]]


def _without_segments(raw: dict[str, Any]) -> dict[str, Any]:
    # Nothing is settled before the level that has segments.
    if raw["settled"]:
        raise BrokenInvariant("the directory has segments of settled jobs, which no program of that level reads")
    return {k: v for k, v in raw.items() if k != "settled"}


# From format N to N + 1, by N; and back from N + 1 to N, by N. Steps need not set "format".
SCHEDULE_STEPS: Final[Mapping[int, Step]] = {}
SCHEDULE_STEPS_BACK: Final[Mapping[int, Step]] = {}
DIRECTORY_STEPS: Final[Mapping[int, Step]] = {1: lambda raw: raw | {"settled": []}}
DIRECTORY_STEPS_BACK: Final[Mapping[int, Step]] = {1: _without_segments}


@dataclass(frozen=True, slots=True)
class Formats:
    """The snapshot formats of one machine. `written_since`: by format, the fold_version from which it is written.

    Older snapshots than those of the least fold_version are refolded: what they lack does not follow from them.
    """

    written_since: Mapping[int, int]
    steps: Mapping[int, Step] = field(default_factory=dict)
    steps_back: Mapping[int, Step] = field(default_factory=dict)

    @property
    def newest(self) -> int:
        """The format that this program's states have."""
        return max(self.written_since)

    @property
    def oldest_fold(self) -> int:
        """The least fold_version whose snapshots can be lifted."""
        return min(self.written_since.values())

    def of_level(self, level: int) -> int:
        """The format that a program of that fold_version writes. Raises BrokenInvariant where none is known."""
        known = [written for written, since in self.written_since.items() if since <= level]
        if not known:
            raise BrokenInvariant(f"no snapshot format of fold_version {level} is known; the oldest is of {self.oldest_fold}")
        return max(known)

    def lifted(self, raw: dict[str, Any]) -> dict[str, Any]:
        """A parsed snapshot in the newest format. Raises BrokenInvariant where no step leads there."""
        at = raw.get("format")
        while at != self.newest:
            if type(at) is not int or at not in self.steps:
                raise BrokenInvariant(f"the snapshot has format {at!r}, and no step leads from it to {self.newest}; remove it")
            raw = self.steps[at](dict(raw)) | {"format": at + 1}
            at += 1
        return raw

    def lowered(self, data: bytes, level: int) -> bytes:
        """A snapshot's bytes as a program of that level writes them. Raises BrokenInvariant where no step leads back."""
        wanted = self.of_level(level)
        if wanted == self.newest:
            return data
        raw = parse(data)
        for at in range(self.newest - 1, wanted - 1, -1):
            if at not in self.steps_back:
                raise BrokenInvariant(f"this program writes no snapshots of format {wanted}; finish the update with the version before it")
            raw = self.steps_back[at](dict(raw)) | {"format": at}
        return orjson.dumps(raw, option=orjson.OPT_SORT_KEYS)


SCHEDULE_FORMATS: Final = Formats({2: 7}, SCHEDULE_STEPS, SCHEDULE_STEPS_BACK)
REGISTRY_FORMATS: Final = Formats({1: 1})
TUNING_FORMATS: Final = Formats({1: 1})
DIRECTORY_FORMATS: Final = Formats({1: 3, 2: 4}, DIRECTORY_STEPS, DIRECTORY_STEPS_BACK)


def parse(data: bytes) -> dict[str, Any]:
    """The JSON object of a snapshot. Raises BrokenInvariant."""
    try:
        raw = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise BrokenInvariant(f"the snapshot is no JSON: {error}; remove it, and the journal is read from its beginning") from error
    if not isinstance(raw, dict):
        raise BrokenInvariant("the snapshot is no JSON object; remove it, and the journal is read from its beginning")
    return raw

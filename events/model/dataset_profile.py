"""Distributions of fields' values in the splits of a version, an object beside its manifest: what drift between versions is computed from.

Holds: sizes are bounded, whatever was published; a sketch does not depend on the order of values, and is equal on every machine: bins are
runs of floating-point numbers in their binary form, as fine as so many bins allow.
"""

import builtins
import math
import struct
import sys
from dataclasses import dataclass
from typing import Annotated, Final

import orjson
from pydantic import Field, StringConstraints, model_validator

from trainhouse.events.model.absence import is_absent, is_no
from trainhouse.events.model.base import Model
from trainhouse.events.model.bounds import Count, Int64
from trainhouse.events.model.dataset import MOST_SPLITS, Manifest
from trainhouse.events.model.dataset_names import FieldName, SplitName

MOST_BINS: Final = 512
MOST_TOP_VALUES: Final = 64
MOST_DISTINCT: Final = 1000
"""Distinct values that are counted; one more stands for any larger number."""
MOST_VALUE_CHARS: Final = 64
MOST_PROFILES: Final = 256
"""Fields of a split that have one."""
MOST_PROFILES_BYTES: Final = 32 << 20
"""Of all profiles of a version."""
_MAGNITUDE: Final = (1 << 63) - 1
_SIGN: Final = 1 << 63
_AS_FLOAT: Final = struct.Struct("<d")
_AS_SIGNED: Final = struct.Struct("<q")
_AS_UNSIGNED: Final = struct.Struct("<Q")

Number = Annotated[float, Field(ge=-sys.float_info.max, le=sys.float_info.max, allow_inf_nan=False)]
ValueText = Annotated[str, StringConstraints(max_length=MOST_VALUE_CHARS)]


def ordered_key(number: float) -> int:
    """The binary form of a finite number as a whole number of 64 bits, in the same order; both zeros are 0."""
    bits: int = _AS_SIGNED.unpack(_AS_FLOAT.pack(number))[0]
    return bits if bits >= 0 else -(bits & _MAGNITUDE)


def number_of_key(key: int) -> float:
    """The number with this key."""
    number: float = _AS_FLOAT.unpack(_AS_UNSIGNED.pack(key if key >= 0 else -key | _SIGN))[0]
    return number


class NumberSketch(Model):
    """Histogram of numbers. Bin `b` holds those whose key, shifted right by `shift`, is `b`; with shift 0 each bin is one number."""

    least: Number = Field(description="smallest number")
    most: Number = Field(description="largest number")
    mean: Number = Field(description="mean, rounded once")
    shift: int = Field(ge=0, le=63, description="low bits of a number's binary form that bins leave out: the least with which all bins fit")
    bins: tuple[Int64, ...] = Field(min_length=1, max_length=MOST_BINS, description="bins that have numbers, ascending")
    counts: tuple[Count, ...] = Field(min_length=1, max_length=MOST_BINS, description="numbers in each of them")

    @model_validator(mode="after")
    def _consistent(self) -> "NumberSketch":
        if len(self.bins) != len(self.counts) or any(a >= b for a, b in zip(self.bins, self.bins[1:], strict=False)):
            raise ValueError("bins ascend, and have one count each; the profile was changed, publish again")
        if not all(-_SIGN >> self.shift <= each <= _MAGNITUDE >> self.shift for each in self.bins):
            raise ValueError("a bin lies beyond all numbers; the profile was changed, publish again")
        return self

    @property
    def count(self) -> int:
        """Numbers in all bins."""
        return sum(self.counts)

    def exact_counts(self) -> dict[float, int] | None:
        """Count by number, where each bin is one number; else None."""
        if self.shift:
            return None
        return {number_of_key(key): count for key, count in zip(self.bins, self.counts, strict=True)}

    @classmethod
    def merged(cls, parts: "list[NumberSketch]") -> "NumberSketch":
        """The sketch of the numbers of all parts, of which there is one at least. One without numbers adds nothing."""
        parts = [part for part in parts if part.count] or parts[:1]
        counts = BinCounts()
        for part in parts:
            counts.add(part.shift, dict(zip(part.bins, part.counts, strict=True)))
        bins = sorted(counts.bins)
        total = sum(part.count for part in parts)
        return cls(
            least=min(part.least for part in parts),
            most=max(part.most for part in parts),
            mean=parts[0].mean if len(parts) == 1 else math.fsum(part.mean * (part.count / total) for part in parts),
            shift=counts.shift,
            bins=tuple(bins),
            counts=tuple(counts.bins[each] for each in bins),
        )


class BinCounts:
    """Counts by bin, with the smallest shift at which they are `MOST_BINS` at most."""

    def __init__(self) -> None:
        self.shift = 0
        self.bins: dict[int, int] = {}

    def add(self, shift: int, bins: dict[int, int]) -> None:
        """Adds counts of bins of this shift."""
        self._coarsen(shift)
        for each, count in bins.items():
            self.count(each >> (self.shift - shift), count)

    def count(self, bin_: int, count: int = 1) -> None:
        """Counts `count` more in a bin of the present shift."""
        self.bins[bin_] = self.bins.get(bin_, 0) + count
        if len(self.bins) > MOST_BINS:
            before = self.shift
            while len({each >> (self.shift - before) for each in self.bins}) > MOST_BINS:
                self.shift += 1
            self._shift_bins(self.shift - before)

    def _coarsen(self, shift: int) -> None:
        if shift > self.shift:
            by, self.shift = shift - self.shift, shift
            self._shift_bins(by)

    def _shift_bins(self, by: int) -> None:
        before, self.bins = self.bins, {}
        for each, count in before.items():
            self.bins[each >> by] = self.bins.get(each >> by, 0) + count


class ValueCounts(Model):
    """Counts of texts and truth values: all of them where they are few, else the most frequent."""

    distinct: int = Field(ge=1, le=MOST_DISTINCT + 1, description=f"different values; {MOST_DISTINCT + 1}: more than {MOST_DISTINCT}")
    top: dict[ValueText, Count] = Field(
        default_factory=dict,
        max_length=MOST_TOP_VALUES,
        description=f"counts of the most frequent values; none where more than {MOST_DISTINCT} are different",
    )

    @property
    def complete(self) -> bool:
        """Whether every value is in `top`."""
        return self.distinct == len(self.top)


class FieldProfile(Model):
    """Distribution of one field, or of one column of the `json` of samples, over a split."""

    samples: Count = Field(description="samples that have the field, and no null in it")
    numbers: NumberSketch | None = Field(None, exclude_if=is_absent, description="its numbers")
    lengths: NumberSketch | None = Field(
        None, exclude_if=is_absent, description="lengths: of a member, bytes; of a column, characters of a text or entries of a list"
    )
    values: ValueCounts | None = Field(None, exclude_if=is_absent, description="its texts and truth values")

    @model_validator(mode="after")
    def _consistent(self) -> "FieldProfile":
        counted = [sketch.count for sketch in (self.numbers, self.lengths) if sketch]
        if max([*counted, sum(self.values.top.values()) if self.values else 0]) > self.samples:
            raise ValueError("more values than samples are counted; the profile was changed, publish again")
        return self


SplitProfiles = Annotated[dict[FieldName, FieldProfile], Field(max_length=MOST_PROFILES)]


class VersionProfiles(Model):
    """Distributions of a version, by split and field."""

    splits: dict[SplitName, SplitProfiles] = Field(max_length=MOST_SPLITS, description="profiles by split and field")
    cut: bool = Field(False, exclude_if=is_no, description="whether the last fields by name were left out, so that the rest fit")

    def canonical_json(self) -> builtins.bytes:
        """The bytes that are stored: sorted JSON."""
        return orjson.dumps(self.model_dump(mode="json"), option=orjson.OPT_SORT_KEYS)

    def bounded(self, most_bytes: int = MOST_PROFILES_BYTES) -> "VersionProfiles":
        """The profiles of as many fields, the first ones by name, as have so few bytes."""
        left, names = self, sorted({name for split in self.splits.values() for name in split})
        while len(left.canonical_json()) > most_bytes:
            names = names[: len(names) // 2]
            kept = {split: {name: fields[name] for name in names if name in fields} for split, fields in self.splits.items()}
            left = VersionProfiles(splits=kept, cut=True)
        return left


@dataclass(frozen=True)
class ProfiledVersion:
    """A manifest with the distributions of its version; None in versions of before there were any."""

    manifest: Manifest
    profiles: VersionProfiles | None

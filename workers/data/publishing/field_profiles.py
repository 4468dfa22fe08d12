"""Profiles of fields as samples pass by: sketches of numbers and lengths, and counts of values.

Holds: a profile does not depend on the order of samples; memory is bounded by the numbers of fields, bins and values, which are bounded.
"""

import hashlib
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any, Final

from pydantic import Field, StringConstraints

from trainhouse.events.model.base import Model
from trainhouse.events.model.bounds import Count
from trainhouse.events.model.dataset_profile import (
    MOST_BINS,
    MOST_DISTINCT,
    MOST_PROFILES,
    MOST_TOP_VALUES,
    MOST_VALUE_CHARS,
    BinCounts,
    FieldProfile,
    Number,
    NumberSketch,
    ValueCounts,
    ValueText,
    ordered_key,
)
from trainhouse.workers.data.publishing.sample_fields import JSON
from trainhouse.workers.data.publishing.sample_schema import is_text

# As CSV has numbers. Few digits: no text in it is beyond all floating-point numbers.
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}(?:\.[0-9]{1,18})?(?:[eE][+-]?[0-9]{1,2})?")
_HASH_CHARS: Final = 16
# Whole units of the smallest number that there is, so that sums are exact, and equal in any order.
_UNIT_BITS: Final = 1074

# Of a number's 64 bits, and no longer: a rank writes them, and shifts of huge integers take whoever reads them seconds.
Bin = Annotated[int, Field(strict=True, ge=-(2**63), lt=2**63)]


class KeptNumbers(Model):
    """State of a sketch of numbers, of which there is one at least."""

    least: Number = Field(description="smallest number")
    most: Number = Field(description="largest number")
    total: Annotated[str, StringConstraints(max_length=1024, pattern=r"^-?[0-9a-f]+$")] = Field(
        description="exact sum in units of 2^-1074, as a hexadecimal number"
    )
    shift: int = Field(ge=0, le=63, description="as of a version's sketch")
    bins: tuple[Bin, ...] = Field(min_length=1, max_length=MOST_BINS, description="bins that have numbers, ascending")
    counts: tuple[Count, ...] = Field(min_length=1, max_length=MOST_BINS, description="numbers in each of them")


class KeptProfile(Model):
    """State of the profile of one field."""

    samples: Count = Field(description="samples that have it")
    numbers: KeptNumbers | None = Field(None, description="its numbers")
    lengths: KeptNumbers | None = Field(None, description="its lengths")
    values: dict[ValueText, Count] | None = Field(
        None, max_length=MOST_DISTINCT, description="counts of texts; null: too many are different"
    )


class NumberSketcher:
    """Sketch of finite numbers, one after the other."""

    def __init__(self) -> None:
        self._bins = BinCounts()
        self._count = 0
        self._sum = 0
        self._least = self._most = 0.0

    def add(self, value: float) -> None:
        """Takes one number."""
        number = float(value) + 0.0  # of two zeros, the positive one
        if not self._count:
            self._least = self._most = number
        elif number < self._least:
            self._least = number
        elif number > self._most:
            self._most = number
        self._count += 1
        numerator, denominator = number.as_integer_ratio()
        self._sum += numerator << (_UNIT_BITS + 1 - denominator.bit_length())
        self._bins.count(ordered_key(number) >> self._bins.shift)

    def kept(self) -> "KeptNumbers | None":
        """All that `merge` needs of it."""
        if not self._count:
            return None
        bins = sorted(self._bins.bins)
        counts = tuple(self._bins.bins[each] for each in bins)
        return KeptNumbers(
            least=self._least, most=self._most, total=f"{self._sum:x}", shift=self._bins.shift, bins=tuple(bins), counts=counts
        )

    def merge(self, kept: "KeptNumbers | None") -> None:
        """Takes the numbers of another one. Raises ValueError."""
        if kept is None:
            return
        self._least = min(self._least, kept.least) if self._count else kept.least
        self._most = max(self._most, kept.most) if self._count else kept.most
        self._count += sum(kept.counts)
        self._sum += int(kept.total, 16)
        self._bins.add(kept.shift, dict(zip(kept.bins, kept.counts, strict=True)))

    def sketch(self) -> NumberSketch | None:
        """The sketch as a version has it; None where there was no number."""
        if not self._count:
            return None
        bins = sorted(self._bins.bins)
        return NumberSketch(
            least=self._least,
            most=self._most,
            mean=float(Fraction(self._sum, self._count << _UNIT_BITS)),
            shift=self._bins.shift,
            bins=tuple(bins),
            counts=tuple(self._bins.bins[each] for each in bins),
        )


class ValueCounter:
    """Counts of texts, until too many are different."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._too_many = False

    def add(self, text: str) -> None:
        """Takes one text."""
        if self._too_many:
            return
        text = _short(text)
        self._counts[text] = self._counts.get(text, 0) + 1
        if len(self._counts) > MOST_DISTINCT:
            self._too_many, self._counts = True, {}

    def kept(self) -> dict[str, int] | None:
        """All counts; None where too many texts are different."""
        return None if self._too_many else self._counts

    def merge(self, kept: Mapping[str, int] | None) -> None:
        """Takes the texts of another one."""
        if kept is None or self._too_many:
            self._too_many, self._counts = True, {}
            return
        for text, count in kept.items():
            self._counts[text] = self._counts.get(text, 0) + count
        if len(self._counts) > MOST_DISTINCT:
            self._too_many, self._counts = True, {}

    def counts(self) -> ValueCounts | None:
        """The counts as a version has them; None where there was no text."""
        if self._too_many:
            return ValueCounts(distinct=MOST_DISTINCT + 1)
        if not self._counts:
            return None
        top = sorted(self._counts.items(), key=lambda each: (-each[1], each[0]))[:MOST_TOP_VALUES]
        return ValueCounts(distinct=len(self._counts), top=dict(sorted(top)))


class _Profiler:
    """Profile of one field."""

    def __init__(self) -> None:
        self._samples = 0
        self._numbers, self._lengths, self._values = NumberSketcher(), NumberSketcher(), ValueCounter()

    def add_member(self, content: bytes, as_text: bool) -> None:
        """Takes the content of a member."""
        self._samples += 1
        self._lengths.add(len(content))
        if as_text:
            self._values.add(content.decode(errors="replace"))

    def add_value(self, value: Any) -> None:
        """Takes the value of a column, which is not null."""
        self._samples += 1
        match value:
            case bool():
                self._values.add("true" if value else "false")
            case int() | float():
                self._numbers.add(value)
            case str():
                self._lengths.add(len(value))
                self._values.add(value)
                if len(value) <= MOST_VALUE_CHARS and _NUMBER.fullmatch(value):
                    self._numbers.add(float(value))
            case list():
                self._lengths.add(len(value))

    def kept(self) -> "KeptProfile":
        return KeptProfile(samples=self._samples, numbers=self._numbers.kept(), lengths=self._lengths.kept(), values=self._values.kept())

    def merge(self, kept: "KeptProfile") -> None:
        self._samples += kept.samples
        self._numbers.merge(kept.numbers)
        self._lengths.merge(kept.lengths)
        self._values.merge(kept.values)

    def profile(self) -> FieldProfile:
        return FieldProfile(
            samples=self._samples, numbers=self._numbers.sketch(), lengths=self._lengths.sketch(), values=self._values.counts()
        )


class FieldProfiles:
    """Profiles of a split's fields and of the columns of its `json`; of more than so many, of the first ones by name."""

    def __init__(self) -> None:
        self._profilers: dict[str, _Profiler] = {}

    def add(self, fields: Mapping[str, bytes], columns: Mapping[str, Any] | None) -> None:
        """Takes one sample, whose `json` was read to `columns`."""
        for extension, content in fields.items():
            if profiler := self._of(extension):
                profiler.add_member(content, is_text(extension))
        for column, value in (columns or {}).items():
            if value is not None and (profiler := self._of(f"{JSON}.{column}")):
                profiler.add_value(value)

    def kept(self) -> "dict[str, KeptProfile]":
        """All that `merge` needs of them."""
        return {name: profiler.kept() for name, profiler in sorted(self._profilers.items())}

    def merge(self, kept: "Mapping[str, KeptProfile]") -> None:
        """Takes the samples of others: the result is that of all samples, one after the other. Raises ValueError."""
        for name, profile in sorted(kept.items()):
            if profiler := self._of(name):
                profiler.merge(profile)

    def profiles(self) -> dict[str, FieldProfile]:
        """The profiles as a version has them."""
        return {name: profiler.profile() for name, profiler in sorted(self._profilers.items())}

    def _of(self, name: str) -> _Profiler | None:
        known = self._profilers.get(name)
        if known is None:
            if len(self._profilers) >= MOST_PROFILES:
                # A name that gives way has as many smaller ones for good, so that it does not come back.
                last = max(self._profilers)
                if name > last:
                    return None
                del self._profilers[last]
            known = self._profilers[name] = _Profiler()
        return known


def _short(text: str) -> str:
    """The text, or its beginning with a hash of the whole."""
    if len(text) <= MOST_VALUE_CHARS:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:_HASH_CHARS]
    return f"{text[: MOST_VALUE_CHARS - _HASH_CHARS - 1]}…{digest}"

"""Profiles of fields as samples pass by: sketches of numbers and lengths, and counts of values.

Holds: a profile does not depend on the order of samples; memory is bounded by the numbers of fields, bins and values, which are bounded.
"""

import hashlib
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

from trainhouse.events.model.dataset_profile import (
    MOST_DISTINCT,
    MOST_PROFILES,
    MOST_TOP_VALUES,
    MOST_VALUE_CHARS,
    BinCounts,
    FieldProfile,
    NumberSketch,
    ValueCounts,
    ordered_key,
)
from trainhouse.workers.data.publishing.sample_fields import JSON
from trainhouse.workers.data.publishing.sample_schema import is_text

# As CSV has numbers. Few digits: no text in it is beyond all floating-point numbers.
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}(?:\.[0-9]{1,18})?(?:[eE][+-]?[0-9]{1,2})?")
_HASH_CHARS: Final = 16
# Whole units of the smallest number that there is, so that sums are exact, and equal in any order.
_UNIT_BITS: Final = 1074


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

"""Search space of a study: one parameter each, numbers between bounds or choices, some of them only where another has a value.

Holds: a parameter is a range or a list of choices, never both; a condition names a parameter of choices that comes before it.
"""

from enum import StrEnum
from math import isfinite, log
from typing import Annotated, Final

from pydantic import Field, model_validator

from trainhouse.events.model.absence import is_absent, is_no
from trainhouse.events.model.base import Model
from trainhouse.events.model.bounds import MOST_COUNT, Int64
from trainhouse.events.model.labels import Label

MOST_PARAMETERS: Final = 256
MOST_CHOICES: Final = 1024
MOST_BOUND: Final = 1e300
ChoiceText = Annotated[str, Field(max_length=1024)]
Bound = Annotated[float, Field(ge=-MOST_BOUND, le=MOST_BOUND)]
Choice = bool | Int64 | Bound | ChoiceText | None
Value = Choice
"""Value of a parameter in one trial."""


class NumberKind(StrEnum):
    """Kind of the numbers of a range."""

    FLOAT = "float"
    INT = "int"


class Parameter(Model):
    """One parameter: the numbers from `low` to `high`, or one of `choices`."""

    low: Bound | None = Field(None, exclude_if=is_absent, description="least value of a range")
    high: Bound | None = Field(None, exclude_if=is_absent, description="greatest value of a range")
    log: bool = Field(False, exclude_if=is_no, description="whether values are drawn by their logarithm; low must be above 0")
    step: float | None = Field(
        None, gt=0, le=MOST_BOUND, exclude_if=is_absent, description="distance of values from one to the next, from low"
    )
    type: NumberKind | None = Field(
        None,
        exclude_if=is_absent,
        description="float or int; default: float; in a study's file and over HTTP, int where all numbers have no point",
    )
    choices: tuple[Choice, ...] = Field((), max_length=MOST_CHOICES, exclude_if=is_absent, description="values, of which a trial has one")
    when: dict[Label, tuple[Choice, ...]] = Field(
        default_factory=dict,
        max_length=16,
        exclude_if=lambda value: not value,
        description="parameters of choices, with the values at which this one exists; default: it always does",
    )

    @model_validator(mode="after")
    def _consistent(self) -> "Parameter":
        if self.choices:
            if self.low is not None or self.high is not None or self.log or self.step is not None or self.type is not None:
                raise ValueError("choices exclude low, high, log, step and type; keep one of both")
            return self
        if self.low is None or self.high is None:
            raise ValueError("write `low` and `high`, or `choices`")
        if self.low > self.high:
            raise ValueError(f"low = {self.low:g} is above high = {self.high:g}; exchange them")
        if self.log and self.low <= 0:
            raise ValueError(f"log needs low above 0, and it is {self.low:g}: the logarithm of 0 is no number")
        if self.log and self.step is not None and self.kind is NumberKind.FLOAT:
            raise ValueError("log and step exclude each other; leave one of them out")
        if self.kind is NumberKind.INT:
            for name, value in (("low", self.low), ("high", self.high), ("step", self.step or 1)):
                if value != int(value) or abs(value) > MOST_COUNT:
                    raise ValueError(f"{name} = {value:g} is no whole number up to 2^53, and type is int")
        return self

    @property
    def kind(self) -> NumberKind:
        """Kind of the numbers of a range."""
        return self.type or NumberKind.FLOAT

    @property
    def value_count(self) -> int | None:
        """Number of values that it can have; None where they are not to be counted."""
        if self.choices:
            return len(self.choices)
        assert self.low is not None and self.high is not None  # nosec B101  # validated
        if self.low == self.high:
            return 1
        step = self.step or (1.0 if self.kind is NumberKind.INT else None)
        count = None if step is None else (self.high - self.low) / step
        return int(count + 1e-9) + 1 if count is not None and isfinite(count) and log(count + 1) < 40 else None

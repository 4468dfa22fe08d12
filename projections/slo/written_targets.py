"""The form of objectives in a file that a person wrote, with bounds.

Holds: the fields are those of `Target`.
"""

from typing import Annotated, Any, Self

from pydantic import Field, StringConstraints, model_validator

from trainhouse.events.model.base import Model
from trainhouse.projections.slo.targets import Figure


class WrittenTarget(Model):
    """One objective as a file has it; `Target` says what its fields are."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=64)]
    title: str = Field(min_length=1, max_length=128)
    objective: float = Field(gt=0, lt=1)
    window_days: int = Field(28, ge=1, le=365)
    good_means: str
    derived: str
    figure: Figure = Figure.NONE
    figure_limit: float | None = None
    unit: str = ""
    least_events: int = Field(10, ge=1)
    sql: str

    @model_validator(mode="after")
    def _asks_of_its_span(self) -> Self:
        for place in ("{since}", "{now}"):
            if place not in self.sql:
                raise ValueError(f"{self.name}: the query does not name {place}; it must count what lies between the two")
        return self


def validated(written: object) -> dict[str, Any]:
    """The fields of an objective as it is written. Raises ValueError."""
    return WrittenTarget.model_validate(written).model_dump()

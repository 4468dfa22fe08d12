"""Data of a job that a loader leaves out, since the loss diverged over it."""

from typing import Final

from pydantic import Field, TypeAdapter

from trainhouse.events.model.base import Model
from trainhouse.events.model.bounds import Count, SmallCount
from trainhouse.events.model.ids import Epoch

MOST_SKIPPED_LOADERS: Final = 16
MOST_SKIPS: Final = 16
MOST_SKIPPED: Final = MOST_SKIPPED_LOADERS * MOST_SKIPS
MOST_REASON_CHARS: Final = 200


class SkippedData(Model):
    """Positions of one loader that steps of an attempt used, counted through the passes; later attempts leave them out."""

    loader: SmallCount = Field(description="number of the loader, in the order in which the program made them")
    epoch: Epoch = Field(description="epoch of the attempt whose loss diverged")
    first_step: Count = Field(description="number of the first of the steps")
    end_step: Count = Field(description="number after that of the last step")
    first_position: Count = Field(description="position that the first step began with")
    end_position: Count = Field(description="position after the last one of the last step")
    reason: str = Field("", max_length=MOST_REASON_CHARS, description="why they are left out")


_SEVERAL: Final = TypeAdapter(tuple[SkippedData, ...])


def dump_skipped(data: tuple[SkippedData, ...]) -> str:
    """JSON of several."""
    return _SEVERAL.dump_json(data).decode()


def load_skipped(text: str | None) -> tuple[SkippedData, ...]:
    """Reads what `dump_skipped` wrote; of nothing, none."""
    return _SEVERAL.validate_json(text) if text else ()

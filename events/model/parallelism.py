"""Parallel layout of a gang: sizes of its dimensions, and the place of each rank in them. Pure.

Holds: ranks are numbered with `pp` outermost, then `dp`, `fsdp` and `tp`, so that the ranks of a tensor-parallel group follow each other.
The ranks of one `tp` and `pp` group read the same share of the data. Only `dp` changes with the size of a gang.
Never: imports torch.
"""

from enum import StrEnum
from typing import Any, Final

from pydantic import Field, model_validator

from trainhouse.events.model.base import Model

DIMENSIONS: Final = ("pp", "dp", "fsdp", "tp")
"""Names of the dimensions of a mesh, outermost first."""


class PipelineSchedule(StrEnum):
    """Schedule of a pipeline, by the name that `torch.distributed.pipelining.schedules.get_schedule_class` takes."""

    GPIPE = "GPipe"
    ONE_F_ONE_B = "1F1B"
    INTERLEAVED = "Interleaved1F1B"


class Parallelism(Model):
    """Sizes of the dimensions over which a model is trained; their product is the gang's number of ranks."""

    dp: int = Field(
        1, ge=1, le=65536, description="replicas of the model (DDP, or the outer dimension of HSDP); an elastic gang changes it"
    )
    fsdp: int = Field(1, ge=1, le=65536, description="ranks over which parameters are sharded (`fully_shard`)")
    tp: int = Field(1, ge=1, le=65536, description="ranks of a tensor-parallel group, which follow each other (`parallelize_module`)")
    pp: int = Field(1, ge=1, le=65536, description="ranks of a pipeline, each with one or several stages (`PipelineStage`)")
    schedule: PipelineSchedule | None = Field(
        None, exclude_if=lambda value: value is None, description="schedule of the pipeline; default with pp > 1: 1F1B"
    )

    @model_validator(mode="before")
    @classmethod
    def _supported(cls, value: Any) -> Any:
        if isinstance(value, dict) and "ep" in value:
            raise ValueError(
                "parallelism.ep: expert parallelism is not supported; leave it out, and lay the ranks out by dp, fsdp, tp and pp"
            )
        return value

    @model_validator(mode="after")
    def _scheduled(self) -> "Parallelism":
        if self.schedule is not None and self.pp == 1:
            raise ValueError(f"parallelism.schedule = {self.schedule} is for a pipeline, and pp is 1; leave it out, or give pp")
        return self

    @property
    def ranks(self) -> int:
        """Ranks of the whole gang."""
        return self.dp * self.replica_ranks

    @property
    def replica_ranks(self) -> int:
        """Ranks of one replica of the model: the step in which an elastic gang grows and shrinks."""
        return self.fsdp * self.tp * self.pp

    @property
    def data_size(self) -> int:
        """Shares into which the data is split."""
        return self.dp * self.fsdp

    def data_rank(self, rank: int) -> int:
        """Share of the data that a rank reads."""
        return rank // self.tp % self.data_size

    @property
    def data_shares(self) -> tuple[int, ...]:
        """By rank, the share of the data that it reads; empty where each rank reads its own."""
        return () if self.data_size == self.ranks else tuple(map(self.data_rank, range(self.ranks)))

    def place_of(self, rank: int) -> dict[str, int]:
        """Coordinates of a rank, by dimension."""
        left, place = rank, dict.fromkeys(DIMENSIONS, 0)
        for name in reversed(DIMENSIONS):
            left, place[name] = divmod(left, getattr(self, name))
        return place

    def at(self, ranks: int) -> "Parallelism":
        """The layout on another number of ranks: with another `dp`. Raises ValueError where that is no whole number."""
        dp, left = divmod(ranks, self.replica_ranks)
        if left or not dp:
            raise ValueError(f"{ranks} ranks are no multiple of {self.replica_text}, the ranks of one replica of the model")
        return self.model_copy(update={"dp": dp})

    @property
    def sizes_text(self) -> str:
        """Sizes in words: dp × fsdp × tp × pp = 2 × 1 × 2 × 1 = 4."""
        return f"dp × fsdp × tp × pp = {self.dp} × {self.fsdp} × {self.tp} × {self.pp} = {self.ranks}"

    @property
    def replica_text(self) -> str:
        """Ranks of a replica in words: fsdp × tp × pp = 4."""
        return f"fsdp × tp × pp = {self.replica_ranks}"

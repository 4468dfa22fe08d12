"""Computation of a training program's steps: precision, accumulation of gradients, clipping, memory for time, determinism. Pure.

Holds: `global_batch` is what all data ranks work through in one step, whatever their number: the number of micro-batches follows from it.
Never: imports torch.
"""

from enum import StrEnum

from pydantic import Field, model_validator

from trainhouse.events.model.absence import is_absent, is_no
from trainhouse.events.model.base import Model
from trainhouse.events.model.bounds import MOST_COUNT


class Precision(StrEnum):
    """Type in which matrices are multiplied; parameters and the optimizer's state stay as the program made them."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"


class Training(Model):
    """Essentials of a training loop that the session carries out."""

    precision: Precision | None = Field(
        None, exclude_if=is_absent, description="type of the forward pass by autocast; fp16 with a GradScaler; default: fp32"
    )
    accumulation: int | None = Field(
        None,
        ge=1,
        le=1_000_000,
        exclude_if=is_absent,
        description="micro-batches of a step on each data rank, whose gradients are added up; default: 1, or what `global_batch` asks for",
    )
    global_batch: int | None = Field(
        None, ge=1, le=MOST_COUNT, exclude_if=is_absent, description="samples of one step of all data ranks; needs `micro_batch`"
    )
    micro_batch: int | None = Field(
        None, ge=1, le=MOST_COUNT, exclude_if=is_absent, description="samples that a data rank works through at once; for `global_batch`"
    )
    clip_norm: float | None = Field(
        None, gt=0, le=1e12, exclude_if=is_absent, description="greatest norm of all gradients together; default: they are not clipped"
    )
    activation_checkpointing: bool = Field(
        False, exclude_if=is_no, description="whether activations are computed again in the backward pass, to save memory"
    )
    compile: bool = Field(False, exclude_if=is_no, description="whether the model is compiled by torch.compile")
    deterministic: bool = Field(
        False, exclude_if=is_no, description="whether torch may use deterministic algorithms only; slower, and an error where it has none"
    )

    @model_validator(mode="after")
    def _consistent(self) -> "Training":
        if self.global_batch is not None and self.accumulation is not None:
            raise ValueError("training: accumulation follows from global_batch; leave one of them out")
        if (self.global_batch is None) != (self.micro_batch is None):
            given, lacking = ("global_batch", "micro_batch") if self.micro_batch is None else ("micro_batch", "global_batch")
            raise ValueError(f"training.{given} needs {lacking} beside it")
        if self.global_batch is not None and self.micro_batch is not None and self.global_batch % self.micro_batch:
            raise ValueError(f"training.global_batch = {self.global_batch} is no multiple of micro_batch = {self.micro_batch}; make it one")
        return self

    @property
    def micro_batches(self) -> int | None:
        """Micro-batches of a step on all data ranks together; None where their number is not fixed."""
        return None if self.global_batch is None or self.micro_batch is None else self.global_batch // self.micro_batch

    def at(self, data_size: int) -> "Training":
        """The settings with `accumulation` for so many data ranks. Raises ValueError where the global batch does not divide."""
        if self.micro_batches is None:
            return self.model_copy(update={"accumulation": self.accumulation or 1})
        each, left = divmod(self.micro_batches, data_size)
        if left or not each:
            raise ValueError(
                f"global_batch = {self.global_batch} does not divide by {data_size} data ranks × micro_batch = {self.micro_batch}"
            )
        return self.model_copy(update={"accumulation": each})

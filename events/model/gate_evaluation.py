"""Evaluation that a gate has each new version go through: a job of one rank, by what program, on what data, how.

Holds: seed, batch size and kind of device are fixed here, so that each version is measured in the same way.
"""

import re
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Annotated, Final

from pydantic import Field, StringConstraints, model_validator

from trainhouse.events.model.absence import is_absent
from trainhouse.events.model.base import Model
from trainhouse.events.model.bounds import MOST_DURATION_S
from trainhouse.events.model.dataset_names import SplitName, VersionReference
from trainhouse.events.model.ids import PoolName
from trainhouse.events.model.labels import Label
from trainhouse.events.model.spec import CodeArchive

MOST_EVALUATIONS: Final = 8
MOST_COMMAND: Final = 256
MOST_COMMAND_CHARS: Final = 16_384
MOST_GROUPINGS: Final = 64
_MODULE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
SuiteName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9._-]{0,99}$", max_length=100)]
"""As a result has it, and short enough for the name of its artifact."""
FilesFormat = Annotated[str, StringConstraints(pattern=r"^(safetensors|hf|dcp|torch)$", max_length=16)]
ShortInput = Annotated[str, StringConstraints(max_length=4096)]


class EvaluationKind(StrEnum):
    """Kind of a suite."""

    CLASSIFICATION = "classification"
    REGRESSION = "regression"
    LANGUAGE_MODEL = "language_model"
    LATENCY = "latency"
    COMMAND = "command"


class ClassifierOutputs(StrEnum):
    """Outputs of a classifier."""

    LOGITS = "logits"
    PROBABILITIES = "probabilities"
    LABELS = "labels"


class GateEvaluation(Model):
    """Evaluation of each new version. Its job has the registrant's name, the model's project and one rank."""

    suite: SuiteName = Field(description="name of the suite; a gate names it once")
    kind: EvaluationKind = Field(description="what is measured")
    dataset: VersionReference | None = Field(
        None, exclude_if=is_absent, description="version of a dataset, as NAME@1.0.0 or NAME@sha256:…; only a command needs none"
    )
    split: SplitName | None = Field(None, exclude_if=is_absent, description="split of the dataset: one that no version was trained on")
    purpose: Label | None = Field(None, exclude_if=is_absent, description="what the dataset is used for, where it has purposes")
    program: ShortInput | None = Field(
        None, exclude_if=is_absent, description="Python module that loads the model and decodes samples, in `code` or installed"
    )
    command: tuple[ShortInput, ...] = Field(
        (), max_length=MOST_COMMAND, exclude_if=is_absent, description="of kind command: the program, and its arguments"
    )
    model: ShortInput = Field(
        "", exclude_if=is_absent, description="path below the version's files, as model.safetensors; absent: their folder"
    )
    format: FilesFormat = Field("safetensors", description="format of the version's files: safetensors, hf, dcp or torch")
    seed: int = Field(0, ge=0, lt=2**32, description="seed of every generator and of intervals")
    batch_size: int = Field(32, ge=1, le=65_536, description="samples of a batch")
    device_type: Label = Field("any", description='type of the device; "cpu": a cpu slot')
    pool: PoolName = Field(PoolName("default"), description="pool of nodes that runs it")
    team: Label = Field("default", description="owner of the quota that it counts towards")
    priority: int = Field(50, ge=0, le=100, description="0 is the highest, 100 the lowest")
    run_time_s: float | None = Field(None, gt=0, le=MOST_DURATION_S, exclude_if=is_absent, description="most seconds of running")
    code: CodeArchive | None = Field(
        None, exclude_if=is_absent, description="folder that it starts in a copy of; `models gate apply --code DIR` fills it in"
    )
    outputs: ClassifierOutputs | None = Field(None, exclude_if=is_absent, description="outputs of a classifier; absent: logits")
    groups: tuple[Label, ...] = Field(
        (), max_length=MOST_GROUPINGS, exclude_if=is_absent, description="keys of a decoded sample whose text is its group"
    )
    least_group: int | None = Field(None, ge=2, le=2**31, exclude_if=is_absent, description="samples below which a group has no metrics")
    confidence: float | None = Field(
        None, gt=0, lt=1, exclude_if=is_absent, description="probability with which intervals cover the value; absent: 0.95"
    )
    resamples: int | None = Field(None, ge=999, le=1_000_000, exclude_if=is_absent, description="resamples of a bootstrap; absent: 1999")
    repeats: int | None = Field(
        None, ge=10, le=1_000_000, exclude_if=is_absent, description="of kind latency: calls at each batch size; absent: 200"
    )

    @model_validator(mode="after")
    def _whole(self) -> "GateEvaluation":
        if (self.kind is EvaluationKind.COMMAND) != bool(self.command):
            raise ValueError("kind command needs `command`, a list of the program and its arguments, and no other kind takes one")
        if self.kind is not EvaluationKind.COMMAND and (self.program is None or self.split is None):
            raise ValueError(
                f"kind {self.kind} needs `program`, a Python module with load and decode, and `dataset` with a held-out `split`"
            )
        if self.program is not None and not _MODULE.fullmatch(self.program):
            raise ValueError(f"program {self.program[:100]!r} names no Python module: write it as in an import, package.module")
        if (self.dataset is None) != (self.split is None):
            raise ValueError("name both `dataset` and `split`, or neither: without a split nothing is held out")
        if sum(map(len, self.command)) > MOST_COMMAND_CHARS:
            raise ValueError(f"command has more than {MOST_COMMAND_CHARS} characters: put it into a file of `code`")
        path = PurePosixPath(self.model)
        if path.is_absolute() or ".." in path.parts:
            raise ValueError(f"model {self.model[:100]!r} is a path below the version's files, such as model.safetensors")
        return self

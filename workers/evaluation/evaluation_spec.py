"""Description of one evaluation, read from YAML: the suite, the program with the model and decode, the data, how it is run."""

from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from trainhouse.workers.evaluation.errors import InvalidEvaluationError
from trainhouse.workers.evaluation.result import Sha256


class EvaluationSpec(BaseModel):
    """An evaluation. The program is a Python module with `load(path, device)`, which returns the model: called with a batch, it returns its
    outputs; `decode(sample)`, which returns a dictionary with `input`, `target` (none for latency) and, for groups, text by column; and,
    if batches are no stacked tensors, `collate(inputs)`."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    suite: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9._-]{0,127}$")] = Field(description="name of the suite")
    kind: Literal["classification", "regression", "language_model", "latency", "command"] = Field(description="what is measured")
    model: str = Field(description="file or folder with the version's weights, below the working folder")
    version: Sha256 | None = Field(None, description="content hash of the version; default: the hash of the model's files")
    program: str | None = Field(None, description="Python module that loads the model and decodes samples")
    command: tuple[str, ...] = Field((), description="of kind command: program that writes the documented result, and its arguments")
    split: str | None = Field(None, description="split of the job's dataset version (data.dataset of its spec)")
    folder: str | None = Field(None, description="folder with shards, instead of a split of a dataset version")
    batch_size: Annotated[int, Field(ge=1, le=65_536)] = Field(32, description="samples of a batch")
    seed: Annotated[int, Field(ge=0, lt=2**32)] = Field(0, description="seed of every generator and of intervals")
    outputs: Literal["logits", "probabilities", "labels"] = Field("logits", description="outputs of a classifier")
    groups: tuple[str, ...] = Field((), description="keys of the decoded sample whose text is its group, such as language")
    least_group: Annotated[int, Field(ge=2)] = Field(50, description="samples below which a group has no metrics")
    confidence: Annotated[float, Field(gt=0, lt=1)] = Field(0.95, description="probability with which intervals cover the value")
    resamples: Annotated[int, Field(ge=999, le=1_000_000)] = Field(1999, description="resamples of a bootstrap")
    repeats: Annotated[int, Field(ge=10, le=1_000_000)] = Field(
        200, description="of kind latency: calls that are measured at each batch size"
    )

    @model_validator(mode="after")
    def _whole(self) -> "EvaluationSpec":
        if (self.kind == "command") != bool(self.command):
            raise ValueError("kind command needs `command`, a list of the program and its arguments, and no other kind takes one")
        if self.kind != "command" and self.program is None:
            raise ValueError(f"kind {self.kind} needs `program`, a Python module with load and decode")
        if self.kind != "command" and (self.split is None) == (self.folder is None):
            raise ValueError("name either `split`, of the job's dataset version, or `folder`, with shards")
        return self


def read_spec(path: Path) -> EvaluationSpec:
    """Reads a description. Raises InvalidEvaluationError, which names the field."""
    try:
        given = yaml.safe_load(path.read_text("utf-8"))
        if not isinstance(given, dict):
            raise InvalidEvaluationError(f"{path} describes no evaluation: write keys such as suite, kind, model, program, split")
        return EvaluationSpec.model_validate({k: tuple(v) if isinstance(v, list) else v for k, v in given.items()})
    except OSError as error:
        raise InvalidEvaluationError(f"{path} cannot be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise InvalidEvaluationError(f"{path} is no YAML: {error}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise InvalidEvaluationError(f"{path}: {'.'.join(map(str, first['loc'])) or 'the description'}: {first['msg']}") from error

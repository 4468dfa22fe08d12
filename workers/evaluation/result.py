"""The documented result of one evaluation of one version of a model: a JSON document, named by the hash of its bytes.

Holds: equal results have equal bytes; every number is finite; what a result was measured on (version, dataset version, split, seed, batch
size, kind of device) stands in it, and so do metrics that could not be computed, with the reason. Results by sample are a Parquet file that
is named by its hash.
Never: a time, a machine or a person, so that a rerun gives the same document.
"""

import builtins
import hashlib
from pathlib import Path
from typing import Annotated, Final, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from trainhouse.events.model.bounds import MOST_BYTES, MOST_COUNT, short_text
from trainhouse.workers.evaluation.errors import InvalidEvaluationError

FORMAT: Final = 1
RESULT_NAME: Final = "result.json"
MOST_METRICS: Final = 64
MOST_GROUPS: Final = 1024
MOST_RESULT_BYTES: Final = 4 << 20
MOST_QUOTED_CHARS: Final = 256

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
MetricName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
ColumnName = Annotated[str, StringConstraints(min_length=1, max_length=256)]
GroupName = Annotated[str, StringConstraints(min_length=1, max_length=256)]
Number = Annotated[float, Field(allow_inf_nan=False)]
SampleCount = Annotated[int, Field(ge=0, le=MOST_COUNT)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class SampleColumns(_Part):
    """The columns of the results by sample that a metric is computed from: `transform(sum(numerator) / sum(weight))`."""

    numerator: ColumnName = Field(description="column that is summed up over samples")
    weight: ColumnName | None = Field(None, description="column that the sum is divided by; none: the number of samples")
    transform: Literal["identity", "sqrt", "exp"] = Field("identity", description="function of the quotient")


class Metric(_Part):
    """A value with its interval."""

    value: Number = Field(description="value over all samples that it is of")
    low: Number | None = Field(None, description="lower end of its interval; none where the samples give none")
    high: Number | None = Field(None, description="upper end of its interval; none where the samples give none")
    samples: SampleCount = Field(description="samples, or repetitions of a measurement, that it is of")
    higher_is_better: bool = Field(True, description="direction in which a model is better")
    unit: Annotated[str, StringConstraints(max_length=32)] = Field("", description="unit, such as ms or bytes; empty of a number alone")
    columns: SampleColumns | None = Field(None, description="columns of the results by sample; none: it cannot be compared by sample")

    @model_validator(mode="after")
    def _ordered(self) -> "Metric":
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"low {self.low} is above high {self.high}; write the interval as low, then high")
        return self


class Group(_Part):
    """Metrics of the samples that have one value in a column, such as a language or an age range."""

    samples: SampleCount = Field(description="samples of the group")
    too_few: bool = Field(False, description="whether it has fewer samples than the least size, so that it has no metrics")
    metrics: Annotated[dict[MetricName, Metric], Field(max_length=MOST_METRICS)] = Field(
        default_factory=dict, description="metrics of its samples alone"
    )

    @model_validator(mode="after")
    def _consistent(self) -> "Group":
        if self.too_few and self.metrics:
            raise ValueError("a group with too few samples has no metrics; leave them out, or lower the least size")
        return self


class Grouping(_Part):
    """Groups by one column, and the widest difference of each metric between groups that are large enough."""

    least_samples: SampleCount = Field(description="least size of a group that has metrics")
    groups: Annotated[dict[GroupName, Group], Field(max_length=MOST_GROUPS)] = Field(description="groups by value of the column")
    gaps: Annotated[dict[MetricName, Metric], Field(max_length=MOST_METRICS)] = Field(
        default_factory=dict, description="largest value of a group less the smallest one, by metric"
    )


class EvaluationResult(_Part):
    """Result of a suite on one version of a model."""

    format: Literal[1] = Field(FORMAT, description="version of this document")
    suite: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9._-]{0,127}$")] = Field(description="name of the suite")
    kind: Literal["classification", "regression", "language_model", "latency", "command"] = Field(description="what the suite measures")
    version: Sha256 = Field(description="content hash of the model's version")
    dataset: Annotated[str, StringConstraints(max_length=256)] = Field(
        "", description="dataset version as NAME@sha256:…; empty where no data was read"
    )
    split: Annotated[str, StringConstraints(max_length=128)] = Field("", description="split of the dataset version that was read")
    seed: Annotated[int, Field(ge=0, lt=2**63)] = Field(description="seed of the model's program and of the intervals")
    batch_size: Annotated[int, Field(ge=1, le=2**31 - 1)] = Field(description="samples of a batch")
    device_kind: Annotated[str, StringConstraints(min_length=1, max_length=128)] = Field(
        description="kind of device: cpu, or the name that CUDA gives; a rerun on the same kind gives the same numbers"
    )
    repeatable: bool = Field(True, description="whether a rerun gives the same numbers; measured times do not")
    samples: SampleCount = Field(description="samples that were evaluated")
    confidence: Annotated[float, Field(gt=0, lt=1)] = Field(0.95, description="probability with which an interval covers the value")
    metrics: Annotated[dict[MetricName, Metric], Field(min_length=1, max_length=MOST_METRICS)] = Field(description="metrics by name")
    undefined: Annotated[dict[MetricName, Annotated[str, StringConstraints(max_length=1024)]], Field(max_length=MOST_METRICS)] = Field(
        default_factory=dict, description="reasons of metrics that these samples do not have"
    )
    groups: Annotated[dict[ColumnName, Grouping], Field(max_length=64)] = Field(
        default_factory=dict, description="metrics by group, by the column of results by sample that has the groups"
    )
    by_sample: Sha256 | None = Field(None, description="hash of the Parquet file with results by sample")
    by_sample_bytes: Annotated[int, Field(ge=0, le=MOST_BYTES)] = Field(0, description="size of that file")
    code: Sha256 | None = Field(None, description="hash of the program's files that decode samples and run the model")

    @model_validator(mode="after")
    def _consistent(self) -> "EvaluationResult":
        both = self.metrics.keys() & self.undefined.keys()
        if both:
            raise ValueError(f"{', '.join(sorted(both))}: a metric has a value or a reason why it has none, not both")
        compared = [name for name, metric in self.metrics.items() if metric.columns is not None]
        if compared and self.by_sample is None:
            raise ValueError(f"{compared[0]} names columns of results by sample, but by_sample is missing; give the file's hash")
        return self

    def canonical_json(self) -> builtins.bytes:
        """The bytes that are stored: sorted JSON, indented by two spaces."""
        return orjson.dumps(self.model_dump(mode="json"), option=orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)

    @property
    def sha256(self) -> str:
        """The name of the document: the hash of its bytes."""
        return hashlib.sha256(self.canonical_json()).hexdigest()


def artifact_name(suite: str) -> str:
    """Name of the artifact that holds the files of a suite's results."""
    return f"evaluation-{suite}"


def read_result(content: builtins.bytes, source: str = "the result") -> EvaluationResult:
    """Parses a document. `source`: name in messages. Raises InvalidEvaluationError, which names the first field that is wrong."""
    if len(content) > MOST_RESULT_BYTES:
        raise InvalidEvaluationError(
            f"{source} has {len(content)} bytes, more than {MOST_RESULT_BYTES}: write results by sample as Parquet"
        )
    try:
        return EvaluationResult.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = short_text(".".join(map(str, first["loc"])), MOST_QUOTED_CHARS) or "the document"
        nan = " (NaN and infinite numbers are none: leave the metric out and give its reason in `undefined`)"
        more = nan if first["type"] == "finite_number" or "NaN" in str(first.get("input")) else ""
        raise InvalidEvaluationError(f"{source}: {place}: {first['msg']}{more}; docs/howto/evaluation.md describes the document") from error


def load_result(path: Path) -> EvaluationResult:
    """Reads a document from a file. Raises InvalidEvaluationError."""
    try:
        return read_result(path.read_bytes(), str(path))
    except OSError as error:
        raise InvalidEvaluationError(f"{path} cannot be read: {error.strerror}; give the result.json of an evaluation") from error

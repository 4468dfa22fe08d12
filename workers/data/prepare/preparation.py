"""A preparation as a file: the version to read, the output to write, and the steps between, in the order in which they are carried out."""

import re
from enum import StrEnum
from typing import Any, Final

from pydantic import Field, ValidationError, field_validator

from trainhouse.events.model.base import Model
from trainhouse.events.model.bounds import InputText
from trainhouse.events.model.dataset_names import DatasetName, FieldName, VersionReference
from trainhouse.events.model.labels import Label
from trainhouse.events.wire.validation_messages import explain_validation
from trainhouse.workers.data.errors import InvalidDataError
from trainhouse.workers.data.publishing.split_rule import OF_SAMPLE, SplitRule

MOST_COLUMNS: Final = 256
_COLUMN_TYPES: Final = ("bool", "int", "float", "text", "list", "object")


class CleanStep(StrEnum):
    """One change of a column's text."""

    STRIP = "strip"
    """No white space at both ends."""
    COLLAPSE = "collapse"
    """One space for each run of white space."""
    LOWER = "lower"
    """Lower case."""
    NFC = "nfc"
    """Unicode's composed form, so that equal texts have equal bytes."""
    DROP_EMPTY = "drop_empty"
    """A row whose text is empty now is left out."""


class InvalidRow(StrEnum):
    """Reaction to a row that breaks a rule."""

    FAIL = "fail"
    DROP = "drop"


class ColumnRule(Model):
    """Rule of one column of `json`."""

    type: Label | None = Field(None, description="bool, int, float (whole numbers too), text, list or object; default: any")
    required: bool = Field(True, description="whether each row has it, and not null")
    least: float | None = Field(None, description="least number, or characters of a text, or items of a list")
    most: float | None = Field(None, description="greatest one")
    pattern: InputText | None = Field(None, description="regular expression that a whole text fits")
    one_of: tuple[bool | int | float | str, ...] = Field((), max_length=1024, description="values that it may have; empty: any")

    @field_validator("type")
    @classmethod
    def _known(cls, value: str | None) -> str | None:
        if value is not None and value not in _COLUMN_TYPES:
            raise ValueError(f"name one of {', '.join(_COLUMN_TYPES)}")
        return value

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, value: str | None) -> str | None:
        try:
            re.compile(value or "")
        except re.error as error:
            raise ValueError(f"it is no regular expression: {error}") from error
        return value


class SplitStep(Model):
    """Splits by a hash."""

    shares: InputText = Field(description="share of each split, as train=0.9,test=0.1")
    by: FieldName = Field(OF_SAMPLE, description="column of `json` whose equal values stay in one split; sample: each row by its content")

    @field_validator("shares")
    @classmethod
    def _shares(cls, value: str) -> str:
        try:
            SplitRule.parse(value)
        except InvalidDataError as error:
            raise ValueError(str(error)) from error
        return value


class TokeniseStep(Model):
    """Token ids of a text, as the field `INTO.npy`."""

    column: FieldName = Field(description="column of `json` with the text")
    tokenizer: InputText = Field(description="file of a tokenizer in Hugging Face's format, in the folder that is sent with the job")
    into: Label = Field("tokens", description="name of the field, before `.npy`: an array of unsigned 32-bit numbers")
    most_tokens: int | None = Field(None, ge=1, le=2**24, description="tokens after which a text is cut; default: none")
    keep_text: bool = Field(False, description="whether the column stays")


class Preparation(Model):
    """The whole of it. Steps that are left out are not carried out."""

    source: VersionReference = Field(description="version to read: NAME@1.0.0 or NAME@sha256:…")
    purpose: Label | None = Field(None, description="what the source is used for; default: the job's purpose")
    output: DatasetName = Field(description="dataset that gets a version of the prepared rows")
    check: dict[FieldName, ColumnRule] = Field(default_factory=dict, max_length=MOST_COLUMNS, description="rules by column")
    invalid: InvalidRow = Field(InvalidRow.FAIL, description="fail: the first row that breaks a rule ends the job; drop: it is left out")
    clean: dict[FieldName, tuple[CleanStep, ...]] = Field(
        default_factory=dict, max_length=MOST_COLUMNS, description="changes of texts by column, in their order"
    )
    split: SplitStep | None = Field(None, description="new splits; default: those of the source stay")
    normalise: tuple[FieldName, ...] = Field(
        (),
        max_length=MOST_COLUMNS,
        description="columns of numbers that get mean 0 and standard deviation 1, by those of the split train alone",
    )
    tokenise: TokeniseStep | None = None
    shuffle: int | None = Field(None, ge=0, lt=2**63, description="seed of the order of rows, over all of a split")
    shard_mib: float = Field(
        128,
        gt=0,
        le=4096,
        description="size of shards, by the rows before they are normalised: a split is cut into about equal ones, as few as fit; those of "
        "normalised rows, which have more digits, may be larger",
    )
    job: dict[str, Any] = Field(default_factory=dict, description="other fields of the job's spec, as gang, pool and resources")

    @classmethod
    def parse(cls, data: Any) -> "Preparation":
        """Reads what a file has. Raises InvalidDataError."""
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise InvalidDataError(explain_validation(error, cls)) from error

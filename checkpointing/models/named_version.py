"""Versions of models as people name them, found in the store alone: `NAME@champion`, `NAME@staging`, `NAME@3`, `NAME@1.2.0`."""

import re
from dataclasses import dataclass
from typing import Final

from trainhouse.checkpointing.errors import InvalidStateError, NoModelError
from trainhouse.checkpointing.models.stage_chain import StagedVersion, StageRecord, history, newest
from trainhouse.checkpointing.stores.object_store import ObjectStore
from trainhouse.events.model.default_project import DEFAULT_PROJECT
from trainhouse.events.model.model_key import ModelNameError, parse_model
from trainhouse.events.model.model_names import ModelStage, model_lineage_id
from trainhouse.events.model.version_names import SEMVER_PATTERN

STAGES: Final = (ModelStage.CHAMPION, ModelStage.STAGING)
_SELECTOR: Final = re.compile(rf"champion|staging|v?[1-9][0-9]{{0,9}}|{SEMVER_PATTERN}")


@dataclass(frozen=True)
class ModelReference:
    """A model, and which of its versions: a stage, a number or a semver."""

    project: str
    name: str
    selector: str

    def __str__(self) -> str:
        return f"{self.model}@{self.selector}"

    @property
    def model(self) -> str:
        """The model as people name it."""
        return self.name if self.project == DEFAULT_PROJECT else f"{self.project}/{self.name}"


@dataclass(frozen=True)
class NamedVersion:
    """A version that the store's chain has."""

    project: str
    name: str
    staged: StagedVersion

    @property
    def lineage_id(self) -> str:
        """Its id in lineage, `model:NAME@V`."""
        return model_lineage_id(self.project, self.name, self.staged.version)


def parse_reference(text: str, project: str = DEFAULT_PROJECT) -> ModelReference:
    """Reads `[PROJECT/]NAME@champion|staging|V|1.2.0`. Raises InvalidStateError with what to write."""
    model, at, selector = text.partition("@")
    if not at or not _SELECTOR.fullmatch(selector):
        raise InvalidStateError(f"{text[:200]!r} names no version of a model: write NAME@champion, NAME@staging, NAME@3 or NAME@1.2.0")
    try:
        return ModelReference(*parse_model(model, project), selector.removeprefix("v"))
    except ModelNameError as error:
        raise InvalidStateError(str(error)) from error


def find_version(objects: ObjectStore, reference: ModelReference) -> NamedVersion:
    """The version that is named, by the chain of stages alone. A number or a semver reads the chain backwards. Blocks.

    Raises NoModelError where there is none, DamagedError where the chain cannot be read so far.
    """
    if reference.selector in STAGES:
        last = newest(objects, reference.project, reference.name)
        staged = None if last is None else last.champion if reference.selector == ModelStage.CHAMPION else last.staging
        if last is None:
            raise _no_model(reference)
        if staged is None:
            raise NoModelError(
                f"{reference}: the model has no {reference.selector}; `trainhouse models show {reference.model}` lists versions"
            )
        return NamedVersion(reference.project, reference.name, staged)
    is_empty = True
    for record in history(objects, reference.project, reference.name):
        is_empty = False
        staged = next((each for each in _versions_of(record) if reference.selector in (str(each.version), each.semver)), None)
        if staged is not None:
            return NamedVersion(reference.project, reference.name, staged)
    if is_empty:
        raise _no_model(reference)
    raise NoModelError(f"{reference}: the model has no such version; `trainhouse models show {reference.model}` lists versions")


def versions_with(objects: ObjectStore, project: str, name: str, content: str) -> dict[int, set[str]]:
    """Numbers of a model's versions that have this content, with the evaluations that the chain knows of each. Reads it; blocks."""
    found: dict[int, set[str]] = {}
    for record in history(objects, project, name):
        for staged in _versions_of(record):
            if staged.content == content:
                found.setdefault(staged.version, set()).update(staged.evaluations)
    return found


def _versions_of(record: StageRecord) -> list[StagedVersion]:
    return [staged for staged in (record.champion, record.staging, record.subject) if staged is not None]


def _no_model(reference: ModelReference) -> NoModelError:
    return NoModelError(
        f"{reference}: the store knows no model {reference.name} in project {reference.project}; "
        "`trainhouse models list` shows what there is"
    )

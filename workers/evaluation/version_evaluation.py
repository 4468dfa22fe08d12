"""Evaluation of a version of a model in a job that the registry submitted: the version's files by its content, and the description that the
job's command has.

Holds: the version is read by its content's hash, each byte verified. The evaluation's `version` is that hash, whatever the files are.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from trainhouse.checkpointing.errors import CheckpointError
from trainhouse.checkpointing.exchange.export import Format
from trainhouse.checkpointing.models.fetch import fetch
from trainhouse.checkpointing.models.named_version import NamedVersion
from trainhouse.checkpointing.models.stage_chain import StagedVersion
from trainhouse.checkpointing.stores.object_store import ObjectStore
from trainhouse.events.model.model_content import ModelContentError
from trainhouse.workers.evaluation.errors import InvalidEvaluationError
from trainhouse.workers.evaluation.evaluation_spec import EvaluationSpec


@dataclass(frozen=True)
class VersionToEvaluate:
    """A version, and how it is evaluated. `model`: path below its files."""

    named: NamedVersion
    kind: Format
    model: str
    evaluation: dict[str, Any]

    def spec(self, files: Path) -> EvaluationSpec:
        """The evaluation of the files below a folder. Raises InvalidEvaluationError."""
        fields = {name: tuple(value) if isinstance(value, list) else value for name, value in self.evaluation.items()}
        about = {"model": str(files / self.model), "version": self.named.staged.content}
        try:
            return EvaluationSpec.model_validate(fields | about)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise InvalidEvaluationError(f"evaluation: {'.'.join(map(str, first['loc'])) or 'the whole'}: {first['msg']}") from error

    def fetch(self, objects: ObjectStore, files: Path) -> None:
        """Puts its files into a folder. Blocks. Raises InvalidEvaluationError; what may pass is raised as it is."""
        try:
            fetch(objects, self.named, self.kind, files)
        except ModelContentError as error:
            raise InvalidEvaluationError(str(error)) from error


def read_version(text: str) -> VersionToEvaluate:
    """Reads what the job's command describes as JSON. Raises InvalidEvaluationError."""
    try:
        given = json.loads(text)
        staged = StagedVersion(version=given["version"], semver=given["semver"], content=given["content"])
        named = NamedVersion(str(given["project"]), str(given["name"]), staged)
        return VersionToEvaluate(named, Format(given["format"]), str(given["model"]), dict(given["evaluation"]))
    except (ValueError, KeyError, TypeError, CheckpointError) as error:
        raise InvalidEvaluationError(f"this describes no version to evaluate, as the registry does ({error!r}): {text[:200]}") from error

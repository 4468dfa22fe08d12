"""Results and comparisons as the registry of models takes them, and results that are in the object store.

Holds: a result that is recorded is in the store whole, by the hash of its bytes, as are its results by sample; what is read is verified.
Never: asks the registry.
"""

import hashlib
from pathlib import Path
from typing import Any, Final

from trainhouse.checkpointing.artifacts.artifact_store import ArtifactStore, HashedStore, files_below, hashed_content
from trainhouse.checkpointing.errors import DamagedError
from trainhouse.checkpointing.stores.object_store import ObjectStore, get_or_none
from trainhouse.events import ModelCompared
from trainhouse.events.model.artifact import OF_MODEL_CONTENT, ArtifactManifest
from trainhouse.events.model.artifact_keys import object_key
from trainhouse.events.model.model_registry import MOST_GROUPS
from trainhouse.workers.evaluation.errors import InvalidEvaluationError
from trainhouse.workers.evaluation.paired_results import ComparedEntry, Comparison, ResultWithSamples
from trainhouse.workers.evaluation.result import read_result
from trainhouse.workers.evaluation.sample_results import SampleResults

KIND: Final = "evaluation"


def comparison_event(found: Comparison, project: str, name: str, ids: tuple[str, str], at_ms: int, user: str) -> ModelCompared:
    """The request to record a comparison. `ids`: names of the two evaluations, as the registry has them. Raises InvalidEvaluationError."""
    if len(found.entries) > MOST_GROUPS:
        raise InvalidEvaluationError(
            f"suite {found.suite} compares {len(found.entries)} metrics and groups, and the registry keeps {MOST_GROUPS} of a comparison: "
            "evaluate with fewer groups, or with a larger least_group"
        )
    return ModelCompared.model_validate(
        {
            "project": project,
            "name": name,
            "user": user,
            "content": found.first,
            "against": found.second,
            "suite": found.suite,
            "evaluation_id": ids[0],
            "against_evaluation_id": ids[1],
            "samples": max(each.samples for each in found.entries if not each.group),
            "metrics": [_entry(each) for each in found.entries],
            "compared_at_ms": at_ms,
        }
    )


def keep_result(objects: HashedStore, project: str, folder: Path, manifest: ArtifactManifest, content: str) -> None:
    """Keeps the files of a result in the store for as long as the version's content is there, whatever becomes of its artifact. Blocks."""
    ArtifactStore(objects, project).refer(files_below(folder), manifest, f"{OF_MODEL_CONTENT}{content}")


def stored_result(objects: ObjectStore, project: str, document: str) -> ResultWithSamples:
    """A result by the hash of its bytes, with its results by sample. Blocks. Raises InvalidEvaluationError."""
    short = document[:12]
    body = get_or_none(objects, object_key(project, document))
    if body is None:
        raise InvalidEvaluationError(
            f"the result {short}… is not in the store: it was recorded without its files; evaluate the version again (`models evaluate`)"
        )
    if hashlib.sha256(body).hexdigest() != document:
        raise InvalidEvaluationError(f"{objects.uri(object_key(project, document))} has other bytes than its name says; evaluate again")
    result = read_result(body, f"the result {short}…")
    if result.by_sample is None:
        raise InvalidEvaluationError(f"the result {short}… of suite {result.suite} has no results by sample, so it cannot be compared")
    key = object_key(project, result.by_sample)
    try:
        content = b"".join(hashed_content(objects, key, result.by_sample, result.by_sample_bytes, "samples.parquet"))
    except DamagedError as error:
        raise InvalidEvaluationError(f"{error}; evaluate the version again (`models evaluate`)") from error
    return ResultWithSamples(result, SampleResults.of_parquet(content, objects.uri(key)))


def _entry(entry: ComparedEntry) -> dict[str, Any]:
    return {
        "metric": entry.metric,
        "group": entry.group,
        "verdict": entry.verdict.value,
        "difference": entry.difference,
        "low": entry.low,
        "high": entry.high,
        "p_value": entry.p_adjusted,
        "margin": entry.margin,
    }

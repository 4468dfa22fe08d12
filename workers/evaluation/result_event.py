"""Request to record a result, as the registry of models takes it. Pure.

Holds: the same result of a version is the same evaluation, by its name, and the registry takes one of each name.
"""

from typing import Final

from trainhouse.events import ModelEvaluated
from trainhouse.workers.evaluation.result import EvaluationResult

_SHORT: Final = 16


def evaluation_id_of(result: EvaluationResult) -> str:
    """Name of the evaluation that a result is of."""
    return f"{result.suite[:100]}-{result.sha256[:_SHORT]}"


def evaluation_event(result: EvaluationResult, project: str, name: str, at_ms: int, user: str, job_id: str | None = None) -> ModelEvaluated:
    """The request to record a result. `at_ms`: when it was evaluated, in milliseconds since 1970."""
    metrics = {each: {"value": metric.value, "low": metric.low, "high": metric.high} for each, metric in result.metrics.items()}
    return ModelEvaluated.model_validate(
        {
            "project": project,
            "name": name,
            "user": user,
            "content": result.version,
            "evaluation_id": evaluation_id_of(result),
            "suite": result.suite,
            "document": result.sha256,
            "dataset": result.dataset,
            "split": result.split or None,
            "job_id": job_id,
            "device_kind": result.device_kind,
            "samples": result.samples,
            "metrics": metrics,
            "evaluated_at_ms": at_ms,
        }
    )

"""Process that computes the importance of parameters: `python -m trainhouse.gateway.studies.importance_process`, JSON in and JSON out.

Holds: the answer follows from the question alone. A parameter is judged that every trial has, with two values or more.
"""

import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from trainhouse.events.model.study import StudySpec
from trainhouse.events.model.study_decisions import TrialState
from trainhouse.scheduler.core.studies.trial_record import ToldTrial


def importances(spec: StudySpec, metric: str, figures: Sequence[float], parameters: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns `items` (parameter and its share, the most important first), `left_out`, and as `reason` why there is nothing.

    `figures`: the metric of each complete trial, finite; `parameters`: values of the trials.
    """
    judged = [name for name in spec.space if _differs(name, parameters)]
    answer: dict[str, Any] = {"items": [], "left_out": [name for name in spec.space if name not in judged], "reason": ""}
    if not judged:
        return answer | {"reason": "every parameter has one value in all complete trials, or not all of them have it"}
    if min(figures) == max(figures):
        return answer | {"reason": f"{metric} is the same in all complete trials"}
    import optuna

    from trainhouse.scheduler.stream.studies.optuna_study import study_of

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    own = spec.model_copy(update={"metrics": tuple(one for one in spec.metrics if one.name == metric)})
    known = [
        ToldTrial(number, values, TrialState.COMPLETE, (figure,), ())
        for number, (figure, values) in enumerate(zip(figures, parameters, strict=True))
    ]
    study = study_of(own, optuna.samplers.RandomSampler(), known)
    evaluator = optuna.importance.PedAnovaImportanceEvaluator()
    found = optuna.importance.get_param_importances(study, evaluator=evaluator, params=judged)
    if not any(found.values()):
        return answer | {"reason": "no parameter tells the best trials from the others"}
    return answer | {"items": [{"parameter": name, "importance": round(float(share), 4)} for name, share in found.items()]}


def _differs(name: str, parameters: Sequence[Mapping[str, Any]]) -> bool:
    if any(name not in own for own in parameters):
        return False
    first = parameters[0][name]
    return any(own[name] != first for own in parameters)


def main() -> None:
    """Answers one question."""
    warnings.simplefilter("ignore")
    # Of Optuna's evaluators only those that are not asked for need it, and it takes longer to import than all else together.
    sys.modules["sklearn"] = None  # type: ignore[assignment]
    asked = orjson.loads(sys.stdin.buffer.read())
    spec = StudySpec.model_validate(asked["spec"])
    sys.stdout.buffer.write(orjson.dumps(importances(spec, asked["metric"], asked["figures"], asked["parameters"])))


if __name__ == "__main__":
    main()

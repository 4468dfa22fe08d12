"""Studies whose suggestions cannot be computed in bounded time are refused, with the number that can be."""

from typing import Any

import pytest
from pydantic import ValidationError

from tests.support.told_trials import study_spec


def space(count: int, choices: int = 0) -> dict[str, dict[str, Any]]:
    each = {"choices": list(range(choices))} if choices else {"low": 0.0, "high": 1.0}
    return {f"p{number}": dict(each) for number in range(count)}


@pytest.mark.parametrize(
    ("sampler", "among", "metrics", "trials", "refusal"),
    [
        ("gp", space(4), 1, 1001, "at most 1000 trials"),
        ("tpe", space(2), 5, 10, "more than 4, and there are 5"),
        ("tpe", space(1, choices=1024), 1, 100_000, "at most 19531 trials"),
        ("cmaes", space(256), 1, 5000, "at most 1141 trials"),
        ("nsgaii", space(2), 2, 100_000, "at most 40000 trials"),
    ],
)
def test_what_takes_too_long_is_refused(sampler: str, among: dict[str, Any], metrics: int, trials: int, refusal: str) -> None:
    startup = {"startup": 1} if sampler == "nsgaii" else {}
    with pytest.raises(ValidationError, match=refusal):
        study_spec(among, sampler, metrics, budget={"trials": trials}, **startup)


@pytest.mark.parametrize("sampler", ["tpe", "cmaes", "nsgaii", "random", "qmc"])
def test_usual_studies_may_have_all_their_trials(sampler: str) -> None:
    study_spec(space(8), sampler, budget={"trials": 10_000})
    study_spec(space(8), sampler, budget={"wall_s": 3600})

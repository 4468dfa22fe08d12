"""Values of a parameter as samplers see them.

Holds: a sampler sees a choice by its place among the choices; what it draws comes back as a value of the parameter, in plain Python.
"""

from typing import TYPE_CHECKING, Any

from trainhouse.events.model.study_space import NumberKind, Parameter, Value
from trainhouse.events.model.study_values import bounds, choice_index, nearest, step_of

if TYPE_CHECKING:
    from optuna import Trial
    from optuna.distributions import BaseDistribution


def internal(parameter: Parameter, value: Value) -> Any:
    """Returns a value as samplers see it."""
    return choice_index(parameter.choices, value) if parameter.choices else value


def distribution(parameter: Parameter) -> "BaseDistribution":
    """Returns Optuna's distribution of a parameter."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if parameter.choices:
        return CategoricalDistribution(range(len(parameter.choices)))
    low, high = bounds(parameter)
    step = None if parameter.log or parameter.value_count is None else step_of(parameter)
    if parameter.kind is NumberKind.INT:
        return IntDistribution(int(low), int(high), log=parameter.log, step=int(step or 1))
    return FloatDistribution(low, high, log=parameter.log, step=None if low == high else step)


def suggested(trial: "Trial", name: str, parameter: Parameter) -> Value:
    """Returns a trial's value of a parameter, by the sampler of its study. Raises ValueError if that has none."""
    drawn: Any = trial._suggest(name, distribution(parameter))
    return parameter.choices[int(drawn)] if parameter.choices else nearest(parameter, drawn)

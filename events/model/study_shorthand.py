"""Short forms in which people write the spec of a study, as the fields that they stand for. Pure.

Holds: what is no short form stays as it is, also where it is wrong: validation names it.
"""

from typing import Any, Final

_NAMED: Final = ("sampler", "early_stopping")


def spelled_out(spec: dict[str, Any]) -> dict[str, Any]:
    """A spec with `sampler: gp`, `early_stopping: asha` and `metrics: val_loss` spelled out, and with `type: int` in ranges whose numbers
    are written without a point."""
    found = spec | {name: {"name": spec[name]} for name in _NAMED if isinstance(spec.get(name), str)}
    metrics = spec.get("metrics")
    if isinstance(metrics, str | dict):
        metrics = [metrics]
    if isinstance(metrics, list):
        found["metrics"] = [{"name": each} if isinstance(each, str) else each for each in metrics]
    if isinstance(spec.get("space"), dict):
        found["space"] = {name: _typed(parameter) for name, parameter in spec["space"].items()}
    return found


def _typed(parameter: Any) -> Any:
    if not isinstance(parameter, dict) or parameter.get("type") is not None or "low" not in parameter or "high" not in parameter:
        return parameter
    numbers = [parameter[name] for name in ("low", "high", "step") if parameter.get(name) is not None]
    return parameter | {"type": "int"} if all(type(number) is int for number in numbers) else parameter

"""Short forms in which people write the spec of a study, as the fields that they stand for. Pure.

Holds: what is no short form stays as it is, also where it is wrong: validation names it.
"""

from typing import Any, Final

_COUNT: Final = {"asha": "reduction", "median": "min_trials"}
"""Field that a number behind the rule's name is for."""
_NAMED: Final = ("sampler", "early_stopping")


def spelled_out(spec: dict[str, Any]) -> dict[str, Any]:
    """A spec with `sampler: gp`, `early_stopping: asha` and `metrics: val_loss` spelled out, and with `type: int` in ranges whose numbers
    are written without a point."""
    found = spec | {name: {"name": spec[name]} for name in _NAMED if isinstance(spec.get(name), str)}
    if isinstance(spec.get("early_stopping"), str):
        found["early_stopping"] = stopping_fields(spec["early_stopping"])
    metrics = spec.get("metrics")
    if isinstance(metrics, str | dict):
        metrics = [metrics]
    if isinstance(metrics, list):
        found["metrics"] = [{"name": each} if isinstance(each, str) else each for each in metrics]
    if isinstance(spec.get("space"), dict):
        found["space"] = {name: _typed(parameter) for name, parameter in spec["space"].items()}
    return found


def stopping_fields(text: str) -> dict[str, Any]:
    """A rule of early stopping in short: `asha:3,min_step=10` is asha, of which one of three goes on, from step 10; `median:5` counts once
    five have ended."""
    named, *settings = (part.strip() for part in text.split(","))
    name, colon, number = (part.strip() for part in named.partition(":"))
    fields = {"name": name} | ({_COUNT.get(name, "number"): _number(number)} if colon else {})
    for each in settings:
        field, _, value = (part.strip() for part in each.partition("="))
        fields[field] = _number(value)
    return fields


def stopping_text(fields: dict[str, Any]) -> str:
    """The short form of a rule."""
    name = str(fields["name"])
    if name not in _COUNT:
        return name
    used = ("min_step", "max_step") if name == "asha" else ("min_step", "max_step", "reduction")
    settings = (f",{field}={fields[field]}" for field in used if fields.get(field) is not None)
    return f"{name}:{fields[_COUNT[name]]}{''.join(settings)}"


def _number(text: str) -> Any:
    return int(text) if text.isascii() and text.isdigit() else text


def _typed(parameter: Any) -> Any:
    if not isinstance(parameter, dict) or parameter.get("type") is not None or "low" not in parameter or "high" not in parameter:
        return parameter
    numbers = [parameter[name] for name in ("low", "high", "step") if parameter.get(name) is not None]
    return parameter | {"type": "int"} if all(type(number) is int for number in numbers) else parameter

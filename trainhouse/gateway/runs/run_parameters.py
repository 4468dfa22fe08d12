"""Parameters of runs: hyperparameters of the spec and what training code logged as parameters, as one thing with one name.

Holds: pure. A logged parameter is text; where it says the same as the spec's hyperparameter of its name it is that one, so that no
parameter appears twice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

SPEC, LOGGED = "hyperparameters.", "parameters."
WORDS = {"true": True, "false": False}
Config = Mapping[str, Any]


def typed(value: Any) -> Any:
    """A text that is a finite number or a truth value as such; all else as it is."""
    if not isinstance(value, str):
        return value
    if value.lower() in WORDS:
        return WORDS[value.lower()]
    for kind in (int, float):
        try:
            number = kind(value)
        except ValueError:
            continue
        return number if math.isfinite(number) else value
    return value


def joined(configs: Mapping[str, Config]) -> dict[str, dict[str, Any]]:
    """Configs by run, in which a logged parameter is the hyperparameter of its name: in a run where both are equal, or where it alone is
    there and another run has the hyperparameter."""
    of_spec = {path for config in configs.values() for path in config if path.startswith(SPEC)}
    return {run_id: _joined(config, of_spec) for run_id, config in configs.items()}


def _joined(config: Config, of_spec: set[str]) -> dict[str, Any]:
    found = {path: value for path, value in config.items() if not path.startswith(LOGGED)}
    for path, value in config.items():
        if not path.startswith(LOGGED):
            continue
        name = SPEC + path.removeprefix(LOGGED)
        if name not in of_spec:
            found[path] = typed(value)
        elif name not in config:
            found[name] = typed(value)
        elif not _equal(config[name], value):
            found[path] = typed(value)
    return found


def _equal(of_spec: Any, logged: Any) -> bool:
    return bool(typed(of_spec) == typed(logged)) or str(of_spec) == str(logged)


def parameters(config: Config) -> dict[str, Any]:
    """Parameters of a joined config by their short names; a logged one that differs from the spec's of its name is `name (logged)`."""
    found: dict[str, Any] = {path.removeprefix(SPEC): typed(value) for path, value in config.items() if path.startswith(SPEC)}
    for path, value in config.items():
        if path.startswith(LOGGED):
            name = path.removeprefix(LOGGED)
            found[f"{name} (logged)" if name in found else name] = typed(value)
    return found

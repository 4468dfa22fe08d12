"""Hyperparameters as typed words, and sweeps over them.

Holds: pure; the jobs of a sweep are the cartesian product, in the order in which it was typed, and at most MAX_SWEEP_JOBS.
"""

import itertools
from collections.abc import Sequence

from trainhouse.cli.shared.exit_codes import CliError, Exit

Value = bool | int | float | str | None
MAX_SWEEP_JOBS = 1000
WORDS: dict[str, Value] = {"true": True, "false": False, "null": None, "none": None}


def parse_value(text: str) -> Value:
    """`3` an int, `1e-3` a float, `true` a bool, `null` None; all else text. Quotes keep text: `"3"`."""
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def parse_pair(text: str, option: str) -> tuple[str, str]:
    """`name=value`; raises CliError naming the option."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise CliError(f"{option} {text!r}: write {option} NAME=VALUE", Exit.USAGE)
    return name.strip(), value


def parse_values(pairs: Sequence[str], option: str) -> dict[str, Value]:
    """Typed values of `name=value` words; a repeated name is refused."""
    found: dict[str, Value] = {}
    for pair in pairs:
        name, value = parse_pair(pair, option)
        if name in found:
            raise CliError(f"{option} names {name} twice; keep one of them", Exit.USAGE)
        found[name] = parse_value(value)
    return found


def points(sweeps: Sequence[str]) -> list[dict[str, Value]]:
    """Every combination of `name=v1,v2` words; one empty combination without any. Raises CliError."""
    axes = _axes(sweeps)
    count = 1
    for values in axes.values():
        count *= len(values)
    if count > MAX_SWEEP_JOBS:
        raise CliError(f"the sweep makes {count} jobs, more than {MAX_SWEEP_JOBS}; send it in parts", Exit.USAGE)
    return [dict(zip(axes, combination, strict=True)) for combination in itertools.product(*axes.values())]


def _axes(sweeps: Sequence[str]) -> dict[str, list[Value]]:
    """The values of each swept hyperparameter. Raises CliError."""
    axes: dict[str, list[Value]] = {}
    for sweep in sweeps:
        name, listed = parse_pair(sweep, "--sweep")
        values = [parse_value(v.strip()) for v in listed.split(",")]
        if name in axes:
            raise CliError(f"--sweep names {name} twice; write all of its values in one list", Exit.USAGE)
        if any(v == "" for v in values):
            raise CliError(f"--sweep {sweep!r} has an empty value; write --sweep {name}=0.1,0.01", Exit.USAGE)
        axes[name] = values
    return axes


def differing(sweeps: Sequence[str]) -> list[str]:
    """The hyperparameters that have several values in a sweep. Raises CliError."""
    return [axis for axis, values in _axes(sweeps).items() if len(values) > 1]

"""Reads a policy: from one of the files beside this module by name, from a path, or from text.

Holds: what comes back is valid; what does not is reported with its file, line and field, all faults at once.
Never: guesses: an unknown key, a key that stands twice, a YAML alias are refused.
"""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from trainhouse.events.model.policy import SchedulingPolicy
from trainhouse.events.model.pool import MAX_TEXT_CHARS
from trainhouse.events.runtime.yaml_lines import line_in, node_of, repeated_keys
from trainhouse.scheduler.core.queue.policy_check import PolicyFault, field_path

MAX_BYTES = MAX_TEXT_CHARS
"""Of one policy file: what an event can carry."""
DEFAULT_NAME = "trainhouse"
SHOWN_FAULTS = 20


@dataclass(frozen=True, slots=True)
class FaultLine:
    """One fault with its place; line 0: the text has nothing to point at."""

    line: int
    field: str
    problem: str


class PolicyError(ValueError):
    """A text is no policy. `faults` in the order of lines; the message has a line for each."""

    def __init__(self, file: str, faults: Iterable[FaultLine]) -> None:
        self.file = file
        self.faults = tuple(sorted(faults, key=lambda f: (f.line, f.field, f.problem)))
        lines = [f"{file}{f':{f.line}' if f.line else ''}: {f.field}: {f.problem}" for f in self.faults[:SHOWN_FAULTS]]
        if len(self.faults) > SHOWN_FAULTS:
            lines.append(f"{file}: and {len(self.faults) - SHOWN_FAULTS} more")
        super().__init__("\n".join(lines))


def names() -> list[str]:
    """The policies that come with Trainhouse."""
    here = resources.files("trainhouse.scheduler.policies")
    return sorted(f.name.removesuffix(".yaml") for f in here.iterdir() if f.name.endswith(".yaml"))


def load(source: str | Path) -> SchedulingPolicy:
    """A policy by the name of one that comes with Trainhouse, or by path. Reads a file. Raises PolicyError, OSError."""
    text, file = read_text(source)
    return parse(text, file)


def read_text(source: str | Path) -> tuple[str, str]:
    """The text of a policy and what to call it in messages. Raises PolicyError for an unknown name, OSError for an unreadable path."""
    if isinstance(source, str) and "/" not in source and not source.endswith((".yaml", ".yml")) and not Path(source).is_file():
        if source not in names():
            raise PolicyError(source, [FaultLine(0, "policy", f"no file, and no policy of Trainhouse; those are {', '.join(names())}")])
        return (resources.files("trainhouse.scheduler.policies") / f"{source}.yaml").read_text("utf-8"), f"{source}.yaml"
    path = Path(source)
    with path.open("rb") as stream:
        data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise PolicyError(str(path), [FaultLine(1, "policy", f"the file has more than {MAX_BYTES} bytes; this is no policy")])
    try:
        return data.decode("utf-8"), str(path)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise PolicyError(str(path), [FaultLine(line, "policy", "not UTF-8; save the file as UTF-8")]) from error


def parse(text: str, file: str = "policy.yaml") -> SchedulingPolicy:
    """A policy from YAML text; `file` is for messages only. Raises PolicyError with every fault."""
    node = _compose(text, file)
    try:
        content = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # a date such as 2026-99-99 is a ValueError
        raise _no_yaml(file, error) from error
    try:
        return SchedulingPolicy.model_validate(content)
    except ValidationError as error:
        raise PolicyError(file, [_fault(node, details) for details in error.errors()]) from error


def refusal(file: str, text: str, faults: Iterable[PolicyFault]) -> PolicyError:
    """The faults that a fleet found in a policy, with the lines of its text."""
    node = _compose(text, file)
    return PolicyError(file, [FaultLine(line_in(node, f.field), f.path, f.problem) for f in faults])


def _compose(text: str, file: str) -> yaml.Node:
    try:
        alias = next((t for t in yaml.scan(text, Loader=yaml.SafeLoader) if isinstance(t, yaml.AliasToken)), None)
        node = node_of(text) if alias is None else None
    except yaml.YAMLError as error:
        raise _no_yaml(file, error) from error
    if alias is not None:
        raise PolicyError(file, [FaultLine(alias.start_mark.line + 1, "policy", "YAML aliases are not taken; write it out")])
    if not isinstance(node, yaml.MappingNode):
        raise PolicyError(file, [FaultLine(1, "policy", "a policy is fields with values, such as `order: submit`")])
    repeated = repeated_keys(node)
    if repeated:
        faults = [FaultLine(line, key, f"stands twice (first in line {first}); keep one of them") for key, line, first in repeated]
        raise PolicyError(file, faults)
    return node


def _no_yaml(file: str, error: Exception) -> PolicyError:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    return PolicyError(file, [FaultLine(mark.line + 1 if mark else 1, "policy", f"no YAML: {problem}")])


def _fault(node: yaml.Node, details: ErrorDetails) -> FaultLine:
    field = tuple(key for key in details["loc"] if key != "[key]")
    context: dict[str, Any] = details.get("ctx", {})
    problem = details["msg"].removeprefix("Value error, ")
    if details["type"] == "policy_team":
        field, problem = ("teams", context["index"], context["field"]), context["text"]
    elif details["type"] == "extra_forbidden":
        problem = _unknown(field)
    elif details["type"] != "value_error":
        problem = f"{problem[:1].lower()}{problem[1:]}"
        if details["type"] != "missing":
            problem = f"{problem}, not {_shown(details['input'])}"
    return FaultLine(line_in(node, field), field_path(field), problem)


def _unknown(field: tuple[str | int, ...]) -> str:
    """An unknown key, with the fields that are there."""
    model = _model_at(field[:-1])
    known = sorted(model.model_fields) if model is not None else []
    close = difflib.get_close_matches(str(field[-1]), known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"the fields here are {', '.join(known)}"
    return f"unknown field; {hint}"


def _model_at(field: tuple[str | int, ...]) -> type[BaseModel] | None:
    model: type[BaseModel] = SchedulingPolicy
    for key in field:
        if isinstance(key, int):
            continue
        annotation: Any = model.model_fields[key].annotation if key in model.model_fields else None
        parts = (annotation, *getattr(annotation, "__args__", ()))
        inner = next((part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)), None)
        if inner is None:
            return None
        model = inner
    return model


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."

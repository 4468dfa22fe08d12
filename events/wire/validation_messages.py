"""Validation errors as sentences for the person who wrote the event.

Holds: each sentence names the field by its path, where it is about one, what is wrong, and, for a misspelt field, the nearest known one.
Never: shows the value of an environment variable.
"""

import difflib
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

MAX_PROBLEMS = 8


def explain_validation(error: ValidationError, model: type[BaseModel]) -> str:
    """All problems (at most MAX_PROBLEMS) in one line."""
    return "; ".join(text for _, text in explain_each(error, model))


def explain_each(error: ValidationError, model: type[BaseModel]) -> list[tuple[tuple[str | int, ...], str]]:
    """Each problem (at most MAX_PROBLEMS, then how many more): the path of its field, and the sentence."""
    problems = error.errors(include_url=False, include_context=False)
    found = [(tuple(p["loc"]), _problem(dict(p), model)) for p in problems[:MAX_PROBLEMS]]
    if len(problems) > MAX_PROBLEMS:
        found.append(((), f"and {len(problems) - MAX_PROBLEMS} more"))
    return found


def _problem(problem: dict[str, Any], model: type[BaseModel]) -> str:
    path = ".".join(str(p) for p in problem["loc"]) or ("" if problem["type"] == "value_error" else "data")
    if problem["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(problem["loc"][-1]), _fields_at(model, problem["loc"][:-1]), n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "; remove it"
        return f"{path}: no such field{hint}"
    if problem["type"] == "missing":
        return f"{path}: required, but missing"
    given = problem.get("input")
    open_ = isinstance(given, str | int | float | bool) and "env" not in problem["loc"]
    shown = f" (got {str(given)[:80]!r})" if open_ else ""
    return f"{path + ': ' if path else ''}{problem['msg'].removeprefix('Value error, ')}{shown}"


def _fields_at(model: type[BaseModel], path: tuple[Any, ...]) -> list[str]:
    """Names of the fields of the model that `path` leads to."""
    for step in path:
        field = model.model_fields.get(str(step))
        if field is None:
            continue
        for candidate in (field.annotation, *get_args(field.annotation)):
            if isinstance(candidate, type) and issubclass(candidate, BaseModel):
                model = candidate
                break
    return list(model.model_fields)

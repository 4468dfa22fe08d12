"""Values of options and arguments, read without pydantic, which typer loads to read even a text: a third of a quick command's time.

Holds: a value that is not plainly right goes to typer itself, which converts or refuses it as ever; so does each kind of parameter that is
not listed here. A typer without the attribute that this sets reads all values itself, and a test of imports says so.
"""

import os
import re
from pathlib import Path
from typing import Any, Final, get_args, get_origin

NUMBER: Final = re.compile(r"-?[0-9]{1,18}")
REFUSED: Final = object()


def read_plainly(command: Any, parent: Any = None) -> None:
    """Lets the parameters of a click command, `--help` too, and of all commands below it, be read so. `parent`: context of its group."""
    context = command.context_class(command, parent=parent, **command.context_settings)
    for param in command.get_params(context):
        if hasattr(param, "_runtime_param") and hasattr(param, "type_descriptor"):
            param._runtime_param = _PlainParam()
    for below in getattr(command, "commands", {}).values():
        read_plainly(below, context)


class _PlainParam:
    """Stands where typer keeps the converter of a parameter."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Returns the value as its function takes it. Raises what typer raises."""
        descriptor = param.type_descriptor
        found = plain_value(value, descriptor.annotation, descriptor.parameter_info, is_many=param.multiple or param.nargs == -1)
        if found is not REFUSED:
            return found
        param._runtime_param = None
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def plain_value(value: Any, annotation: Any, about: Any, *, is_many: bool) -> Any:
    """The value as typer gives it, or REFUSED where typer has to look. `about`: typer's own description of the parameter."""
    if about.parser is not None or about.clamp:
        return REFUSED
    if value is None:
        return () if is_many else None
    if get_origin(annotation) is list and isinstance(value, list | tuple):
        found = [_single(item, get_args(annotation)[0], about) for item in value]
        return REFUSED if REFUSED in found else found
    return REFUSED if is_many else _single(value, annotation, about)


def _single(value: Any, annotation: Any, about: Any) -> Any:
    if annotation is str and isinstance(value, str) and not about.path_type and not about.allow_dash and not about.resolve_path:
        return value
    if annotation is bool and isinstance(value, bool):
        return value
    if annotation is int and isinstance(value, str) and NUMBER.fullmatch(value):
        return _within(int(value), about)
    if annotation in (int, float) and type(value) is annotation:
        return _within(value, about)
    if annotation is Path and isinstance(value, str | Path):
        return _path(value, about)
    return REFUSED


def _within(value: float, about: Any) -> Any:
    low, high = about.min, about.max
    return value if (low is None or value >= low) and (high is None or value <= high) else REFUSED


def _path(value: str | Path, about: Any) -> Any:
    special = about.exists or about.writable or about.resolve_path or about.allow_dash or about.path_type
    if special or not (about.file_okay and about.dir_okay):
        return REFUSED
    # Typer asks that what is there can be read.
    return Path(value) if not os.path.lexists(value) or os.access(value, os.R_OK) else REFUSED

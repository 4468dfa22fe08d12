"""A spec as a YAML (or JSON) file, with errors that name file and line.

Holds: numbers as people write them (`1e-3` is a float here, though YAML 1.1 reads text), no key twice.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from trainhouse.cli.shared.exit_codes import CliError, Exit

FLOAT = re.compile(
    r"^[-+]?(\d[\d_]*)(\.[\d_]*)?([eE][-+]?\d+)$|^[-+]?\d[\d_]*\.[\d_]*$|^[-+]?\.\d+([eE][-+]?\d+)?$|^[-+]?\.(inf|Inf)$|^\.(nan|NaN)$"
)
MAX_SPEC_BYTES = 256 * 1024


class _Loader(yaml.SafeLoader):
    """The safe loader with floats as people write them."""


_Loader.yaml_implicit_resolvers = {
    k: [r for r in v if r[0] != "tag:yaml.org,2002:float"] for k, v in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", FLOAT, list("-+0123456789."))


class SpecFile:
    """One parsed file: its data, and the line of any path in it."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        try:
            self._root = yaml.compose(text, Loader=_Loader)
            _refuse_repeats(self._root)
            self.data: Any = yaml.load(text, Loader=_Loader)  # nosec B506  # a SafeLoader that keeps positions
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            where = f"{name}:{mark.line + 1}" if mark else name
            raise CliError(f"{where}: {error.problem or error.context}; no valid YAML", Exit.USAGE) from error
        except yaml.YAMLError as error:
            raise CliError(f"{name}: {error}; no valid YAML", Exit.USAGE) from error
        if not isinstance(self.data, dict):
            raise CliError(
                f"{name}: holds a {type(self.data).__name__}, no mapping; a spec has keys such as name, gang and runtime", Exit.USAGE
            )

    def line(self, path: Sequence[str | int]) -> int:
        """The line (from 1) of the deepest part of a path that the file has."""
        node, line = self._root, 1
        for step in path:
            key, node = _child(node, step)
            if node is None:
                break
            line = (key or node).start_mark.line + 1
        return line


def read(path: Path) -> SpecFile:
    """Reads a file. Raises CliError when it is not there, too large or no YAML."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise CliError(f"{path}: cannot be read ({error.strerror})", Exit.NOT_FOUND) from error
    if len(text) > MAX_SPEC_BYTES:
        raise CliError(f"{path}: {len(text)} bytes; a spec has at most {MAX_SPEC_BYTES}", Exit.USAGE)
    try:
        return SpecFile(str(path), text.decode())
    except UnicodeDecodeError as error:
        raise CliError(f"{path}: no UTF-8 text (byte {error.start})", Exit.USAGE) from error


def _child(node: Any, step: str | int) -> tuple[Any, Any]:
    if isinstance(node, yaml.MappingNode):
        return next(((k, v) for k, v in node.value if k.value == str(step)), (None, None))
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return None, node.value[step]
    return None, None


def _refuse_repeats(node: Any) -> None:
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"{key.value} is given twice", problem_mark=key.start_mark)
            seen.add(key.value)
            _refuse_repeats(value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _refuse_repeats(value)

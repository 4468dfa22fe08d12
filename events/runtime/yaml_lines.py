"""Line numbers of fields in a YAML text (a policy, a rule of alerts).

Holds: an absent field has the line of the nearest node around it. Line numbers begin with 1.
Never: reads a file; builds anything but plain nodes; goes deeper than such a file does, however deep a text is.
"""

from collections.abc import Sequence

import yaml

MAX_DEPTH = 32
_OPENS = (yaml.FlowSequenceStartToken, yaml.FlowMappingStartToken, yaml.BlockSequenceStartToken, yaml.BlockMappingStartToken)
_CLOSES = (yaml.FlowSequenceEndToken, yaml.FlowMappingEndToken, yaml.BlockEndToken)


def node_of(text: str) -> yaml.Node | None:
    """The tree of a YAML text, None when it is empty. Raises yaml.YAMLError, also for one that is nested too deeply."""
    depth = 0
    for token in yaml.scan(text, Loader=yaml.SafeLoader):
        depth += isinstance(token, _OPENS)
        depth -= isinstance(token, _CLOSES)
        if depth > MAX_DEPTH:
            raise yaml.MarkedYAMLError(problem=f"nested more than {MAX_DEPTH} levels deep", problem_mark=token.start_mark)
    return yaml.compose(text, Loader=yaml.SafeLoader)


def line_of(text: str, field: Sequence[str | int]) -> int | None:
    """The line of a field (keys and indexes that lead there); None: the text is no YAML, or empty."""
    try:
        node = node_of(text)
    except yaml.YAMLError:
        return None
    return None if node is None else line_in(node, field)


def line_in(node: yaml.Node, field: Sequence[str | int]) -> int:
    """The line of a field below a node: that of its key, or of its value in a list."""
    line = _line(node)
    for step in field:
        found = _step(node, step)
        if found is None:
            break
        line, node = found
    return line


def repeated_keys(node: yaml.Node) -> list[tuple[str, int, int]]:
    """Keys that stand twice in one mapping: (key, its line, the line of the first)."""
    found: list[tuple[str, int, int]] = []
    todo = [node]
    while todo:
        one = todo.pop()
        if isinstance(one, yaml.SequenceNode):
            todo.extend(one.value)
        if isinstance(one, yaml.MappingNode):
            first: dict[str, int] = {}
            for key, value in one.value:
                name = str(key.value)
                if name in first:
                    found.append((name, _line(key), first[name]))
                first.setdefault(name, _line(key))
                todo.append(value)
    return sorted(found, key=lambda f: (f[1], f[0]))


def _step(node: yaml.Node, step: str | int) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and 0 <= step < len(node.value):
        return _line(node.value[step]), node.value[step]
    if isinstance(node, yaml.MappingNode):
        return next(((_line(key), value) for key, value in node.value if str(key.value) == str(step)), None)
    return None


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1

"""Reads rules: those that come with Trainhouse, and a file or folder of one's own on top of them.

Holds: a bad rule is told with its file and line and left out, the others stand; a rule of one's own replaces a shipped one of its name,
and `change:` alters single fields of one.
Never: guesses: an unknown field or a name that stands twice is refused.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from trainhouse.events.runtime.yaml_lines import line_in, node_of, repeated_keys
from trainhouse.projections.alerts.errors import FaultLine, InvalidRulesError
from trainhouse.projections.alerts.rules import Rule, SqlRule, VerdictRule

MAX_BYTES = 1024 * 1024
MAX_RULES = 500
SECTIONS = ("rules", "change")


@dataclass
class Loaded:
    """Rules by name, in the order in which they were read, and what was refused."""

    rules: dict[str, Rule] = field(default_factory=dict)
    faults: list[FaultLine] = field(default_factory=list)

    @property
    def enabled(self) -> list[Rule]:
        """Enabled rules."""
        return [rule for rule in self.rules.values() if rule.enabled]


def shipped() -> Loaded:
    """The rules that come with Trainhouse. Reads files."""
    loaded = Loaded()
    for entry in sorted(resources.files("trainhouse.projections.alerts").joinpath("shipped").iterdir(), key=lambda e: e.name):
        if entry.name.endswith(".yaml"):
            _add(loaded, entry.read_text("utf-8"), entry.name)
    if loaded.faults:
        raise InvalidRulesError(loaded.faults)
    return loaded


def load(own: Path | None = None) -> Loaded:
    """The shipped rules, and those of a file or of a folder's *.yaml on top. Reads files; what cannot be read is a fault too."""
    loaded = shipped()
    for path in _files(own, loaded):
        try:
            data = path.read_bytes()
        except OSError as error:
            loaded.faults.append(FaultLine(str(path), 0, "rules", f"cannot be read ({error.strerror}); see TRAINHOUSE_ALERTS_RULES"))
            continue
        if len(data) > MAX_BYTES:
            loaded.faults.append(FaultLine(str(path), 0, "rules", f"the file has more than {MAX_BYTES} bytes; these are no rules"))
            continue
        _add(loaded, data.decode("utf-8", "replace"), str(path))
    return loaded


def parse(text: str, file: str = "rules.yaml") -> list[Rule]:
    """The rules of one text by themselves. Raises InvalidRulesError with every fault."""
    loaded = Loaded()
    _add(loaded, text, file)
    if loaded.faults:
        raise InvalidRulesError(loaded.faults)
    return list(loaded.rules.values())


def _files(own: Path | None, loaded: Loaded) -> list[Path]:
    if own is None:
        return []
    if own.is_dir():
        return sorted(p for p in own.iterdir() if p.suffix in (".yaml", ".yml"))
    if not own.exists():
        loaded.faults.append(FaultLine(str(own.absolute()), 0, "rules", "no such file or folder; see TRAINHOUSE_ALERTS_RULES"))
        return []
    return [own]


def _add(loaded: Loaded, text: str, file: str) -> None:
    try:
        node, content = _read(text, file)
    except InvalidRulesError as bad:
        loaded.faults += bad.faults
        return
    here: set[str] = set()
    for index, value in enumerate(content.get("rules") or ()):
        rule = _rule(loaded, value, node, ("rules", index), file)
        if rule is not None and rule.name in here:
            line = line_in(node, ("rules", index, "name"))
            loaded.faults.append(FaultLine(file, line, rule.name, "two rules of this file have this name; rename one"))
        elif rule is not None and len(loaded.rules) >= MAX_RULES and rule.name not in loaded.rules:
            loaded.faults.append(FaultLine(file, line_in(node, ("rules", index)), rule.name, f"there are {MAX_RULES} rules already"))
        elif rule is not None:
            here.add(rule.name)
            loaded.rules[rule.name] = rule
    for name, fields in (content.get("change") or {}).items():
        _change(loaded, str(name), fields, node, file)


def _change(loaded: Loaded, name: str, fields: Any, node: yaml.Node, file: str) -> None:
    known = loaded.rules.get(name)
    if known is None or not isinstance(fields, dict):
        problem = "is no rule; `trainhouse alerts rules` lists them" if known is None else "is fields with values, such as `limit: 5`"
        loaded.faults.append(FaultLine(file, line_in(node, ("change", name)), name, problem))
        return
    value = known.model_dump(mode="json", exclude_unset=True) | fields
    if isinstance(known, SqlRule) and "parameters" in fields and isinstance(fields["parameters"], dict):
        value["parameters"] = {**known.parameters, **fields["parameters"]}
    changed = _rule(loaded, value, node, ("change", name), file)
    if changed is not None:
        loaded.rules[name] = changed


def _rule(loaded: Loaded, value: Any, node: yaml.Node, at: tuple[str | int, ...], file: str) -> Rule | None:
    problem = None if isinstance(value, dict) else "a rule is fields with values"
    if isinstance(value, dict) and ("sql" in value) == ("verdict" in value):
        problem = "a rule has either `sql` or `verdict`"
    if problem is not None:
        loaded.faults.append(FaultLine(file, line_in(node, at), ".".join(map(str, at)), problem))
        return None
    try:
        return (SqlRule if "sql" in value else VerdictRule).model_validate(value)
    except ValidationError as error:
        loaded.faults += [_fault(details, value, node, at, file) for details in error.errors(include_url=False)]
        return None


def _fault(details: ErrorDetails, value: dict[str, Any], node: yaml.Node, at: tuple[str | int, ...], file: str) -> FaultLine:
    problem = details["msg"].removeprefix("Value error, ")
    if details["type"] == "extra_forbidden":
        known = sorted((SqlRule if "sql" in value else VerdictRule).model_fields)
        problem = f"unknown field; the fields here are {', '.join(known)}"
    inside = tuple(part for part in details["loc"] if part != "[key]")
    name = ".".join(map(str, (value.get("name", at[-1]), *inside)))
    return FaultLine(file, line_in(node, (*at, *inside)), name, problem)


def _read(text: str, file: str) -> tuple[yaml.Node, dict[str, Any]]:
    try:
        node, content = node_of(text), yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        raise InvalidRulesError(
            [FaultLine(file, mark.line + 1 if mark else 0, "rules", f"no YAML: {getattr(error, 'problem', error)}")]
        ) from error
    if not isinstance(node, yaml.MappingNode):
        raise InvalidRulesError(
            [FaultLine(file, 1, "rules", "a file of rules has `rules:` (a list) or `change:` (fields by name of a rule)")]
        )
    faults = list(_faults_of_shape(node, content, file))
    if faults:
        raise InvalidRulesError(faults)
    return node, content


def _faults_of_shape(node: yaml.Node, content: dict[str, Any], file: str) -> Iterator[FaultLine]:
    for key, line, first in repeated_keys(node):
        yield FaultLine(file, line, key, f"stands twice (first in line {first}); keep one of them")
    for key in content:
        if key not in SECTIONS:
            yield FaultLine(file, line_in(node, (str(key),)), str(key), f"unknown section; there are {', '.join(SECTIONS)}")
    if not isinstance(content.get("rules") or [], list):
        yield FaultLine(file, line_in(node, ("rules",)), "rules", "is a list of rules")
    if not isinstance(content.get("change") or {}, dict):
        yield FaultLine(file, line_in(node, ("change",)), "change", "is fields by name of a rule")

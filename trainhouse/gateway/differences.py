"""Configs as lines, and where several of them differ. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Value = Any


def lines(config: Mapping[str, Value]) -> dict[str, Value]:
    """A config flat: dotted paths to values that are no objects; an empty object or list is a value."""
    return dict(_walk("", config))


def _walk(path: str, value: Value) -> Iterator[tuple[str, Value]]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _walk(f"{path}.{name}" if path else str(name), inner)
    else:
        yield path, value


def by_path(configs: Mapping[str, Mapping[str, Value]]) -> list[dict[str, Value]]:
    """All paths, in their order: {path, values: {name: value}}; who lacks the path is left out of `values`."""
    paths = sorted({path for config in configs.values() for path in config})
    return [{"path": path, "values": {name: config[path] for name, config in configs.items() if path in config}} for path in paths]


def differing(configs: Mapping[str, Mapping[str, Value]]) -> list[dict[str, Value]]:
    """The paths at which not all configs say the same."""
    return [line for line in by_path(configs) if _differs(line["values"], len(configs))]


def _differs(values: Mapping[str, Value], count: int) -> bool:
    return len(values) < count or any(value != next(iter(values.values())) for value in values.values())

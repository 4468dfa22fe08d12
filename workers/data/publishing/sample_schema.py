"""Schema and figures of samples as they pass by.

Holds: what is found does not depend on the order of samples; memory is bounded by the number of fields, which is bounded.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from trainhouse.events.model.dataset import MOST_FIELDS, DataField, FieldStatistics
from trainhouse.workers.data.errors import InvalidDataError
from trainhouse.workers.data.publishing.sample_fields import JSON

_TEXT: Final = frozenset({"txt", "text", "md", "cls", "csv", "html", "xml"})
_IMAGE: Final = frozenset({"jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff"})
_TYPES: Final[dict[type, str]] = {bool: "bool", int: "int", float: "float", str: "text", list: "list", dict: "object"}


@dataclass(slots=True)
class _Figures:
    samples: int = 0
    bytes: int = 0
    least: int = 0
    most: int = 0

    def add(self, size: int) -> None:
        self.least = min(self.least, size) if self.samples else size
        self.most = max(self.most, size)
        self.samples += 1
        self.bytes += size


class FieldFigures:
    """Sizes of each field of a split's samples."""

    def __init__(self) -> None:
        self._figures: dict[str, _Figures] = {}

    def add(self, fields: Mapping[str, bytes]) -> None:
        """Takes one sample."""
        for name, content in fields.items():
            self._figures.setdefault(name, _Figures()).add(len(content))

    def statistics(self) -> dict[str, FieldStatistics]:
        """The figures as a manifest has them."""
        return {
            name: FieldStatistics(samples=f.samples, bytes=f.bytes, least_bytes=f.least, most_bytes=f.most)
            for name, f in sorted(self._figures.items())
        }


class SampleSchema:
    """Fields of all samples, and the columns of their `json`, with the types seen."""

    def __init__(self) -> None:
        self._samples = 0
        self._counts: dict[str, int] = {}
        self._types: dict[str, set[str]] = {}
        self._are_columns: dict[str, bool] = {}

    def add(self, key: str, fields: Mapping[str, bytes], columns: Mapping[str, Any] | None) -> None:
        """Takes one sample, whose `json` was read to `columns`. Raises InvalidDataError."""
        self._samples += 1
        for extension in fields:
            self._see(key, extension, _type_of(extension), is_column=False)
        for column, value in (columns or {}).items():
            if value is not None:
                self._see(key, f"{JSON}.{column}", _TYPES[type(value)], is_column=True)

    def _see(self, key: str, name: str, type_: str, *, is_column: bool) -> None:
        if name not in self._counts:
            if len(self._counts) >= MOST_FIELDS:
                raise InvalidDataError(f"sample {key!r}: more than {MOST_FIELDS} different fields, {name[:60]!r}; put them into fewer")
            if not 1 <= len(name) <= 1024:
                raise InvalidDataError(f"sample {key!r}: a column's name has {len(name)} characters; use 1 to 1000")
        if self._are_columns.setdefault(name, is_column) != is_column:
            raise InvalidDataError(f"sample {key!r}: both a member and a column of json are called {name[:60]!r}; rename one")
        self._counts[name] = self._counts.get(name, 0) + 1
        self._types.setdefault(name, set()).add(type_)

    def seen(self) -> dict[str, tuple[int, tuple[str, ...]]]:
        """Samples that have each field, and the types seen, by name."""
        return {name: (self._counts[name], tuple(sorted(self._types[name]))) for name in sorted(self._counts)}

    def fields(self) -> tuple[DataField, ...]:
        """The fields by name; a column that is always null has no type, and is none."""
        return tuple(
            DataField(name=name, type="|".join(sorted(self._types[name])), optional=self._counts[name] < self._samples)
            for name in sorted(self._counts)
        )


def columns_of(key: str, fields: Mapping[str, bytes]) -> dict[str, Any] | None:
    """The object in a sample's `json`; None where it has none, or another value. Raises InvalidDataError."""
    content = fields.get(JSON)
    if content is None:
        return None
    try:
        value = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise InvalidDataError(f"sample {key!r}: its json is none: {error}; mend it, or give it another extension") from error
    return value if isinstance(value, dict) else None


def is_text(extension: str) -> bool:
    """Whether a member with this extension is text."""
    return _type_of(extension) == "text"


def _type_of(extension: str) -> str:
    last = extension.rpartition(".")[2]
    return JSON if last == JSON else "text" if last in _TEXT else "image" if last in _IMAGE else "bytes"

"""Fields of one sample: the key and extension in a file's name, the bound on their bytes, and a row as JSON. Pure."""

from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final

import orjson

from trainhouse.workers.data.errors import InvalidDataError
from trainhouse.workers.data.publishing.bounded_files import MOST_SAMPLE_BYTES, is_utf_8

Fields = dict[str, bytes]
JSON: Final = "json"


def key_and_extension(name: str, where: str) -> tuple[str, str]:
    """Splits a name at the first dot after its folder. Raises InvalidDataError."""
    if not is_utf_8(name):
        raise InvalidDataError(f"{where}: its name is not in UTF-8; rename it")
    folder, slash, last = name.rpartition("/")
    stem, _, extension = last.partition(".")
    if not stem or not extension:
        raise InvalidDataError(f"{where}: a sample's file is called KEY.EXTENSION, as cat-1.jpg; rename it, or keep it elsewhere")
    return f"{folder}{slash}{stem}", extension.lower()


def small_enough(size: int, where: str) -> None:
    """Judges the bytes of a sample. Raises InvalidDataError."""
    if size > MOST_SAMPLE_BYTES:
        raise InvalidDataError(f"{where}: a sample of {size} bytes or more; at most {MOST_SAMPLE_BYTES} are taken: cut it into several")


def canonical(row: dict[str, Any]) -> bytes:
    """The JSON of a row, equal for equal values; times and decimals are text in it. Raises TypeError."""
    return orjson.dumps(row, option=orjson.OPT_SORT_KEYS | orjson.OPT_PASSTHROUGH_DATETIME, default=_as_text)


def _as_text(value: object) -> Any:
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(type(value).__name__)

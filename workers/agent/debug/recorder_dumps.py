"""Reads the dumps of torch's flight recorder: which collective a rank was in when it gave up.

Format: torch's `FlightRecorder`, version 2.x, pickled (what a watchdog writes) or JSON; the file is TORCH_FR_DUMP_TEMP_FILE + rank.

Holds: a dump is a rank's own file, so it is not trusted: unpickling makes plain values only, from MAX_BYTES at most, and only short texts
and numbers are made words of; whatever is not as expected gives no line, and never an error.
"""

import io
import pickle  # nosec B403  # only by an unpickler that names no class
import re
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final, NoReturn

import orjson

from trainhouse.events.wire.collectives import AtCollective
from trainhouse.workers.launcher import ports
from trainhouse.workers.untrusted import read_plain

MAX_BYTES: Final = 16 * 1024 * 1024
MAX_GROUPS: Final = 4
MAX_TEXT_CHARS: Final = 256
MAX_DIMENSIONS: Final = 8
MAX_MEMBERS: Final = 10_000


class InvalidDumpError(Exception):
    """The bytes are no dump of the flight recorder."""


class _PlainValues(pickle.Unpickler):
    """Makes dicts, lists, tuples, numbers and texts; names no class and calls nothing."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise InvalidDumpError(f"it names {module}.{name}")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise InvalidDumpError("it refers to something outside itself")


def prefix_in(rank_folder: str) -> str:
    """Returns the value of TORCH_FR_DUMP_TEMP_FILE for a rank."""
    return f"{rank_folder}/{ports.RECORDER}"


def words_of(path: Path, rank: int) -> str:
    """The lines for the reason of a rank's end, MAX_GROUPS at most; empty without a dump. Blocks while it reads a file."""
    try:
        raw = read_plain(path, MAX_BYTES + 1)
        return "\n".join(at.line() for at in standing(rank, parse(raw))[:MAX_GROUPS])
    except Exception:  # a rank's own file: whatever is in it, how the rank ended is told
        return ""


def parse(raw: bytes) -> Mapping[str, Any]:
    """A dump as plain values. Raises InvalidDumpError."""
    if len(raw) > MAX_BYTES:
        raise InvalidDumpError(f"it is longer than {MAX_BYTES} bytes")
    try:
        found = orjson.loads(raw) if raw[:1] == b"{" else _PlainValues(io.BytesIO(raw)).load()
    except InvalidDumpError:
        raise
    except Exception as error:  # an unpickler raises whatever damaged bytes lead it to
        raise InvalidDumpError(f"it cannot be read: {error}") from error
    if not isinstance(found, dict) or not isinstance(found.get("entries", []), list):
        raise InvalidDumpError("it is no dump of the flight recorder")
    return found


def standing(rank: int, dump: Mapping[str, Any]) -> list[AtCollective]:
    """Position of the rank in each process group's collectives: groups with unfinished ones first, then by the group's id."""
    entries: dict[str, dict[int, Mapping[str, Any]]] = {}
    names: dict[str, str] = {}
    for entry in dump.get("entries", []):
        if isinstance(entry, dict) and not entry.get("is_p2p") and isinstance(entry.get("collective_seq_id"), int):
            group = _text(entry.get("pg_id", 0))
            entries.setdefault(group, {})[entry["collective_seq_id"]] = entry
            names.setdefault(group, _name(entry))
    found = [_in_group(rank, names[g], of, _status(dump, g), _members(dump, of)) for g, of in sorted(entries.items())]
    return sorted(found, key=lambda at: at.done >= at.begun)


def _in_group(rank: int, name: str, of: dict[int, Mapping[str, Any]], status: Mapping[str, Any], members: tuple[int, ...]) -> AtCollective:
    begun = max(_number(status.get("last_enqueued_collective")), *of)
    completed = [seq for seq, entry in of.items() if entry.get("state") == "completed"]
    done = max(_number(status.get("last_completed_collective")), *completed, -1)
    at = done + 1 if 0 <= done < begun else begun
    return AtCollective(rank, name, at, _what(of.get(at)), begun, done, members)


def _what(entry: Mapping[str, Any] | None) -> str:
    if entry is None:
        return "unknown"
    sizes, types = entry.get("input_sizes"), entry.get("input_dtypes")
    shapes = ",".join(f"[{','.join(map(_text, s[:MAX_DIMENSIONS]))}]" for s in sizes[:3]) if isinstance(sizes, list) else ""
    kinds = ",".join(sorted({_text(t) for t in types[:3]})) if isinstance(types, list) else ""
    return " ".join(filter(None, (_text(entry.get("profiling_name", "unknown")), shapes, kinds)))


def _name(entry: Mapping[str, Any]) -> str:
    group = entry.get("process_group")
    parts = [text for text in map(_text, group[:2]) if text] if isinstance(group, list | tuple) else []
    return parts[-1] if parts else "default"


def _status(dump: Mapping[str, Any], group: str) -> Mapping[str, Any]:
    of = dump.get("pg_status")
    found = of.get(group) if isinstance(of, dict) else None
    return found if isinstance(found, dict) else {}


def _members(dump: Mapping[str, Any], of: dict[int, Mapping[str, Any]]) -> tuple[int, ...]:
    """The ranks of a group: by its name, or of the only group that there is."""
    config = dump.get("pg_config")
    if not isinstance(config, dict) or not config:
        return ()
    group = next(iter(of.values())).get("process_group")
    name = _text(group[0]) if isinstance(group, list | tuple) and group else ""
    found = config.get(name) or (next(iter(config.values())) if len(config) == 1 else None)
    text = found.get("ranks") if isinstance(found, dict) else None
    return tuple(int(m[0]) for m in islice(re.finditer(r"\d{1,9}", text), MAX_MEMBERS)) if isinstance(text, str) else ()


def _number(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        return -1


def _text(value: Any) -> str:
    """Empty for what is neither text nor number: a list that holds itself many times over has words without end."""
    return str(value)[:MAX_TEXT_CHARS] if isinstance(value, str | int | float) else ""

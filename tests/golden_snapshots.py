"""The committed snapshots of each format, the journals that they were folded from, and what the decisions of each level hold.

`python -m tests.golden_snapshots` writes the sample of a format, and the shape of a level, that has none yet; it changes no file that is
there. The journals were written once, by the first format's program: later programs fold them as they are.
"""

import gzip
from pathlib import Path
from typing import Any, Final

import orjson

from trainhouse.events.wire.schemas import json_schema
from trainhouse.events.wire.topic_types import TOPIC_EVENTS
from trainhouse.events.wire.topics import DECISIONS, DIRECTORY, REGISTRY, TUNING
from trainhouse.scheduler.core.intake.directory import DirectoryMachine
from trainhouse.scheduler.core.protocol.journal import begin, fold_bytes
from trainhouse.scheduler.core.protocol.machine import Machine
from trainhouse.scheduler.core.registry.registry_machine import RegistryMachine
from trainhouse.scheduler.core.schedule import ScheduleMachine
from trainhouse.scheduler.core.studies.study_machine import TunerMachine

FOLDER: Final = Path(__file__).parent / "data" / "snapshots"
MACHINES: Final[tuple[Machine[Any], ...]] = (ScheduleMachine(), DirectoryMachine(control_partitions=4), RegistryMachine(), TunerMachine())

JOURNALS: Final = {"schedule": DECISIONS, "directory": DIRECTORY, "registry": REGISTRY, "tuning": TUNING}


def journal(machine: Machine[Any]) -> list[bytes]:
    """The records of a partition's life, in order."""
    return gzip.decompress((FOLDER / f"{machine.name}.journal.gz").read_bytes()).splitlines()


def snapshot(machine: Machine[Any], format_: int) -> bytes:
    """The state at the end of that life, as the first program with this format wrote it."""
    return gzip.decompress(_place(machine, format_).read_bytes())


def folded_state(machine: Machine[Any]) -> Any:
    """The state at the end of that life, as this program folds it."""
    folded = begin(machine, 0)
    for value in journal(machine):
        folded, _ = fold_bytes(machine, folded, value)
    return folded.state


def shape(machine: Machine[Any]) -> dict[str, list[str]]:
    """The fields of each decision that the machine's journal may hold, those of their parts included."""
    found = {}
    for kind in TOPIC_EVENTS[JOURNALS[machine.name]]:
        schema = json_schema(kind)
        parts = {"": schema, **{f"{name}.": part for name, part in schema.get("$defs", {}).items()}}
        found[kind.event_type] = sorted(f"{name}{field}" for name, part in parts.items() for field in part.get("properties", {}))
    return found


def committed_shape(machine: Machine[Any], level: int) -> dict[str, list[str]]:
    """The same of a level, as it was when its first program was made."""
    found: dict[str, list[str]] = orjson.loads(_shape_place(machine, level).read_bytes())
    return found


def levels(machine: Machine[Any]) -> list[int]:
    """Those that are committed, the newest last."""
    return sorted(int(place.stem.rpartition("-")[2]) for place in FOLDER.glob(f"{machine.name}-level-*.json"))


def _shape_place(machine: Machine[Any], level: int) -> Path:
    return FOLDER / f"{machine.name}-level-{level}.json"


def _place(machine: Machine[Any], format_: int) -> Path:
    return FOLDER / f"{machine.name}-{format_}.json.gz"


if __name__ == "__main__":
    for each in MACHINES:
        place = _place(each, each.formats.newest)
        if not place.exists():
            place.write_bytes(gzip.compress(each.dump(folded_state(each)), mtime=0))
            print(place)
        place = _shape_place(each, each.fold_version)
        if not place.exists():
            place.write_bytes(orjson.dumps(shape(each), option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS) + b"\n")
            print(place)

"""The committed snapshots of each format, and the journals that they were folded from.

`python -m tests.golden_snapshots` writes the sample of a format that has none yet; it changes no file that is there. The journals were
written once, by the first format's program: later programs fold them as they are.
"""

import gzip
from pathlib import Path
from typing import Any, Final

from trainhouse.scheduler.core.directory import DirectoryMachine
from trainhouse.scheduler.core.journal import begin, fold_bytes
from trainhouse.scheduler.core.machine import Machine
from trainhouse.scheduler.core.schedule import ScheduleMachine

FOLDER: Final = Path(__file__).parent / "data" / "snapshots"
MACHINES: Final[tuple[Machine[Any], ...]] = (ScheduleMachine(), DirectoryMachine(control_partitions=4))


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


def _place(machine: Machine[Any], format_: int) -> Path:
    return FOLDER / f"{machine.name}-{format_}.json.gz"


if __name__ == "__main__":
    for each in MACHINES:
        place = _place(each, each.formats.newest)
        if not place.exists():
            place.write_bytes(gzip.compress(each.dump(folded_state(each)), mtime=0))
            print(place)

"""A process of a journal that starts cold and ends when it has decided: what `cold_start` measures.

`python -m tests.bench.cold_process JOURNAL BOOTSTRAP FOLDER` prints when it had imported, recovered and decided, by the steady clock.
"""

import asyncio
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class FolderStore:
    """Snapshots as files."""

    folder: Path

    def put(self, key: str, data: bytes) -> None:
        place = self.folder / key
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)

    def get(self, key: str) -> bytes | None:
        place = self.folder / key
        return place.read_bytes() if place.is_file() else None

    def keys(self, prefix: str, start_after: str = "") -> Iterator[str]:
        names = sorted(str(p.relative_to(self.folder)) for p in self.folder.rglob("*") if p.is_file())
        return iter([name for name in names if name.startswith(prefix) and name > start_after])

    def delete(self, key: str) -> None:
        (self.folder / key).unlink(missing_ok=True)


def queued_s() -> float:
    """How long this process was ready to run and others had the processors: on an idle machine none."""
    return int(Path("/proc/self/schedstat").read_text().split()[1]) / 1e9


async def decided(journal: str, bootstrap: str, folder: Path) -> dict[str, Any]:
    """Runs a host of the journal until a record of its own counted."""
    from trainhouse.events.runtime.clock import SystemClock
    from trainhouse.events.settings import KafkaSettings
    from trainhouse.events.wire.topics import ADMISSION, CONTROL, DIRECTORY
    from trainhouse.scheduler.core.intake.directory import DirectoryMachine
    from trainhouse.scheduler.core.protocol.machine import Machine
    from trainhouse.scheduler.core.schedule import ScheduleMachine
    from trainhouse.scheduler.stream.journal.host import JournalHost
    from trainhouse.scheduler.stream.journal.settings import host_settings
    from trainhouse.scheduler.stream.journal.snapshots import Snapshots
    from trainhouse.scheduler.stream.kafka.log import KafkaLog
    from trainhouse.scheduler.stream.settings import StreamSettings

    machine: Machine[Any] = DirectoryMachine(control_partitions=1) if journal == DIRECTORY else ScheduleMachine()
    topic = ADMISSION if journal == DIRECTORY else CONTROL
    imported_s = time.monotonic()
    log = KafkaLog(KafkaSettings(bootstrap=bootstrap, partitions=1))
    settings = StreamSettings()
    keeper = Snapshots(log, FolderStore(folder), journal, machine, every_records=settings.snapshot_every_records)
    host = JournalHost(host_settings(settings, journal, topic, transactional=journal != DIRECTORY), log, machine, keeper, SystemClock())
    host.on_assigned({0})
    task = asyncio.create_task(host.run())
    await asyncio.wait([task, asyncio.create_task(host.ready.wait())], return_when=asyncio.FIRST_COMPLETED)
    recovered_s, follower = time.monotonic(), host.followers[0]
    await follower.until(lambda: bool(follower.own_seq or follower.halted))
    found = {"decided_s": time.monotonic(), "imported_s": imported_s, "recovered_s": recovered_s, "cpu_s": time.process_time()} | {
        "queued_s": queued_s()
    }
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await log.close()
    return found | {"seq": follower.folded.seq, "halted": follower.halted}


if __name__ == "__main__":
    import orjson

    print(orjson.dumps(asyncio.run(decided(sys.argv[1], sys.argv[2], Path(sys.argv[3])))).decode())

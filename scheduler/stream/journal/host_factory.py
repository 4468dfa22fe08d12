"""Puts a journal's host together from its parts, alike for every process that has one."""

from collections.abc import Sequence
from importlib import import_module
from typing import TypeVar

from trainhouse.events.archive.partition import ArchiveStore
from trainhouse.events.wire.topics import MAX_INPUT_BYTES
from trainhouse.scheduler.core.protocol.batch import Limits
from trainhouse.scheduler.core.protocol.machine import Machine
from trainhouse.scheduler.stream.interfaces import Clock, JournalArchive, Log, SnapshotStore
from trainhouse.scheduler.stream.journal.host import HostSettings, JournalHost, Live, Observer, Vetting
from trainhouse.scheduler.stream.journal.snapshots import Snapshots
from trainhouse.scheduler.stream.metrics import JournalMeters
from trainhouse.scheduler.stream.settings import StreamSettings

S = TypeVar("S")
# Intake holds outsiders to MAX_INPUT_BYTES; what intake itself adds to an admitted job comes on top.
INTERNAL_INPUT_BYTES = MAX_INPUT_BYTES + 64 * 1024


def journal_host(
    journal: str,
    input_topic: str,
    log: Log,
    machine: Machine[S],
    snapshots: SnapshotStore,
    clock: Clock,
    settings: StreamSettings,
    *,
    transactional: bool,
    observers: Sequence[Observer[S]] = (),
    meters: JournalMeters | None = None,
    archive: JournalArchive | None = None,
    vetting: Vetting[S] | None = None,
    live: Live[S] | None = None,
    grows: bool = False,
) -> JournalHost[S]:
    """A host of one journal.

    `transactional`: its effects go through a producer that fences the one before it. `observers` see each own folded record. `archive`:
    where records are that the log no longer holds. `vetting`: refuses inputs before they are decided on, by the partitions' states. `live`:
    what of its inputs goes beside it. `grows`: the journal may get more partitions while it runs.
    """
    host_settings = HostSettings(
        journal=journal,
        input_topic=input_topic,
        owner=settings.owner_name(),
        transactional=transactional,
        takeover_s=settings.takeover_s,
        limits=Limits(batch_count=settings.batch_count, input_bytes=INTERNAL_INPUT_BYTES),
        grows=grows,
    )
    keeper = Snapshots(log, snapshots, journal, machine, every_records=settings.snapshot_every_records, archive=archive)
    return JournalHost(host_settings, log, machine, keeper, clock, observers, meters, vetting, live)


def stores(settings: StreamSettings) -> tuple[SnapshotStore, ArchiveStore]:
    """The stores that settings name: the scheduler itself knows none."""
    module, _, function = settings.stores.partition(":")
    found: tuple[SnapshotStore, ArchiveStore] = getattr(import_module(module), function)()
    return found

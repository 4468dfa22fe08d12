"""Settings of a journal's host and of the owners in it.

Never: reads a file or the environment; those of the process are `StreamSettings`.
"""

from dataclasses import dataclass, field

from trainhouse.events.wire.topics import MAX_INPUT_BYTES
from trainhouse.scheduler.core.cycle.dirty_pools import RELOOK_MS
from trainhouse.scheduler.core.protocol.batch import Limits
from trainhouse.scheduler.stream.settings import StreamSettings

# Intake holds outsiders to MAX_INPUT_BYTES; what intake itself adds to an admitted job comes on top.
INTERNAL_INPUT_BYTES = MAX_INPUT_BYTES + 64 * 1024


@dataclass(frozen=True, slots=True)
class Pace:
    """Intervals at which an owner ticks, waits and retries. `look_s`: time alone changes what a cycle sees (see `dirty_pools`)."""

    idle_tick_s: float = 0.8
    look_s: float = RELOOK_MS / 1000
    busy_tick_s: float = 0.02
    role_check_s: float = 0.1
    fold_timeout_s: float = 15.0
    retry_s: float = 0.2
    stopped_retry_s: float = 30.0
    max_unpublished: int = 2_000


@dataclass(frozen=True, slots=True)
class HostSettings:
    """Settings of one journal host. `transactional`: effects go through a fencing transactional producer. `grows`: partitions
    that are recorded while it runs are taken in.
    """

    journal: str
    input_topic: str
    owner: str
    transactional: bool
    takeover_s: float = 2.0
    limits: Limits = field(default_factory=Limits)
    pace: Pace = field(default_factory=Pace)
    grows: bool = False


def host_settings(settings: StreamSettings, journal: str, input_topic: str, *, transactional: bool, grows: bool = False) -> HostSettings:
    """Returns the settings of this process's host of a journal, with an owner's name of its own."""
    return HostSettings(
        journal=journal,
        input_topic=input_topic,
        owner=settings.owner_name(),
        transactional=transactional,
        takeover_s=settings.takeover_s,
        limits=Limits(batch_count=settings.batch_count, input_bytes=INTERNAL_INPUT_BYTES),
        grows=grows,
    )

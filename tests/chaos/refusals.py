"""Brokers that refuse what they are sent, for a while: by its size, or by its time.

Holds: what is refused is refused for good by the brokers' own checks, as if somebody had set the topics wrong; afterwards each topic is as
the table of topics has it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource  # type: ignore[attr-defined]

from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire import topics

# The brokers' own marks of ended transactions have 78 bytes, and what is refused of those is never written again: for ever no transaction
# of that id begins. No record of ours is so small, and none reaches a broker within a millisecond of its own time.
TINY_BYTES, SHORT_MS = 100, 1
TIMEOUT_S = 120.0
SIZE, TIME = "size", "time"
MAX_BYTES, STAMPS, BEFORE = "max.message.bytes", "message.timestamp.type", "message.timestamp.before.max.ms"
OF: Final[dict[str, tuple[str, ...]]] = {
    "journals": (topics.DECISIONS, topics.DIRECTORY, topics.SNAPSHOTS),
    "effects": (topics.ALLOCATIONS, topics.STATUS, topics.ADMISSION),
    "reports": (topics.CONTROL, topics.METRICS, topics.LOGS, topics.CHECKPOINTS),
}
# As a fault names them.
WAYS: Final = tuple(f"{group} by {why}" for group in OF for why in (SIZE, TIME))
Change = tuple[str, AlterConfigOpType, str | None]


def refuse(settings: KafkaSettings, how: str) -> bool:
    """From now on the topics take nothing; False where no broker answers. Blocks."""
    _, why = how.split(" by ")
    if why == SIZE:
        return _set(settings, how, lambda _: [(MAX_BYTES, AlterConfigOpType.SET, str(TINY_BYTES))])
    return _set(settings, how, lambda _: [(STAMPS, AlterConfigOpType.SET, "CreateTime"), (BEFORE, AlterConfigOpType.SET, str(SHORT_MS))])


def accept(settings: KafkaSettings, how: str) -> bool:
    """They are as in the table again; False where no broker answers. Blocks."""

    def back(name: str) -> list[Change]:
        config = topics.topic(name).config()
        stamps = (STAMPS, AlterConfigOpType.SET, config[STAMPS]) if STAMPS in config else (STAMPS, AlterConfigOpType.DELETE, None)
        return [(MAX_BYTES, AlterConfigOpType.SET, config[MAX_BYTES]), stamps, (BEFORE, AlterConfigOpType.DELETE, None)]

    return _set(settings, how, back)


def _set(settings: KafkaSettings, how: str, changes_of: Callable[[str], list[Change]]) -> bool:
    names = OF[how.split(" by ")[0]]
    resources = [
        ConfigResource(
            ConfigResource.Type.TOPIC,
            name,
            incremental_configs=[ConfigEntry(key, value, incremental_operation=kind) for key, kind, value in changes_of(name)],
        )
        for name in names
    ]
    try:
        admin = AdminClient(settings.client_config(log_level=0))
        for future in admin.incremental_alter_configs(resources, request_timeout=TIMEOUT_S).values():
            future.result(TIMEOUT_S)
    except (KafkaException, TimeoutError):
        return False
    return True

"""Faults of an emulated campaign: drawn from the seed, done one after another while jobs run, and undone after their time."""

from __future__ import annotations

import random
from collections.abc import Callable
from enum import StrEnum
from typing import Final

from tests.chaos.emulated.processes import MOMENTS
from tests.chaos.emulated.world import PARTITIONS, EmulatedWorld
from tests.simulation.schedule_load import fault_of_a_node
from tests.support.extremes import drawn, records
from trainhouse.events import InvalidEvent, JobAdmitted, decode
from trainhouse.events.wire import topics
from trainhouse.events.wire.codec import HEADERS
from trainhouse.events.wire.topic_types import TOPIC_EVENTS

HOUR_MS: Final = 3_600_000
JUMPS_MS: Final = (HOUR_MS, -HOUR_MS, 24 * HOUR_MS, -24 * HOUR_MS, 40, -3_000)
HELD_S: Final = 30.0
EXTREMES_EACH: Final = 5


class Kind(StrEnum):
    """What happens: to a scheduler, to the brokers, to the store, to a node, or on the control topic."""

    KILL = "kill"
    PAUSE = "pause"
    HOLD = "hold"
    CUT = "cut"
    CLOCK = "clock"
    BROKER_CLOCK = "broker clock"
    BROKERS_AWAY = "brokers away"
    BROKERS_SLOW = "brokers slow"
    REFUSED = "refused"
    STORE_AWAY = "store away"
    NODE = "node"
    EXTREMES = "extremes"
    BOTH_ASSIGNED = "both assigned"


# How many of a hundred.
SHARES: Final = {
    Kind.KILL: 12,
    Kind.PAUSE: 8,
    Kind.HOLD: 16,
    Kind.CUT: 5,
    Kind.CLOCK: 8,
    Kind.BROKER_CLOCK: 4,
    Kind.BROKERS_AWAY: 4,
    Kind.BROKERS_SLOW: 4,
    Kind.REFUSED: 6,
    Kind.STORE_AWAY: 4,
    Kind.NODE: 15,
    Kind.EXTREMES: 10,
    Kind.BOTH_ASSIGNED: 4,
}


def dealt(seed: int, count: int) -> list[Kind]:
    """So many kinds in their shares, shuffled."""
    rng = random.Random(f"emulated {seed}")
    kinds = [kind for kind, share in SHARES.items() for _ in range(max(1, round(share * count / 100)))]
    while len(kinds) < count:
        kinds.append(rng.choice(list(SHARES)))
    rng.shuffle(kinds)
    return kinds[:count]


class Striker:
    """Does faults to a world. Of extremes there is a stock, drawn beforehand."""

    def __init__(self, world: EmulatedWorld, seed: int, count: int) -> None:
        self.world, self.rng = world, random.Random(f"striker {seed}")
        self._moments: list[str] = []
        stock = drawn(records(TOPIC_EVENTS[topics.CONTROL]), seed, 40 + count)
        self._stock = [value for value in map(_elsewhere, stock) if _harmless(value)]

    def strike(self, kind: Kind) -> None:
        """One fault; what lasts is undone by the clock."""
        getattr(self, f"_{kind.name.lower()}")()

    def _process(self):  # type: ignore[no-untyped-def]
        return self.rng.choice(self.world.processes)

    def _later(self, seconds: float, undo: Callable[[], None]) -> None:
        self.world.loop.call_later(seconds, undo)

    def _flag(self, owner: object, name: str, value: object, calm: object, seconds: float) -> None:
        setattr(owner, name, value)
        self._later(seconds, lambda: setattr(owner, name, calm))

    def _kill(self) -> None:
        self._process().kill()

    def _pause(self) -> None:
        self._process().pause(self.rng.uniform(1, 60))

    def _hold(self) -> None:
        self._moments = self._moments or self.rng.sample(sorted(MOMENTS), len(MOMENTS))
        self._process().hold = (self._moments.pop(), HELD_S)

    def _cut(self) -> None:
        self._flag(self._process(), "cut", True, False, self.rng.uniform(1, 40))

    def _clock(self) -> None:
        self._flag(self._process().clock, "offset_ms", self.rng.choice(JUMPS_MS), 0, self.rng.uniform(1, 120))

    def _broker_clock(self) -> None:
        self._flag(self.world.broker, "offset_ms", self.rng.choice(JUMPS_MS), 0, self.rng.uniform(1, 120))

    def _brokers_away(self) -> None:
        self._flag(self.world.troubles, "away", True, False, self.rng.uniform(1, 20))

    def _brokers_slow(self) -> None:
        self._flag(self.world.troubles, "slow", True, False, self.rng.uniform(1, 30))

    def _refused(self) -> None:
        why, seconds = self.rng.choice(["size", "time"]), self.rng.uniform(1, 20)
        self._flag(self.world.troubles, "refuses", why, "", seconds)
        if why == "size":
            most = type(self.world.broker).max_bytes
            self._flag(self.world.broker, "max_bytes", 100, most, seconds)

    def _store_away(self) -> None:
        self._flag(self.world.store, "away", True, False, self.rng.uniform(1, 30))

    def _node(self) -> None:
        fault_of_a_node(self.world)

    def _extremes(self) -> None:
        for _ in range(EXTREMES_EACH):
            self.world.outsider(self.rng.randrange(PARTITIONS), self.rng.choice(self._stock))

    def _both_assigned(self) -> None:
        for process in self.world.processes:
            if process.alive and process.awake.is_set() and process.host.ready.is_set():
                process.host.on_assigned(set(range(PARTITIONS)))


def _elsewhere(value: bytes) -> bytes:
    """About nodes and pools that are not the fleet's; what is signed keeps strangers from those."""
    for name, other in ((b'"n1"', b'"x1"'), (b'"n2"', b'"x2"'), (b'"default"', b'"other"')):
        value = value.replace(name, other)
    return value


def _harmless(value: bytes) -> bool:
    """Not a valid job of no pool's name: that would run on the fleet, and never end."""
    try:
        return not isinstance(decode(value, HEADERS).event, JobAdmitted)
    except InvalidEvent:
        return True

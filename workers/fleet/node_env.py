"""Environment of an emulated node: the parts of the fleet that it uses.

Never: known to the agent, which sees its node alone.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from trainhouse.workers.agent.core import AttemptKey, Identity
from trainhouse.workers.fleet.disk import Disk
from trainhouse.workers.fleet.gangs import Gangs
from trainhouse.workers.fleet.scripts import Scripts
from trainhouse.workers.fleet.timers import Timers
from trainhouse.workers.fleet.uplink import Uplink

if TYPE_CHECKING:
    from trainhouse.workers.fleet.node import EmulatedNode


class World(Protocol):
    """The fleet, as one node sees it. `run_id` names this start of the emulator; `partition` is the pool's."""

    run_id: str
    pool: str
    partition: int
    timers: Timers
    gangs: Gangs
    scripts: Scripts

    def uplink(self, identity: Identity, disk: Disk, acked: Callable[[AttemptKey], None]) -> Uplink:
        """A way to the brokers for one start of an agent."""

    def acked(self, then: Callable[[int], None]) -> None:
        """Calls `then(now_ms)` when the present call into the producer is over."""

    def leaving(self, node: "EmulatedNode") -> None:
        """The node is told when the brokers hold all that was sent to control."""

    def changed(self, node: "EmulatedNode") -> None:
        """The node may have other jobs than before."""

    def share(self, *names: object) -> float:
        """A number in [0, 1) that follows from the names."""

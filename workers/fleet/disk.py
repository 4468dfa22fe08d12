"""An emulated node's disk and process table: what outlives a start of its agent.

Holds: fences, order tokens and the partition written to as the agent last had them; one folder per attempt, until the agent is done with
it; what ranks wrote and nobody has sent yet. Never: outlives the emulator's process.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from trainhouse.events import Event, GangAllocated, NodePlacement, Order
from trainhouse.workers.agent.core import AgentState, AttemptKey, Identity, RankGone
from trainhouse.workers.agent.core.agent_state import Fence

MAX_FENCES = 256  # a node of its own keeps more; there are thousands of these in one memory
MAX_UNSENT = 1_000


@dataclass
class Folder:
    """One attempt on one node. `launched`: every rank has, or had, a process; `exits`: how those that are gone ended."""

    allocation: GangAllocated
    placement: NodePlacement
    launched: bool = False
    exits: dict[int, RankGone] = field(default_factory=dict)

    @property
    def ranks_left(self) -> list[int]:
        return [r for r in self.placement.ranks if r not in self.exits] if self.launched else []


@dataclass(frozen=True, slots=True)
class Unsent:
    """An event that a rank wrote."""

    topic: str
    event: Event
    event_id: str


@dataclass
class Disk:
    """One node's."""

    fences: Mapping[str, Fence] = field(default_factory=dict)
    order: Mapping[int, Order] = field(default_factory=dict)
    control: int | None = None
    folders: dict[AttemptKey, Folder] = field(default_factory=dict)
    unsent: deque[Unsent] = field(default_factory=lambda: deque(maxlen=MAX_UNSENT))

    def keep(self, state: AgentState) -> None:
        """Stores the agent's state beyond its death."""
        self.fences, self.order, self.control = state.fences, state.order, state.control

    def state(self, identity: Identity) -> AgentState:
        """State at the next start of the agent."""
        return AgentState(identity, fences=self.fences, order=self.order, max_fences=MAX_FENCES, control=self.control)

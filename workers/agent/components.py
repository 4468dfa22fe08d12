"""Components that the agent's loop drives, and the inputs that reach it through its inbox.

Holds: plain data; `main` makes it.
"""

import queue
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from trainhouse.events import NodeAccess, NodeProbed, OperationReplied
from trainhouse.workers.agent.accesses import NodeAudit
from trainhouse.workers.agent.core import AgentInput
from trainhouse.workers.agent.follower import Deaf, Located, Moved, OperationAsked
from trainhouse.workers.agent.launch.attempt_dirs import StateFile
from trainhouse.workers.agent.launch.cleanup import Cleaner
from trainhouse.workers.agent.launch.launching import RankStarter
from trainhouse.workers.agent.node.notice_sources import NoticeWatch
from trainhouse.workers.agent.node.registration import NodeFacts, Pulse
from trainhouse.workers.agent.peer_memory.holder_keeper import HolderKeeper
from trainhouse.workers.agent.probe.prober import Prober
from trainhouse.workers.agent.rank_operations import Operations
from trainhouse.workers.agent.ship.outbox import Outbox
from trainhouse.workers.agent.ship.output_sealer import OutputSealer
from trainhouse.workers.agent.ship.own_states import OwnStatesUploader
from trainhouse.workers.agent.ship.reports import Reports
from trainhouse.workers.agent.ship.shipper import Shipper

Message = AgentInput | Located | Moved | OperationAsked | Deaf | OperationReplied | NodeAccess | NodeProbed
Inbox = queue.SimpleQueue[Message]


class Listener(Protocol):
    """Source of commands; see `follower`."""

    def start(self) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class Parts:
    """Components that the loop drives."""

    inbox: Inbox
    listener: Listener
    outbox: Outbox
    reports: Reports
    shipper: Shipper
    starter: RankStarter
    operations: Operations
    audit: NodeAudit
    notices: NoticeWatch
    prober: Prober
    own_states: OwnStatesUploader
    sealer: OutputSealer
    cleaner: Cleaner
    facts: NodeFacts
    pulse: Pulse
    state_file: StateFile
    workers: ThreadPoolExecutor
    poll_interval_s: float
    secrets_refresh_s: float = 30.0
    holder: HolderKeeper | None = None

"""Access to holders of chunks by leave of the node's agent."""

from pathlib import Path

from trainhouse.checkpointing.lease.lease_client import LeaseClient, LeaseUnavailableError
from trainhouse.checkpointing.lease.wire import HolderReply
from trainhouse.checkpointing.peer_memory.peers import Grant
from trainhouse.checkpointing.settings import StoreSettings

TIMEOUT_S = 5.0
"""Shorter than for the store, without which nothing goes on."""


class AgentPeers:
    """Of one rank."""

    def __init__(self, lease: Path, timeout_s: float = TIMEOUT_S) -> None:
        self._leave = LeaseClient(lease, timeout_s)

    def holder(self) -> Grant | str | None:
        """The agent chooses it."""
        return holder_of(self._reply(""))

    def reach(self, node_id: str) -> Grant | str:
        """By the record of that node."""
        return grant_of(self._reply(node_id))

    def _reply(self, node_id: str) -> HolderReply:
        try:
            return self._leave.holder(node_id)
        except LeaseUnavailableError as error:
            return HolderReply(why=str(error))


def holder_of(reply: HolderReply) -> Grant | str | None:
    """Access of a reply, the reason why there is none, or None where no other node of the pool offers memory."""
    return None if reply.get("kind") == "none" else grant_of(reply)


def grant_of(reply: HolderReply) -> Grant | str:
    """Access of a reply, or the reason why there is none."""
    try:
        return Grant(reply["node_id"], reply["address"], int(reply["port"]), reply["token"])
    except KeyError:
        return reply.get("why", "this node's agent gives no reason")


def peers_of(settings: StoreSettings) -> AgentPeers | None:
    """Returns access to holders where an agent gives leave to the store; else there is none."""
    return AgentPeers(settings.lease) if settings.lease is not None else None

"""Call by which an agent answers a request for a tunnel: an address of the gateway, and a signature by the node's key.

Holds: pure. The signature covers the request's id and its nonce, under a name that no topic has.
"""

from typing import Final
from urllib.parse import quote

SIGNED_AS: Final = "tunnel"
MAX_MESSAGE_BYTES: Final = 64 * 1024
"""Of one message of a tunnel, in either direction."""
TICKET_HEADER: Final = "X-Trainhouse-Ticket"


def node_path(tunnel: str) -> str:
    """Path of the gateway at which an agent calls."""
    return f"{client_path(tunnel)}/node"


def client_path(tunnel: str) -> str:
    """Path of the gateway at which the tunnel's user connects."""
    return f"/v1/tunnels/{quote(tunnel, safe='')}"


def call_bytes(tunnel: str, nonce: str) -> bytes:
    """Text that the agent signs."""
    return f"{tunnel}\0{nonce}".encode()

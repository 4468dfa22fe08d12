"""Call by which an agent answers a request for a tunnel: an address of the gateway, and a signature by the node's key.

Holds: pure. The signature covers the request's id and its nonce, under a name that no topic has.
"""

from typing import Final
from urllib.parse import quote, urlsplit

SIGNED_AS: Final = "tunnel"
MAX_MESSAGE_BYTES: Final = 64 * 1024
"""Of one message of a tunnel, in either direction."""
TICKET_HEADER: Final = "X-Trainhouse-Ticket"
_PORTS: Final = {"http": 80, "https": 443}


def node_path(tunnel: str) -> str:
    """Path of the gateway at which an agent calls."""
    return f"{client_path(tunnel)}/node"


def client_path(tunnel: str) -> str:
    """Path of the gateway at which the tunnel's user connects."""
    return f"/v1/tunnels/{quote(tunnel, safe='')}"


def call_bytes(tunnel: str, nonce: str) -> bytes:
    """Text that the agent signs."""
    return f"{tunnel}\0{nonce}".encode()


def address_of(url: str) -> tuple[str, str, int, str] | None:
    """Scheme, host, port and path of a gateway's address, so that two spellings of one compare alike; None for what is none."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in _PORTS or not parts.hostname or parts.username is not None or parts.query or parts.fragment:
        return None
    return parts.scheme, parts.hostname, port if port is not None else _PORTS[parts.scheme], parts.path.rstrip("/")

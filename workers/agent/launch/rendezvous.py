"""Listening sockets for rendezvous stores: one for each device slot, held for as long as the agent lives.

Holds: a port that was registered stays ours, so no other program can take it between the decision and the launch.
Never: accepts on them; the store of an attempt does, in a process of its own.
"""

import socket

from trainhouse.workers.agent.errors import InvalidSettingError, NotLaunchableError

BACKLOG = 2048


class RendezvousPorts:
    """`count` listening sockets on `address`."""

    def __init__(self, address: str, count: int) -> None:
        self._address = address
        try:
            sockets = [_listen(address, 0) for _ in range(count)]
        except OSError as error:
            raise InvalidSettingError(
                f"nothing can listen on {address}: {error.strerror}; set TRAINHOUSE_AGENT_ADDRESS to an address of this machine"
            ) from error
        self._sockets = {s.getsockname()[1]: s for s in sockets}
        self.ports = tuple(self._sockets)

    def socket_of(self, port: int) -> socket.socket:
        """The socket of a port. One that an earlier start of this agent had registered is opened again. Raises NotLaunchableError."""
        if port not in self._sockets:
            try:
                self._sockets[port] = _listen(self._address, port)
            except OSError as error:
                raise NotLaunchableError(
                    f"the rendezvous port {self._address}:{port} is not free any more: {error.strerror}", retryable=True
                ) from error
        return self._sockets[port]

    def spare(self) -> socket.socket:
        """A listening socket beside those of the slots; the caller closes it. Raises NotLaunchableError."""
        try:
            return _listen(self._address, 0)
        except OSError as error:
            raise NotLaunchableError(f"nothing can listen on {self._address}: {error.strerror}", retryable=True) from error

    def close(self) -> None:
        for s in self._sockets.values():
            s.close()


def _listen(address: str, port: int) -> socket.socket:
    family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener

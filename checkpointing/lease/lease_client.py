"""A rank's end of its leave to the store: asks the node's agent for signed requests.

Holds: requests that threads want at once go in one batch. An agent that is away, or is being started again, raises
LeaseUnavailableError, which
is as retryable as a store that is away. Belongs to one process: a fork makes its own.
Never: sends or gets bytes of objects here.
"""

import json
import socket
import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from botocore.exceptions import ConnectionError

from trainhouse.checkpointing.errors import ObjectStoreRefusedError, StaleEpochError
from trainhouse.checkpointing.lease.access_rule import Ask
from trainhouse.checkpointing.lease.wire import MAX_BATCH, MAX_LINE_BYTES, HolderReply, LeaseReply, SessionKeys, connected

TIMEOUT_S = 20.0


class LeaseUnavailableError(ConnectionError):
    """No answer to a request for leave: to be asked again. One of botocore's, so that all who try again over a store try again over it."""

    fmt = "{why}"


class _Waiting:
    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self.answer: LeaseReply | Exception | None = None


class LeaseClient:
    """Of one process. Safe to share by threads; blocks."""

    def __init__(self, path: Path, timeout_s: float = TIMEOUT_S) -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._waiting: deque[_Waiting] = deque()
        self._channel: socket.socket | None = None
        self._rest = b""

    def sign(self, ask: Ask) -> tuple[str, Mapping[str, str]]:
        """The URL and the headers of a request. Raises ObjectStoreRefusedError, StaleEpochError, LeaseUnavailableError."""
        mine = _Waiting(ask)
        self._waiting.append(mine)
        while mine.answer is None:
            with self._lock:  # who has it asks for all that wait
                if mine.answer is None:
                    self._ask([self._waiting.popleft() for _ in range(min(len(self._waiting), MAX_BATCH))])
        if isinstance(mine.answer, Exception):
            raise mine.answer
        return _signed(mine.answer)

    def session(self) -> SessionKeys | None:
        """Keys for the store that end by themselves; None where requests are signed one by one. Raises as `sign`."""
        with self._lock:
            answer = self._exchange({"session": True})
        found = answer.get("session")
        if isinstance(found, dict) and "kind" in found:
            _signed(cast(LeaseReply, found))
        return cast(SessionKeys | None, found)

    def holder(self, node_id: str) -> HolderReply:
        """Access to a holder of chunks; for an empty name to the one of this node's. Raises LeaseUnavailableError."""
        with self._lock:
            found = self._exchange({"holder": node_id}).get("holder")
        return cast(HolderReply, found) if isinstance(found, dict) else HolderReply(why="this node's agent offers no peer memory")

    def close(self) -> None:
        """Ends the connection; the next request opens another."""
        with self._lock:
            self._hang_up()

    def _ask(self, batch: list[_Waiting]) -> None:
        try:
            answers = self._exchange({"asks": [waiting.ask.as_dict() for waiting in batch]})["answers"]
            for waiting, answer in zip(batch, answers, strict=True):
                waiting.answer = answer
        except (LeaseUnavailableError, KeyError, ValueError, TypeError) as error:
            why = error if isinstance(error, LeaseUnavailableError) else self._unavailable(error)
            for waiting in batch:
                waiting.answer = waiting.answer or why

    def _exchange(self, request: Mapping[str, Any]) -> Any:
        """One line each way; once more over a new connection if an old one turns out to be gone."""
        line = json.dumps(request).encode() + b"\n"
        old = self._channel is not None
        try:
            return self._once(line)
        except (OSError, ValueError) as error:
            self._hang_up()
            if not old:
                raise self._unavailable(error) from error
        try:
            return self._once(line)
        except (OSError, ValueError) as error:
            self._hang_up()
            raise self._unavailable(error) from error

    def _once(self, line: bytes) -> Any:
        if self._channel is None:
            self._channel, self._rest = connected(self._path, self._timeout_s), b""
        self._channel.sendall(line)
        while b"\n" not in self._rest:
            piece = self._channel.recv(1 << 16)
            if not piece:
                raise ConnectionResetError("it ended the connection")
            self._rest += piece
            if len(self._rest) > MAX_LINE_BYTES:
                raise ValueError("its answer is too long")
        answer, _, self._rest = self._rest.partition(b"\n")
        return json.loads(answer)

    def _hang_up(self) -> None:
        if self._channel is not None:
            self._channel.close()
        self._channel, self._rest = None, b""

    def _unavailable(self, error: Exception) -> LeaseUnavailableError:
        return LeaseUnavailableError(
            why=f"this node's agent, which gives leave to the store, does not answer at {self._path} ({error}); is it running?"
        )


def _signed(answer: LeaseReply) -> tuple[str, Mapping[str, str]]:
    if "url" in answer:
        return answer["url"], answer.get("headers", {})
    kind, why = answer.get("kind", "refused"), answer.get("why", "no reason given")
    if kind == "stale":
        raise StaleEpochError(why)
    if kind == "unavailable":
        raise LeaseUnavailableError(why=why)
    raise ObjectStoreRefusedError(why)

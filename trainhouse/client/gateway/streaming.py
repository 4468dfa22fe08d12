"""Live streams of the gateway, read in a thread; a broken stream is resumed where it broke.

Holds: the thread ends with its reader; the queue between them is bounded (the server buffers, or drops us and we take the stream up again).
"""

import queue
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
import orjson

from trainhouse.client.errors import ClientError, NotReachableError
from trainhouse.client.gateway import transport
from trainhouse.client.gateway.exchange import GatewayAnswer, away, error_of
from trainhouse.client.gateway.sse import EventParser, ServerEvent

POLL_S = 0.5
WAITING = 1000
# The server sends a sign of life more often than that.
SILENCE_S = 60.0
AGAIN_S = (0.5, 1.0, 2.0, 5.0)
# How long a follower waits for a gateway that is away before it is told.
GIVE_UP_S = 120.0


@dataclass
class Stream:
    """One stream of events. A context manager."""

    url: str
    token: str
    path: str
    params: Mapping[str, Any]
    give_up_s: float = GIVE_UP_S
    _queue: "queue.Queue[ServerEvent | ClientError]" = field(default_factory=lambda: queue.Queue(WAITING))
    _stopped: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> "Stream":
        self._http = httpx.Client(**transport.settings(self.url, self.token) | {"timeout": httpx.Timeout(SILENCE_S, connect=10.0)})
        threading.Thread(target=self._read, name="trainhouse-stream", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        # Ends the thread: at once between two reads, else with the next sign of life.
        self._http.close()

    def events(self) -> Iterator[ServerEvent | None]:
        """Each event, and None about twice a second between. Never ends by itself. Raises NotReachableError, AccessDeniedError,
        NotFoundError."""
        while True:
            try:
                found = self._queue.get(timeout=POLL_S)
            except queue.Empty:
                yield None
                continue
            if isinstance(found, ClientError):
                raise found
            yield found

    def _read(self) -> None:
        parser, failures, received_s = EventParser(), 0, time.monotonic()
        while not self._stopped.is_set():
            try:
                for chunk in self._once(parser.last_id):
                    # A sign of life counts as much as an event: of a job that waits nothing is told for hours.
                    failures, received_s = 0, time.monotonic()
                    for event in parser.take(chunk):
                        self._put(event)
            except NotReachableError as error:
                if time.monotonic() > received_s + self.give_up_s:
                    self._put(error)
                    return
            except ClientError as error:
                self._put(error)
                return
            except (httpx.HTTPError, ValueError, RuntimeError) as error:
                if time.monotonic() > received_s + self.give_up_s:
                    self._put(away(self.url, error))
                    return
            parser.broken()
            self._stopped.wait(AGAIN_S[min(failures, len(AGAIN_S) - 1)])
            failures += 1

    def _once(self, last_id: str) -> Iterator[bytes]:
        """Yields the events of one connection, until it ends. Raises the error of an answer that is no stream."""
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last_id} if last_id else {})
        with self._http.stream("GET", self.path, params=dict(self.params), headers=headers) as response:
            if response.status_code != 200:
                response.read()
                raise error_of(GatewayAnswer(response.status_code, response.content, {}))
            yield from response.iter_bytes()

    def _put(self, what: ServerEvent | ClientError) -> None:
        while not self._stopped.is_set():
            try:
                self._queue.put(what, timeout=POLL_S)
                return
            except queue.Full:
                continue


def document(event: ServerEvent) -> dict[str, Any]:
    """The event's data. Raises NotReachableError for what is no JSON object."""
    try:
        found = orjson.loads(event.data)
    except orjson.JSONDecodeError as error:
        raise NotReachableError("the stream holds something that is no JSON: does TRAINHOUSE_GATEWAY_URL name a gateway?") from error
    return found if isinstance(found, dict) else {}

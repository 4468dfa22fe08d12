"""Background tasks of a gateway: the follower of the bus, the poller of the projections, the audit.

Holds: each runs as long as the app does; a poller that ends by a fault is started again, the audit goes on, and the fault is told.
"""

from __future__ import annotations

import asyncio

import structlog

from trainhouse.events import JobStatus, ProjectApplied
from trainhouse.gateway.context import Gateway, now_ms
from trainhouse.gateway.live import messages
from trainhouse.gateway.live.feed import BusFeed
from trainhouse.gateway.live.poller import Poller

log = structlog.get_logger(__name__)

AGAIN_S = 1.0
AUDIT_S = 1.0


class Following:
    """The background of one gateway. `start` and `close` on its event loop."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._feed: BusFeed | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begins."""
        gateway = self._gateway
        if gateway.kafka is not None:
            self._feed = BusFeed(gateway.kafka, self._status, self._revoked, self._project, self._known)
            self._feed.start()
        self._tasks = [asyncio.create_task(self._poll()), asyncio.create_task(self._audit())]

    async def close(self) -> None:
        """Ends; open streams are told so."""
        self._gateway.hub.end("the gateway stops; connect again")
        for task in self._tasks:
            task.cancel()
        self._gateway.audit.close(now_ms())
        if self._feed is not None:
            await asyncio.to_thread(self._feed.close)

    def _revoked(self, token_id: str, event_id: str) -> None:
        self._gateway.revocations.add(token_id, event_id)
        self._gateway.hub.wake()

    def _project(self, applied: ProjectApplied) -> None:
        self._gateway.projects.put(applied)
        self._gateway.hub.wake()

    def _known(self) -> None:
        self._gateway.projects.complete()
        self._gateway.revocations.complete()

    def _status(self, key: str, status: JobStatus) -> None:
        # A rejection that is keyed by its event says nothing of the job that has this id already.
        if key == str(status.job_id):
            self._gateway.hub.status(messages.job_of(status))

    async def _audit(self) -> None:
        while True:
            await asyncio.sleep(AUDIT_S)
            try:
                self._gateway.audit.turn(now_ms())
            except Exception:
                log.exception("what was counted for the audit could not be told; it goes on")

    async def _poll(self) -> None:
        gateway = self._gateway
        while True:
            try:
                await Poller(gateway.hub, gateway.reader, gateway.settings.stream_poll_s).run()
            except Exception:
                log.exception("the poller of live news ended; started again")
                await asyncio.sleep(AGAIN_S)

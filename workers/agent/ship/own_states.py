"""Puts what this node's ranks have of their own into the object store when their gang breaks, for ranks that are left on other nodes.

Holds: nothing is read or sent before a gang breaks; then once, and again when a file changed since. An attempt is forgotten when all of
its ranks here are gone and told of, or after LONGEST_MS. The loop never waits for the store: one thread sends, one attempt at a time, and
what was not taken is sent again after RETRY_MS.
Never: looks into a state, or raises because of the store.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import structlog

from trainhouse.checkpointing.stores.object_store import ObjectStore
from trainhouse.workers.agent.core import AttemptKey
from trainhouse.workers.agent.periodic import due
from trainhouse.workers.launcher import RankPaths
from trainhouse.workers.own_states import NAMES, node_key, packed, read_left, stamp_of

LONGEST_MS = 120_000
LOOK_MS = 50
RETRY_MS = 1_000
log = structlog.get_logger(__name__)

Stamps = tuple[object, ...]


@dataclass
class _Upload:
    """One attempt whose ranks' own states are uploaded."""

    folders: dict[int, Path]
    until_ms: int
    uploaded: Stamps | None = None
    sending: "Future[Stamps | None] | None" = None
    again_at_ms: int = 0

    def stamps(self) -> Stamps:
        return tuple(stamp_of(folder) for folder in self.folders.values())

    def all_gone(self) -> bool:
        return all(RankPaths(folder).exit.exists() for folder in self.folders.values())


class OwnStatesUploader:
    """Of one node. All methods return at once and belong to one thread; `make_store` is called in the one that sends."""

    def __init__(self, node_id: str, make_store: Callable[[], ObjectStore]) -> None:
        self._node_id = node_id
        self._make_store = make_store
        self._store: ObjectStore | None = None
        self._attempts: dict[AttemptKey, _Upload] = {}
        self._sender = ThreadPoolExecutor(1, thread_name_prefix="own-states")
        self._look_at_ms = 0

    def begin(self, key: AttemptKey, folders: Sequence[tuple[int, Path]], now_ms: int) -> None:
        """From now on what these ranks have is told. Ranks without a session have nothing, and then nothing is."""
        if key not in self._attempts and any((RankPaths(folder).own / NAMES[0]).exists() for _, folder in folders):
            self._attempts[key] = _Upload(dict(folders), now_ms + LONGEST_MS)
            self._look_at_ms = now_ms

    def look(self, now_ms: int) -> None:
        """Sends what has changed, if nothing is on its way."""
        if not self._attempts or not due(self._look_at_ms, now_ms, LOOK_MS):
            return
        self._look_at_ms = now_ms + LOOK_MS
        for key, upload in list(self._attempts.items()):
            if upload.sending is not None:
                if not upload.sending.done():
                    continue
                sent, upload.sending = upload.sending.result(), None
                upload.uploaded, upload.again_at_ms = sent or upload.uploaded, 0 if sent else now_ms + RETRY_MS
            gone, stamps = upload.all_gone(), upload.stamps()
            if now_ms >= upload.until_ms or (gone and upload.uploaded == stamps):
                del self._attempts[key]
            elif upload.uploaded != stamps and due(upload.again_at_ms, now_ms, RETRY_MS):
                upload.sending = self._sender.submit(self._send, key, upload, stamps)

    def close(self) -> None:
        """Waits for nothing."""
        self._sender.shutdown(wait=False, cancel_futures=True)

    def _send(self, key: AttemptKey, upload: _Upload, stamps: Stamps) -> Stamps | None:
        """The stamps of what is in the store now; None if it is not there."""
        try:
            self._store = self._store or self._make_store()
            body = packed(read_left(rank, folder) for rank, folder in upload.folders.items())
            self._store.put(node_key(key.job_id, key.epoch, self._node_id), body)
        except Exception as error:  # an address that is none is no reason to end either
            log.warning("what ranks have of their own could not be told", attempt=str(key), error=str(error))
            return None
        log.info("told what ranks have of their own", attempt=str(key), ranks=len(upload.folders), size_bytes=len(body))
        return stamps

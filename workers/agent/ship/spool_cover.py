"""Masks a job's secrets in its session's records: names of metrics, and every text of its events, in the forms that output is masked by.

Holds: a cut is covered before any of it is told; of a job without secrets nothing is looked at. Where an agent starts after the
attempt's end, its values are resolved once more; where that fails, the attempt's numbers without names and events without texts are left.
Never: blocks on a server in the thread that ships.
"""

import threading
from collections.abc import Iterable, Iterator
from typing import Any

import structlog

from trainhouse.events import GangAllocated
from trainhouse.workers.agent.core import AttemptKey
from trainhouse.workers.agent.core.spool import MetricsBatch, SpoolCut, SpoolEvent
from trainhouse.workers.agent.errors import NotLaunchableError
from trainhouse.workers.agent.launch.attempt_dirs import key_of
from trainhouse.workers.agent.launch.secretfiles import SecretFiles
from trainhouse.workers.launcher.masker import MASK, Masker

BETWEEN = "\0"  # of texts that are searched as one
log = structlog.get_logger(__name__)


class SpoolCovers:
    """Makes the cover of each attempt; `of` is what a shipper takes."""

    def __init__(self, secrets: SecretFiles) -> None:
        self._secrets = secrets

    def of(self, allocation: GangAllocated) -> "SpoolCover | None":
        """None for a job without secrets."""
        return SpoolCover(allocation, self._secrets) if allocation.spec.secrets else None


class SpoolCover:
    """One attempt's, for all its ranks. One thread only."""

    def __init__(self, allocation: GangAllocated, secrets: SecretFiles) -> None:
        self._allocation = allocation
        self._key: AttemptKey = key_of(allocation)
        self._secrets = secrets
        self._masker = Masker(())
        self._known = 0
        self._lost = False
        self._asking: threading.Thread | None = None
        secrets.kept.begin(self._key)
        secrets.kept.add(self._key, secrets.known(allocation) or ())

    def ready(self) -> bool:
        """Returns whether the values are known, or known to be lost; begins to find them. Call it where there is something to ship."""
        values = self._secrets.kept.of(self._key)
        if values is None and self._asking is None:
            found = self._secrets.known(self._allocation)
            if found is None:
                self._asking = threading.Thread(target=self._resolve, daemon=True)
                self._asking.start()
                return False
            self._secrets.kept.add(self._key, found)
            values = tuple(found)
        if values is None:
            return self._lost
        if len(values) > self._known:
            self._masker.add(values)
            self._known = len(values)
        return True

    def cover(self, cut: SpoolCut) -> None:
        """Changes it: what is left may be told."""
        if self._lost:
            cut.batches = []
            cut.events = [SpoolEvent(e.offset, e.name, _replaced(e.fields), None) for e in cut.events]
            return
        for batch in cut.batches:
            if self._shows(batch.metrics):
                batch.metrics = self._columns(batch)
        cut.events = [self._event(e) if self._shows(_texts([e.name, e.event_id, e.fields])) else e for e in cut.events]

    def close(self) -> None:
        """All of the attempt is shipped."""
        self._secrets.kept.forget(self._key)

    def _resolve(self) -> None:
        spec = self._allocation.spec
        try:
            self._secrets.kept.add(self._key, self._secrets.values(spec.project, spec.secrets).values())
        except Exception as error:  # whatever a server answered: else its files would wait for this thread for ever
            reason = str(error) if isinstance(error, NotLaunchableError | OSError) else type(error).__name__
            log.warning("a finished job's secrets are gone: its metrics and texts are not told", job=str(self._key), reason=reason)
            self._lost = True

    def _shows(self, texts: Iterable[str]) -> bool:
        """All in one search: of most pieces nothing is to be covered."""
        raw = BETWEEN.join(texts).encode("utf-8", "surrogateescape")
        return self._masker.whole(raw) != raw

    def _text(self, text: str) -> str:
        return self._masker.whole(text.encode("utf-8", "surrogateescape")).decode("utf-8", "replace")

    def _columns(self, batch: MetricsBatch) -> dict[str, list[float | None]]:
        """Merges columns whose masked names are equal, with the last value of each point."""
        covered: dict[str, list[float | None]] = {}
        for name, column in batch.metrics.items():
            shown = self._text(name)
            before = covered.get(shown)
            covered[shown] = column if before is None else [b if a is None else a for a, b in zip(column, before, strict=True)]
        return covered

    def _event(self, event: SpoolEvent) -> SpoolEvent:
        """An id with a secret in it is none: where the event stands in the spool names it."""
        own = event.event_id
        kept = own if isinstance(own, str) and self._text(own) == own else None
        return SpoolEvent(event.offset, self._text(event.name), self._value(event.fields), kept)

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, dict):
            return {self._text(k): self._value(v) for k, v in value.items()}
        return [self._value(v) for v in value] if isinstance(value, list) else value


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from value
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def _replaced(value: Any) -> Any:
    """Fields of an event without its texts."""
    if isinstance(value, str):
        return MASK.decode()
    if isinstance(value, dict):
        return {k: _replaced(v) for k, v in value.items() if not isinstance(v, dict)}
    return [_replaced(v) for v in value] if isinstance(value, list) else value

"""Latency of ClickHouse as the rules' own queries see it, summed up once a minute. Pure.

Holds: a question that was not answered counts as failed, once, however often it is tried; the newest MOST answers of a span are kept.
"""

from collections import deque

from trainhouse.events.model.service_level import ServiceMeasured

SERVICE = "sql"
LIMIT_S = 0.1
EVERY_MS = 60_000
MOST = 10_000


class Measuring:
    """The questions since the last measurement."""

    def __init__(self, source: str, now_ms: int) -> None:
        self._source = source
        self._since_ms = now_ms
        self._took_s: deque[float] = deque(maxlen=MOST)
        self._failed = 0

    def answered(self, took_s: float) -> None:
        """One question had its answer."""
        self._took_s.append(took_s)

    def failed(self) -> None:
        """One had none."""
        self._failed += 1

    def due(self, now_ms: int) -> ServiceMeasured | None:
        """The measurement of the span that ends now, if it is long enough and something was asked; a new span begins."""
        if now_ms - self._since_ms < EVERY_MS:
            return None
        since_ms, self._since_ms = self._since_ms, now_ms
        took, failed = sorted(self._took_s), self._failed
        self._took_s.clear()
        self._failed = 0
        if not took and not failed:
            return None
        return ServiceMeasured(
            service=SERVICE,
            source=self._source,
            since_ms=since_ms,
            at_ms=now_ms,
            total=len(took) + failed,
            good=sum(each <= LIMIT_S for each in took),
            failed=failed,
            limit_s=LIMIT_S,
            p50_s=_quantile(took, 0.5),
            p99_s=_quantile(took, 0.99),
            max_s=took[-1] if took else None,
        )


def _quantile(ascending: list[float], share: float) -> float | None:
    """The least value that is not below so many of them."""
    return ascending[min(len(ascending) - 1, int(share * len(ascending)))] if ascending else None

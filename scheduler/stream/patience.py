"""Readers of several partitions that do not make one of them wait for the silence of the others.

aiokafka asks a broker for all partitions at once and waits there for the first record. When what came for one partition is not taken
within 0.1 s, because this process was busy, it asks for the others alone; the busy partition then gets nothing until that question is
answered, which a silent partition does after 0.5 s (1.5 s where the stream processor asks). Measured: a pause of 0.2 s became 0.9 s.

Holds: such a question is asked only after `PATIENCE_S`.
"""

from typing import Any

# Above every pause of a healthy process. Where a partition is not read for longer, the others must not starve.
PATIENCE_S = 1.0


def be_patient(consumer: Any) -> None:
    """Of a started aiokafka consumer. It has no setting of this kind, so the fetcher's own is changed."""
    fetcher = consumer._fetcher
    if fetcher is not None and hasattr(fetcher, "_prefetch_backoff"):
        fetcher._prefetch_backoff = PATIENCE_S

"""Readers of several partitions that do not make one of them wait for the silence of the others.

aiokafka asks a broker for all partitions at once and waits there for the first record. When what came for one partition is not taken
within 0.1 s, because this process was busy, it asks for the others alone; the busy partition then gets nothing until that question is
answered, which a silent partition does after 0.5 s (1.5 s where the stream processor asks). Measured: a pause of 0.2 s became 0.9 s.

Holds: after `read_patiently`, every aiokafka consumer of the process, Faust's too, asks such a question only after `PATIENCE_S`.
"""

from functools import partial

from aiokafka.consumer import consumer
from aiokafka.consumer.fetcher import Fetcher

# Above every pause of a healthy process. Where a partition is not read for longer, the others must not starve.
PATIENCE_S = 1.0


def read_patiently() -> None:
    """Makes consumers that are created from now on patient: their fetcher has an argument for it, but they no setting."""
    consumer.Fetcher = partial(Fetcher, prefetch_backoff=PATIENCE_S)

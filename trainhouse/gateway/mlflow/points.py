"""Metrics of one request as records that count once, however often and wherever the request comes.

A client that got no answer sends its request again, perhaps to another gateway while the first one still works on it, and nothing in
the request says that it is a repeat. Its points do: to MLflow a point is its key, step, time and value, and the same point twice is one.
So a request is a stream of its own, named by the hash of its points, as a rank's spool is one; its records are cut from it at the same
places by whoever cuts them, with `[start, end)` counting points. Ingestion keeps a mark for each stream and trims what it has: the whole
of a request that was answered, or the first records of one that a crash cut short. The mark goes in with the points themselves.

Holds: pure; the same points of the same run, in the same order, give the same records. The price is one row of marks a request, so
batches are cheaper than single points. Points that repeat others of an earlier, different request are stored again; readers of a run's
history take them as one.
"""

import hashlib
import math
from collections.abc import Sequence

from trainhouse.events import StepMetrics
from trainhouse.events.wire.points import Point, records_of
from trainhouse.gateway.mlflow.bodies import Metric


def records_of_request(run_id: str, metrics: Sequence[Metric], epoch: int = 0, attempt: int = 0) -> list[StepMetrics]:
    """The records of one request; send each when the one before is acked."""
    points = [Point(m.key, m.value, m.step, m.timestamp) for m in metrics]
    return records_of(run_id, points, f"request-{_digest(points)}", epoch=epoch, attempt=attempt)


def _digest(points: Sequence[Point]) -> str:
    """128 bits of a hash of the points; every NaN is the same."""
    whole = hashlib.sha256()
    for p in points:
        value = "nan" if math.isnan(p.value) else float(p.value).hex()
        whole.update(f"{len(p.key)}:{p.key}:{p.step}:{p.time_ms}:{value};".encode())
    return whole.hexdigest()[:32]

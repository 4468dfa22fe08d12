"""A steady load of metric points, and how long after it was produced each record of one job can be read by SQL."""

import threading
import time
from typing import Any

from tests.support.spooled import points
from trainhouse.events import StepMetrics, envelope_of
from trainhouse.events.bus.kafka import EventProducer
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire import topics

RATE = 20_000
POINTS_PER_RECORD = 100
JOBS = 40
SECONDS = 30.0
PROBED = "load-0"
QUERY = "SELECT step, value FROM step_metrics WHERE job_id = {job:String} AND metric = 'sent_at_s' AND step > {last:Int64} ORDER BY step"


def measure(kafka: KafkaSettings, sql: Any) -> tuple[list[float], float]:
    """Delays in ms of the probed job's points, and the points/s that were really produced. Raises RuntimeError when some never came."""
    sent = _Sent()
    load = threading.Thread(target=_produce, args=(kafka, sent), daemon=True)
    load.start()
    delays_ms: list[float] = []
    last = -1
    deadline = time.monotonic() + SECONDS + 90
    while (load.is_alive() or last < sent.probed - 1) and time.monotonic() < deadline:
        rows = sql.query(QUERY, parameters={"job": PROBED, "last": last}).result_rows
        seen_s = time.time()
        delays_ms += [(seen_s - value) * 1000 for _, value in rows]
        last = rows[-1][0] if rows else last
        time.sleep(0.01)
    load.join()
    if last < sent.probed - 1 or not delays_ms:
        raise RuntimeError(f"{last + 1} of {sent.probed} points became visible")
    return delays_ms, sent.points / sent.elapsed_s


class _Sent:
    """What the producer did: points of all jobs, of the probed one, and the seconds that it took."""

    points = 0
    probed = 0
    elapsed_s = 0.0


def _produce(kafka: KafkaSettings, sent: _Sent) -> None:
    """As many records as the rate asks for, each by the clock: one that is late is not waited for."""
    producer = EventProducer(kafka)
    begin_s = time.monotonic()
    for number in range(int(RATE / POINTS_PER_RECORD * SECONDS)):
        ahead_s = begin_s + number * POINTS_PER_RECORD / RATE - time.monotonic()
        if ahead_s > 0:
            time.sleep(ahead_s)
        job, first = number % JOBS, number // JOBS * POINTS_PER_RECORD
        envelope = envelope_of(_record(job, first), id=f"load-{number}", source="bench", now_ms=int(time.time() * 1000))
        producer.send(topics.METRICS, envelope, key=f"load-{job}")
        sent.points += POINTS_PER_RECORD
        if job == 0:
            sent.probed = first + POINTS_PER_RECORD
    sent.elapsed_s = time.monotonic() - begin_s
    producer.flush(60)


def _record(job: int, first: int) -> StepMetrics:
    now_s = time.time()
    return points(first, POINTS_PER_RECORD, lambda _: int(now_s * 1000), {"sent_at_s": lambda _: now_s}, job_id=f"load-{job}")

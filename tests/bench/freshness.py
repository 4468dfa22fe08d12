"""A logged metric until SQL shows it: p99 at a steady rate, a burst of 100,000 points, counted one second after the last call, and p99
under a load of 20,000 points a second.
"""

import time
from pathlib import Path
from tempfile import TemporaryDirectory

import clickhouse_connect

from tests.bench import freshness_load, report
from tests.bench.stack import BenchStack, bench_stack
from trainhouse.events import JobSpec, JobSubmitted, Runtime, envelope_of
from trainhouse.events.bus.kafka import EventProducer
from trainhouse.events.wire import topics

STEADY = 1000
BURST = 100_000
SCRIPT = Path(__file__).parent / "scripts" / "points.py"
JOB = "freshness"


def run() -> None:
    """Prints the delay of steady points, and when the burst was readable."""
    with bench_stack(slots=1) as stack, TemporaryDirectory() as folder:
        moment = Path(folder) / "moment"
        _submit(stack, moment)
        sql = clickhouse_connect.get_client(dsn=stack.environment["TRAINHOUSE_CLICKHOUSE_DSN"])
        delays_ms = _steady(sql)
        after_1_s, all_s = _burst(sql, moment)
        loaded_ms, rate = freshness_load.measure(stack.kafka, sql)
    report.line(
        "metric_to_sql",
        unit="ms",
        points=len(delays_ms),
        p50=report.percentile(delays_ms, 50),
        p99=report.percentile(delays_ms, 99),
        aim_p99=1000.0,
    )
    report.line(
        "metric_to_sql_under_load",
        unit="ms",
        points_per_s=rate,
        points=len(loaded_ms),
        p50=report.percentile(loaded_ms, 50),
        p99=report.percentile(loaded_ms, 99),
        aim_p99=1000.0,
    )
    report.line("burst_to_sql", points=BURST, readable_1s_after_last_call=after_1_s, all_readable_after_s=all_s, aim=BURST)


def _submit(stack: BenchStack, moment: Path) -> None:
    spec = JobSpec(runtime=Runtime(command=("python", str(SCRIPT), str(STEADY), str(BURST), str(moment))))
    producer = EventProducer(stack.kafka)
    now_ms = int(time.time() * 1000)
    producer.send(
        topics.JOBS, envelope_of(JobSubmitted.model_validate({"job_id": JOB, "spec": spec}), id=JOB, source="bench", now_ms=now_ms)
    )
    producer.flush()


def _steady(sql: object) -> list[float]:
    """Asks again and again for points not seen yet; a point's delay ends when an answer holds it."""
    delays_ms: list[float] = []
    last = -1
    deadline = time.monotonic() + 90
    query = (
        "SELECT step, value FROM step_metrics WHERE job_id = {job:String} AND metric = 'sent_at_s' AND step > {last:Int64} ORDER BY step"
    )
    while len(delays_ms) < STEADY and time.monotonic() < deadline:
        rows = sql.query(query, parameters={"job": JOB, "last": last}).result_rows  # type: ignore[attr-defined]
        seen_s = time.time()
        delays_ms += [(seen_s - value) * 1000 for _, value in rows]
        last = rows[-1][0] if rows else last
        time.sleep(0.01)
    if len(delays_ms) < STEADY:
        raise RuntimeError(f"{len(delays_ms)} of {STEADY} steady points became visible")
    return delays_ms


def _burst(sql: object, moment: Path) -> tuple[int, float]:
    """Points readable one second after the last call, and the seconds until all are."""
    query = "SELECT count() FROM step_metrics WHERE job_id = {job:String} AND metric = 'burst'"
    deadline = time.monotonic() + 120
    while not (moment.exists() and moment.read_text()):
        if time.monotonic() > deadline:
            raise RuntimeError("the job did not finish its burst")
        time.sleep(0.002)
    last_call_s = float(moment.read_text())
    after_1_s = 0
    while time.monotonic() < deadline:
        count = int(sql.query(query, parameters={"job": JOB}).result_rows[0][0])  # type: ignore[attr-defined]
        elapsed_s = time.time() - last_call_s
        if elapsed_s <= 1.0:
            after_1_s = count
        if count == BURST:
            return after_1_s, elapsed_s
        time.sleep(0.01)
    raise RuntimeError(f"{count} of {BURST} points became readable")

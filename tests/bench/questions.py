"""How long people wait for answers: p99 of the questions that pages ask, at 10 M metric rows and 10,000 jobs, in an embedded engine.

Peers, in the same run: the same question without what our migrations keep for it (the raw tables of the same engine); and MLflow's store on
SQLite at a tenth of the runs and a fiftieth of the points, since filling it takes so long (only where the peers' environment is there).
"""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.bench import report
from tests.bench.peers import environment
from tests.bench.questions_fill import HOUR_MS, JOBS, LONG_JOB, NODES, T0, WEEK_MS, fill
from trainhouse.projections.store.clickhouse import ConnectClickHouse, connect_embedded
from trainhouse.projections.store.migrate import migrate

TIMES = 50
BARE_TIMES = 10
AIM_MS = 100.0

CHOSEN = ", ".join(f"'job-{n * 150}'" for n in range(50))
_HELD = "toUnixTimestamp(least(s.at, toDateTime(h + 3600, 'UTC'))) - toUnixTimestamp(greatest(a.at, toDateTime(h, 'UTC')))"
ASKED: dict[str, tuple[str, str | None]] = {
    "status_list": (
        "SELECT job_id, name, team, state, submitted_at FROM job_status ORDER BY submitted_at DESC, job_id LIMIT 100",
        "SELECT job_id, argMax(state, status_seq) AS state, min(at) AS t FROM statuses_rows GROUP BY job_id ORDER BY t DESC LIMIT 100",
    ),
    "one_job": (
        "SELECT * FROM job_status WHERE job_id = 'job-{n}'",
        "SELECT argMax(state, status_seq), argMax(reason, status_seq), max(at) FROM statuses_rows WHERE job_id = 'job-{n}'",
    ),
    "compare_50_runs": (
        "SELECT job_id, metric, argMax(m.value, (m.epoch, m.step)) AS last, min(m.value), max(m.value) FROM step_metrics AS m "
        f"WHERE job_id IN ({CHOSEN}) AND rank = 0 GROUP BY job_id, metric",
        None,
    ),
    "curve_1m_points": (
        "SELECT intDiv(m.step, 1000) AS bucket, min(m.value), max(m.value) FROM step_metrics AS m "
        f"WHERE job_id = '{LONG_JOB}' AND metric = 'metric-0' AND rank = 0 GROUP BY bucket ORDER BY bucket",
        None,
    ),
    "utilization_by_hour": (
        "SELECT * FROM utilization_by_hour ORDER BY hour",
        "SELECT c.hour, c.capacity, h.held FROM (SELECT toStartOfHour(minute) AS hour, sum(devices) * 60 AS capacity FROM node_minutes "
        f"GROUP BY hour) AS c LEFT JOIN (SELECT toDateTime(h, 'UTC') AS hour, sum({_HELD}) AS held FROM attempt_facts AS a "
        "INNER JOIN attempt_facts AS s ON s.job_id = a.job_id AND s.epoch = a.epoch ARRAY JOIN range(toUInt32(toStartOfHour(a.at)), "
        "toUInt32(s.at), 3600) AS h WHERE a.fact = 'allocated' AND s.fact = 'stopped' GROUP BY hour) AS h ON h.hour = c.hour ORDER BY 1",
    ),
    "lineage_of_code": ("SELECT * FROM lineage_of(id = 'code:{code}')", None),
    "lineage_to_checkpoint": ("SELECT * FROM lineage_to(id = 'checkpoint:job-{n}@9')", None),
    "job_status_at": (
        "SELECT * FROM job_status_at(at = toDateTime64({at}, 3, 'UTC'))",
        "SELECT job_id, argMax(state, status_seq), argMax(reason, status_seq) FROM statuses_rows "
        "WHERE at <= toDateTime64({at}, 3, 'UTC') GROUP BY job_id",
    ),
    "ledger_of_a_job": ("SELECT category, sum(g.gpu_seconds) FROM gpu_seconds AS g WHERE job_id = 'job-{n}' GROUP BY category", None),
}


def run() -> None:
    """Prints one line a question, and one of MLflow."""
    with TemporaryDirectory() as folder:
        clickhouse = connect_embedded(Path(folder) / "clickhouse", 4 * 1024**3, 2)
        try:
            migrate(clickhouse)
            report.note("filling 10 M metric rows and 10,000 jobs …")
            fill(clickhouse)
            points = int(clickhouse.rows("SELECT count() FROM step_metrics")[0][0])
            for name, (question, bare) in ASKED.items():
                _told(clickhouse, name, question, bare, points)
        finally:
            clickhouse.close()
        _mlflow(Path(folder))


def _told(clickhouse: ConnectClickHouse, name: str, question: str, bare: str | None, points: int) -> None:
    ours = _asked(clickhouse, question, TIMES)
    peer = {} if bare is None else {"peer": {"raw_tables_p99": _asked(clickhouse, bare, BARE_TIMES)[1]}}
    figures: dict[str, Any] = {
        "p50": ours[0],
        "p99": ours[1],
        "processor_p50": ours[2],
        "aim_p99": 1000.0 if name == "job_status_at" else AIM_MS,
    } | peer
    report.line(f"question_{name}", unit="ms", **figures, jobs=JOBS, nodes=NODES, metric_rows=points)


def _asked(clickhouse: ConnectClickHouse, question: str, times: int) -> tuple[float, float, float]:
    """p50 and p99 in ms, each time about something else, and the processor time of the median; the first answer is not counted."""
    took, used = [], []
    for turn in range(times + 1):
        at_s = (T0 + (turn * 7919 % 168) * HOUR_MS + WEEK_MS // 1000) // 1000
        sql = question.replace("{n}", str(turn * 131 % JOBS)).replace("{code}", str(turn * 7 % 200)).replace("{at}", str(at_s))
        begin, busy = time.perf_counter(), time.process_time()
        rows = clickhouse.rows(sql)
        took.append((time.perf_counter() - begin) * 1000)
        used.append((time.process_time() - busy) * 1000)
        if not rows:
            raise RuntimeError(f"no answer to: {sql}")
    return report.percentile(took[1:], 50), report.percentile(took[1:], 99), report.percentile(used[1:], 50)


def _mlflow(folder: Path) -> None:
    """MLflow's own store, asked what its pages ask."""
    if not (environment.FOLDER / environment.PEERS / ".installed").exists():
        report.note("the peers' environment is not there: no figures of MLflow (any bench with peers makes it)")
        return
    runs, points = JOBS // 50, 1_000
    found = environment.run("mlflow_questions", str(folder / "mlflow.db"), str(runs), str(points), timeout_s=900)
    report.line("question_mlflow_sqlite", unit="ms", runs=runs, points_a_run=points, **found)

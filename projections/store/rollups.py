"""Makes the rollups of metrics anew where a replayed batch touched them: sums and counts are not what a repeat leaves alone.

Why not by tokens alone: the engine notes the token of a block that feeds a rollup before that rollup's part appears, and a part that was
inserted in the middle of a batch is cut differently by the replay. What the points say is the truth, so buckets follow from them.
Holds: safe to interrupt: until the batch is done, the next start makes them anew again. What is made anew is whole hours, since a bucket of
each level lies in one.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from clickhouse_connect.driver.binding import format_str

from trainhouse.projections.store.clickhouse import ClickHouse

POINTS = "step_metrics"
LEVELS = ("step_metrics_1s_rows", "step_metrics_1m_rows", "step_metrics_1h_rows")
HOUR_S = 3600
# As second_rollup.py says it; the views of this table fill the other levels and the last values.
_FILL = """
INSERT INTO step_metrics_1s_rows (job_id, metric, epoch, rank, time, first_step, last, min_value, max_value, sum_value, finite, points)
SELECT job_id, metric, epoch, rank, toDateTime(p.time, 'UTC') AS time, min(p.step),
    max(bitOr(bitOr(bitShiftLeft(toUInt256(p.epoch), 192), bitShiftLeft(toUInt256(p.step), 128)),
        bitOr(bitShiftLeft(toUInt256(toUnixTimestamp64Milli(p.time)), 64), toUInt256(reinterpretAsUInt64(p.value))))),
    minOrNullIf(p.value, NOT isNaN(p.value)), maxOrNullIf(p.value, NOT isNaN(p.value)), sumIf(p.value, isFinite(p.value)),
    countIf(isFinite(p.value)), count()
FROM step_metrics AS p WHERE {where}
GROUP BY job_id, metric, epoch, rank, time
SETTINGS optimize_aggregation_in_order = 1, insert_deduplicate = 0
"""


def roll_up(clickhouse: ClickHouse, where: str) -> None:
    """Buckets of seconds, and by their views those of all levels, of the points that this condition names. Blocks.

    Counts add up: what is there already of these points has to be deleted before. Raises ClickHouseRequestError.
    """
    clickhouse.command(_FILL.replace("{where}", where))


def make_anew(clickhouse: ClickHouse, rows: pa.Table) -> None:
    """Buckets of all levels that these points lie in, from all points that lie in them. Blocks. Raises ClickHouseRequestError."""
    if not rows.num_rows:
        return
    jobs, metrics = (", ".join(format_str(v) for v in pc.unique(rows[name]).to_pylist()) for name in ("job_id", "metric"))
    seconds = pc.min_max(rows["time"].cast(pa.int64())).as_py()
    begin_s = seconds["min"] // 1000 // HOUR_S * HOUR_S
    end_s = (seconds["max"] // 1000 // HOUR_S + 1) * HOUR_S
    condition = f"job_id IN ({jobs}) AND metric IN ({metrics})"
    for table in LEVELS:
        span = f"time >= toDateTime({begin_s}, 'UTC') AND time < toDateTime({end_s}, 'UTC')"
        clickhouse.command(f"ALTER TABLE {table} DELETE WHERE {condition} AND {span} SETTINGS mutations_sync = 2")
    span = f"p.time >= toDateTime64({begin_s}, 3, 'UTC') AND p.time < toDateTime64({end_s}, 3, 'UTC')"
    roll_up(clickhouse, f"{condition} AND {span}")

-- Metrics by second, minute and hour, and the last value of each: what pages and comparisons read instead of every point.
--
-- Seconds are made of the points by the projector, batch by batch (projections/ingest/builders/second_rollup.py: a tenth of what a view over points costs); minutes,
-- hours and last values are fed by materialized views of the level below, so the work falls with each one. A bucket is the rank's own time,
-- cut; it keeps the least and the largest value, so that a curve made of buckets keeps its extremes, and the steps
-- that it spans. `last` is the largest (epoch, step, time, value) of its points, packed into one number, 32 + 64 + 64 + 64 bits from the
-- top: the same in whatever order blocks came, and several times as fast as the largest of tuples. The views unpack it.
-- Sums and counts are not what a repeat leaves alone: after a replay the buckets that the batch touched are made anew from the points
-- (projections/store/rollups.py). What is no finite number counts in `points`, not in `finite` and `sum_value`; NaN is no extreme.
--
-- Engines: AggregatingMergeTree adds up what several inserts give one bucket. Ordered as the points are, so that one curve is one range.
-- DoubleDelta for times that grow evenly; Gorilla suits floats of neighbours that are alike; the rest is small after T64 and ZSTD.
-- Age is counted from when rows came in (a rank's clock may be wrong): seconds for 30 days (fresh curves), minutes for a year, as the
-- points, hours for five years: the story of a job outlives its points. Small blocks for minutes and hours: a curve has few rows there, and
-- a comparison reads one in each of fifty places.
CREATE TABLE IF NOT EXISTS step_metrics_1s_rows (
    job_id LowCardinality(String),
    metric LowCardinality(String),
    epoch UInt32 CODEC(T64, ZSTD),
    rank UInt32 CODEC(T64, ZSTD),
    time DateTime('UTC') CODEC(DoubleDelta, LZ4),
    first_step SimpleAggregateFunction(min, UInt64) CODEC(DoubleDelta, LZ4),
    last SimpleAggregateFunction(max, UInt256) CODEC(ZSTD),
    min_value SimpleAggregateFunction(min, Nullable(Float64)) CODEC(Gorilla, LZ4),
    max_value SimpleAggregateFunction(max, Nullable(Float64)) CODEC(Gorilla, LZ4),
    sum_value SimpleAggregateFunction(sum, Float64) CODEC(Gorilla, LZ4),
    finite SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD),
    points SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD),
    inserted_at SimpleAggregateFunction(max, DateTime('UTC')) DEFAULT now() CODEC(DoubleDelta, LZ4)
) ENGINE = AggregatingMergeTree ORDER BY (job_id, metric, epoch, rank, time)
TTL inserted_at + INTERVAL 30 DAY
SETTINGS non_replicated_deduplication_window = 1000;

CREATE TABLE IF NOT EXISTS step_metrics_1m_rows AS step_metrics_1s_rows
ENGINE = AggregatingMergeTree ORDER BY (job_id, metric, epoch, rank, time)
TTL inserted_at + INTERVAL 365 DAY
SETTINGS index_granularity = 512, non_replicated_deduplication_window = 1000;

CREATE TABLE IF NOT EXISTS step_metrics_1h_rows AS step_metrics_1s_rows
ENGINE = AggregatingMergeTree ORDER BY (job_id, metric, epoch, rank, time)
TTL inserted_at + INTERVAL 1825 DAY
SETTINGS index_granularity = 512, non_replicated_deduplication_window = 1000;

-- One row a metric and rank of a job: its last value, of the newest attempt that logged it. Every aggregate is one that a repeat leaves
-- alone. Small blocks: whoever compares runs asks for twenty rows in each of five hundred places.
CREATE TABLE IF NOT EXISTS metric_latest_rows (
    job_id LowCardinality(String),
    metric LowCardinality(String),
    rank UInt32,
    last SimpleAggregateFunction(max, UInt256),
    first_step SimpleAggregateFunction(min, UInt64),
    min_value SimpleAggregateFunction(min, Nullable(Float64)),
    max_value SimpleAggregateFunction(max, Nullable(Float64))
) ENGINE = AggregatingMergeTree ORDER BY (job_id, metric, rank)
SETTINGS index_granularity = 512, non_replicated_deduplication_window = 1000;

-- What is there already goes in before the views begin to follow, and from scratch: a migration that was cut is applied again.
DROP VIEW IF EXISTS step_metrics_to_1m;
DROP VIEW IF EXISTS step_metrics_to_1h;
DROP VIEW IF EXISTS step_metrics_to_latest;
TRUNCATE TABLE step_metrics_1s_rows;
TRUNCATE TABLE step_metrics_1m_rows;
TRUNCATE TABLE step_metrics_1h_rows;
TRUNCATE TABLE metric_latest_rows;

CREATE MATERIALIZED VIEW IF NOT EXISTS step_metrics_to_1h TO step_metrics_1h_rows AS
SELECT job_id, metric, epoch, rank, toStartOfHour(b.time) AS time, min(b.first_step) AS first_step, max(b.last) AS last,
    min(b.min_value) AS min_value, max(b.max_value) AS max_value, sum(b.sum_value) AS sum_value, sum(b.finite) AS finite,
    sum(b.points) AS points
FROM step_metrics_1m_rows AS b
GROUP BY job_id, metric, epoch, rank, time;

CREATE MATERIALIZED VIEW IF NOT EXISTS step_metrics_to_1m TO step_metrics_1m_rows AS
SELECT job_id, metric, epoch, rank, toStartOfMinute(b.time) AS time, min(b.first_step) AS first_step, max(b.last) AS last,
    min(b.min_value) AS min_value, max(b.max_value) AS max_value, sum(b.sum_value) AS sum_value, sum(b.finite) AS finite,
    sum(b.points) AS points
FROM step_metrics_1s_rows AS b
GROUP BY job_id, metric, epoch, rank, time;

CREATE MATERIALIZED VIEW IF NOT EXISTS step_metrics_to_latest TO metric_latest_rows AS
SELECT job_id, metric, rank, max(b.last) AS last, min(b.first_step) AS first_step, min(b.min_value) AS min_value, max(b.max_value) AS max_value
FROM step_metrics_1s_rows AS b
GROUP BY job_id, metric, rank;

INSERT INTO step_metrics_1s_rows
    (job_id, metric, epoch, rank, time, first_step, last, min_value, max_value, sum_value, finite, points)
SELECT job_id, metric, epoch, rank, toDateTime(p.time, 'UTC') AS time, min(p.step),
    max(bitOr(bitOr(bitShiftLeft(toUInt256(p.epoch), 192), bitShiftLeft(toUInt256(p.step), 128)),
        bitOr(bitShiftLeft(toUInt256(toUnixTimestamp64Milli(p.time)), 64), toUInt256(reinterpretAsUInt64(p.value))))),
    minOrNullIf(p.value, NOT isNaN(p.value)), maxOrNullIf(p.value, NOT isNaN(p.value)), sumIf(p.value, isFinite(p.value)),
    countIf(isFinite(p.value)), count()
FROM step_metrics AS p
GROUP BY job_id, metric, epoch, rank, time
SETTINGS optimize_aggregation_in_order = 1, insert_deduplicate = 0;

-- What people read. `time` is the bucket's beginning; mean_value is of the finite values, NULL without one; last_value is that of last_step.
CREATE OR REPLACE VIEW step_metrics_1s AS
SELECT job_id, metric, epoch, rank, time, first_step, toUInt64(bitShiftRight(last, 128)) AS last_step, min_value, max_value,
    if(finite = 0, NULL, sum_value / finite) AS mean_value, reinterpretAsFloat64(toUInt64(last)) AS last_value, points
FROM step_metrics_1s_rows FINAL;

CREATE OR REPLACE VIEW step_metrics_1m AS
SELECT job_id, metric, epoch, rank, time, first_step, toUInt64(bitShiftRight(last, 128)) AS last_step, min_value, max_value,
    if(finite = 0, NULL, sum_value / finite) AS mean_value, reinterpretAsFloat64(toUInt64(last)) AS last_value, points
FROM step_metrics_1m_rows FINAL;

CREATE OR REPLACE VIEW step_metrics_1h AS
SELECT job_id, metric, epoch, rank, time, first_step, toUInt64(bitShiftRight(last, 128)) AS last_step, min_value, max_value,
    if(finite = 0, NULL, sum_value / finite) AS mean_value, reinterpretAsFloat64(toUInt64(last)) AS last_value, points
FROM step_metrics_1h_rows FINAL;

CREATE OR REPLACE VIEW metric_latest AS
SELECT job_id, metric, rank, toUInt32(bitShiftRight(last, 192)) AS epoch, toUInt64(bitShiftRight(last, 128)) AS step,
    fromUnixTimestamp64Milli(toInt64(bitShiftRight(last, 64)), 'UTC') AS time, reinterpretAsFloat64(toUInt64(last)) AS value, first_step, min_value, max_value
FROM metric_latest_rows FINAL;

-- What the ledger of device time (0021) rests on, kept small as events come in, so that no question reads metrics or heartbeats whole.

-- Which steps each attempt made, and when, from whatever metrics its ranks logged: one row an attempt. Least and largest values only, so a
-- repeat changes nothing. Metrics of the machine (system/…) come between steps and say nothing of them.
CREATE TABLE IF NOT EXISTS attempt_steps_rows (
    job_id String,
    epoch UInt32,
    first_step SimpleAggregateFunction(min, UInt64),
    last_step SimpleAggregateFunction(max, UInt64),
    first_step_at SimpleAggregateFunction(min, DateTime64(3, 'UTC')),
    last_step_at SimpleAggregateFunction(max, DateTime64(3, 'UTC'))
) ENGINE = AggregatingMergeTree ORDER BY (job_id, epoch)
SETTINGS non_replicated_deduplication_window = 1000;

CREATE MATERIALIZED VIEW IF NOT EXISTS attempt_steps_of_metrics TO attempt_steps_rows AS
SELECT job_id, epoch, min(m.step) AS first_step, max(m.step) AS last_step, min(m.time) AS first_step_at, max(m.time) AS last_step_at
FROM step_metrics AS m WHERE NOT startsWith(m.metric, 'system/') GROUP BY job_id, epoch;

INSERT INTO attempt_steps_rows
SELECT job_id, epoch, min(m.step) AS first_step, max(m.step) AS last_step, min(m.time) AS first_step_at, max(m.time) AS last_step_at
FROM step_metrics AS m WHERE NOT startsWith(m.metric, 'system/') GROUP BY job_id, epoch;

CREATE OR REPLACE VIEW attempt_steps AS
SELECT job_id, epoch, min(r.first_step) AS first_step, max(r.last_step) AS last_step, min(r.first_step_at) AS first_step_at,
    max(r.last_step_at) AS last_step_at
FROM attempt_steps_rows AS r GROUP BY job_id, epoch;

-- What the ranks of an attempt on a node had waited for at each heartbeat: sums over these ranks, totals since the attempt began. A row a
-- heartbeat (and the same at the newest step's end), since a short attempt's phases would drown in anything coarser; totals that grow slowly and times that grow evenly take some
-- three bytes each. Read for single attempts only (where inside an attempt its lost steps begin); everything else reads the hours below.
CREATE TABLE IF NOT EXISTS attempt_beats_rows (
    job_id String,
    epoch UInt32,
    node_id LowCardinality(String),
    at DateTime64(3, 'UTC') CODEC(DoubleDelta, LZ4),
    ranks UInt32 CODEC(T64, LZ4),
    step Nullable(UInt64) CODEC(ZSTD),
    step_at Nullable(DateTime64(3, 'UTC')) CODEC(ZSTD),
    data_wait_s Float64 CODEC(Gorilla, LZ4),
    save_stall_s Float64 CODEC(Gorilla, LZ4),
    data_wait_at_step_s Float64 CODEC(Gorilla, LZ4),
    save_stall_at_step_s Float64 CODEC(Gorilla, LZ4),
    source_topic LowCardinality(String),
    source_partition UInt32 CODEC(T64, LZ4),
    source_offset UInt64 CODEC(Delta, LZ4),
    inserted_at DateTime('UTC') MATERIALIZED now() CODEC(DoubleDelta, LZ4)
) ENGINE = ReplacingMergeTree ORDER BY (job_id, epoch, node_id, at)
TTL inserted_at + INTERVAL 40 DAY
SETTINGS non_replicated_deduplication_window = 1000;

-- The same by hour, for a year: the totals at the end of each hour, and what they were at the first heartbeat that told of a step (`first`) and
-- at the first that told of the newest step (`last`, whose waits are negative so that the largest tuple is the earliest heartbeat).
CREATE TABLE IF NOT EXISTS attempt_hours_rows (
    job_id String,
    epoch UInt32,
    node_id LowCardinality(String),
    hour DateTime('UTC') CODEC(Delta, ZSTD),
    data_wait_s SimpleAggregateFunction(max, Float64),
    save_stall_s SimpleAggregateFunction(max, Float64),
    first SimpleAggregateFunction(min, Tuple(step UInt64, at DateTime64(3, 'UTC'), data_wait_s Float64, save_stall_s Float64)),
    last SimpleAggregateFunction(max, Tuple(step UInt64, at DateTime64(3, 'UTC'), data_wait_s Float64, save_stall_s Float64)),
    inserted_at SimpleAggregateFunction(max, DateTime('UTC'))
) ENGINE = AggregatingMergeTree ORDER BY (job_id, epoch, node_id, hour)
TTL inserted_at + INTERVAL 365 DAY
SETTINGS non_replicated_deduplication_window = 1000;

-- A heartbeat without a step: 2^63 is never the least, 0 never the largest (steps are counted from 1 here).
CREATE MATERIALIZED VIEW IF NOT EXISTS attempt_hours_of_beats TO attempt_hours_rows AS
SELECT job_id, epoch, node_id, toStartOfHour(toDateTime(b.at, 'UTC')) AS hour,
    max(b.data_wait_s) AS data_wait_s, max(b.save_stall_s) AS save_stall_s,
    min(CAST((if(b.step IS NULL, bitShiftLeft(1::UInt64, 63), assumeNotNull(b.step) + 1), ifNull(b.step_at, b.at), b.data_wait_at_step_s,
        b.save_stall_at_step_s),
        'Tuple(step UInt64, at DateTime64(3, \'UTC\'), data_wait_s Float64, save_stall_s Float64)')) AS first,
    max(CAST((if(b.step IS NULL, 0, assumeNotNull(b.step) + 1), ifNull(b.step_at, b.at), -b.data_wait_at_step_s, -b.save_stall_at_step_s),
        'Tuple(step UInt64, at DateTime64(3, \'UTC\'), data_wait_s Float64, save_stall_s Float64)')) AS last,
    now() AS inserted_at
FROM attempt_beats_rows AS b
GROUP BY job_id, epoch, node_id, hour;

-- How many devices of each node were there in each minute of an hour, and how many were held: the rollup of node_minutes for a year.
CREATE TABLE IF NOT EXISTS node_hours_rows (
    hour DateTime('UTC') CODEC(Delta, ZSTD),
    node_id LowCardinality(String),
    pool SimpleAggregateFunction(anyLast, LowCardinality(String)),
    devices SimpleAggregateFunction(maxMap, Map(UInt8, UInt32)) CODEC(ZSTD),
    utilization SimpleAggregateFunction(maxMap, Map(UInt16, Float64)) CODEC(ZSTD),
    inserted_at SimpleAggregateFunction(max, DateTime('UTC'))
) ENGINE = AggregatingMergeTree ORDER BY (hour, node_id)
TTL inserted_at + INTERVAL 365 DAY
SETTINGS non_replicated_deduplication_window = 1000;

CREATE MATERIALIZED VIEW IF NOT EXISTS node_hours_of_minutes TO node_hours_rows AS
SELECT toStartOfHour(toDateTime(m.minute, 'UTC')) AS hour, node_id, anyLast(m.pool) AS pool,
    maxMap(map(toUInt8(toMinute(m.minute)), m.devices)) AS devices,
    maxMap(mapApply((s, v) -> (toUInt16(toMinute(m.minute) * 60 + s), v), m.utilization)) AS utilization,
    now() AS inserted_at
FROM node_minutes_rows AS m
GROUP BY hour, node_id;

INSERT INTO node_hours_rows
SELECT toStartOfHour(toDateTime(m.minute, 'UTC')) AS hour, node_id, anyLast(m.pool) AS pool,
    maxMap(map(toUInt8(toMinute(m.minute)), m.devices)) AS devices,
    maxMap(mapApply((s, v) -> (toUInt16(toMinute(m.minute) * 60 + s), v), m.utilization)) AS utilization,
    now() AS inserted_at
FROM node_minutes_rows AS m
GROUP BY hour, node_id;

-- Heartbeats by minute, for questions about the past (rules of alerts, reports); node_facts and rank_facts keep the newest only.
--
-- A minute is one row however many heartbeats came, so a node costs 1,440 rows a day. Every aggregate is one that a repeat does not change:
-- the largest of a counter, and maps merged by maxMap. So a batch that is written twice leaves the minute as it was, and nothing needs
-- to be counted. `utilization` has an entry for the second of each heartbeat that was taken (one in ten seconds at most).
-- Ordered by time: a rule asks for all that happened in the last minutes. Rows age by when they came in (a node's clock may be wrong),
-- after 40 days: so that a rule can be tried on a month.
CREATE TABLE IF NOT EXISTS node_minutes_rows (
    minute DateTime64(3, 'UTC') CODEC(Delta, ZSTD),
    node_id LowCardinality(String),
    pool SimpleAggregateFunction(anyLast, LowCardinality(String)),
    devices SimpleAggregateFunction(max, UInt32),
    devices_held SimpleAggregateFunction(max, UInt32),
    utilization SimpleAggregateFunction(maxMap, Map(UInt32, Float64)),
    spool_lag_bytes SimpleAggregateFunction(max, UInt64),
    last_at SimpleAggregateFunction(max, DateTime64(3, 'UTC')),
    source_topic SimpleAggregateFunction(anyLast, LowCardinality(String)),
    source_partition SimpleAggregateFunction(max, UInt32),
    source_offset SimpleAggregateFunction(max, UInt64),
    inserted_at SimpleAggregateFunction(max, DateTime('UTC')) MATERIALIZED now()
) ENGINE = AggregatingMergeTree ORDER BY (minute, node_id)
TTL inserted_at + INTERVAL 40 DAY
SETTINGS non_replicated_deduplication_window = 1000;

-- utilization_pct: the mean over all devices of the node that tell it, in use or not; NULL where none does.
CREATE OR REPLACE VIEW node_minutes AS
SELECT
    minute, node_id, pool, devices, devices_held,
    if(empty(utilization), NULL, arrayAvg(mapValues(utilization))) AS utilization_pct,
    spool_lag_bytes, last_at, inserted_at
FROM node_minutes_rows FINAL;

-- The same of the part of an attempt on one node. Waits are totals of each rank (the map's key) since the attempt began: what a minute
-- has of them is the difference to the minute before. utilization: of the devices that these ranks hold.
CREATE TABLE IF NOT EXISTS attempt_minutes_rows (
    minute DateTime64(3, 'UTC') CODEC(Delta, ZSTD),
    job_id LowCardinality(String),
    epoch UInt32,
    node_id LowCardinality(String),
    pool SimpleAggregateFunction(anyLast, LowCardinality(String)),
    attempt SimpleAggregateFunction(max, UInt32),
    ranks SimpleAggregateFunction(max, UInt32),
    step SimpleAggregateFunction(max, Nullable(UInt64)),
    utilization SimpleAggregateFunction(maxMap, Map(UInt32, Float64)),
    data_wait_s SimpleAggregateFunction(maxMap, Map(UInt32, Float64)),
    save_stall_s SimpleAggregateFunction(maxMap, Map(UInt32, Float64)),
    last_at SimpleAggregateFunction(max, DateTime64(3, 'UTC')),
    source_topic SimpleAggregateFunction(anyLast, LowCardinality(String)),
    source_partition SimpleAggregateFunction(max, UInt32),
    source_offset SimpleAggregateFunction(max, UInt64),
    inserted_at SimpleAggregateFunction(max, DateTime('UTC')) MATERIALIZED now()
) ENGINE = AggregatingMergeTree ORDER BY (minute, job_id, epoch, node_id)
TTL inserted_at + INTERVAL 40 DAY
SETTINGS non_replicated_deduplication_window = 1000;

CREATE OR REPLACE VIEW attempt_minutes AS
SELECT
    minute, job_id, epoch, attempt, node_id, pool, ranks, step,
    if(empty(utilization), NULL, arrayAvg(mapValues(utilization))) AS utilization_pct,
    data_wait_s, save_stall_s, last_at, inserted_at
FROM attempt_minutes_rows FINAL;

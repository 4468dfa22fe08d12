-- Facts about devices: what a registration says of each, and the newest heartbeat that told of it. The newest by time stays.
-- One heartbeat in ten seconds is taken: the driver's figures are sampled, and a row a device and second would cost more than the ranks'.
-- Small (two rows a device), ordered as it is asked for: the devices of a node.
CREATE TABLE IF NOT EXISTS device_facts (
    node_id String,
    device_id String,
    fact LowCardinality(String),
    version UInt64,
    at DateTime64(3, 'UTC'),
    pool LowCardinality(String),
    boot_id String,
    device_index UInt32,
    device_type LowCardinality(String),
    memory_bytes UInt64,
    nvlink_peers Array(String),
    ecc_enabled Nullable(UInt8),
    job_id String,
    epoch Nullable(UInt32),
    rank Nullable(UInt32),
    utilization_pct Nullable(Float64),
    memory_used_bytes Nullable(UInt64),
    temperature_c Nullable(Float64),
    power_w Nullable(Float64),
    sm_clock_mhz Nullable(Float64),
    max_sm_clock_mhz Nullable(Float64),
    ecc_corrected Nullable(UInt64),
    ecc_uncorrected Nullable(UInt64),
    throttled Nullable(UInt8),
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64
) ENGINE = ReplacingMergeTree(version) ORDER BY (node_id, device_id, fact)
SETTINGS non_replicated_deduplication_window = 1000;

-- Which devices of a node get no new ranks, as the scheduler last decided; empty: all are open.
CREATE TABLE IF NOT EXISTS closed_devices_rows (
    node_id String,
    version UInt64,
    at DateTime64(3, 'UTC'),
    device_ids Array(String),
    reason String,
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64
) ENGINE = ReplacingMergeTree(version) ORDER BY node_id
SETTINGS non_replicated_deduplication_window = 1000;

-- One row a device.
--   state    LOST: its node is lost or suspected; GONE: its node registered again without it; CLOSED: it, or its node, gets nothing new and
--            it has no rank; HELD: it has a rank; FREE: it has none
--   closed   why it gets nothing new: '' when it does
--   job_id, epoch, rank, and the driver's figures   as its node's newest heartbeat told (at most ten seconds late); NULL: not told
CREATE OR REPLACE VIEW devices AS
SELECT
    d.device_id AS device_id, d.node_id AS node_id, n.pool AS pool, d.device_index AS device_index, d.device_type AS device_type, d.memory_bytes AS memory_bytes,
    d.nvlink_peers AS nvlink_peers, d.ecc_enabled = 1 AS ecc_enabled,
    multiIf(n.state IN ('LOST', 'SUSPECTED'), 'LOST', d.registered_at < n.registered_at, 'GONE', d.job_id != '', 'HELD',
        closed != '', 'CLOSED', 'FREE') AS state,
    multiIf(has(c.device_ids, d.device_id), if(c.reason = '', 'DEVICE', concat('DEVICE: ', c.reason)),
        n.restriction != 'NONE', concat(n.restriction, if(n.restriction_reason = '', '', concat(': ', n.restriction_reason))), '') AS closed,
    d.job_id AS job_id, d.epoch AS epoch, d.rank AS rank,
    d.utilization_pct AS utilization_pct, d.memory_used_bytes AS memory_used_bytes, d.temperature_c AS temperature_c, d.power_w AS power_w,
    d.sm_clock_mhz AS sm_clock_mhz, d.max_sm_clock_mhz AS max_sm_clock_mhz, d.ecc_corrected AS ecc_corrected,
    d.ecc_uncorrected AS ecc_uncorrected, d.throttled AS throttled,
    d.registered_at AS registered_at, d.last_heartbeat_at AS last_heartbeat_at
FROM (
    SELECT f.node_id AS node_id, f.device_id AS device_id,
        anyIf(f.device_index, f.fact = 'registered') AS device_index, anyIf(f.device_type, f.fact = 'registered') AS device_type,
        anyIf(f.memory_bytes, f.fact = 'registered') AS memory_bytes, anyIf(f.nvlink_peers, f.fact = 'registered') AS nvlink_peers,
        anyIf(f.ecc_enabled, f.fact = 'registered') AS ecc_enabled,
        anyIf(f.job_id, f.fact = 'beat') AS job_id, anyIf(f.epoch, f.fact = 'beat') AS epoch, anyIf(f.rank, f.fact = 'beat') AS rank,
        anyIf(f.utilization_pct, f.fact = 'beat') AS utilization_pct, anyIf(f.memory_used_bytes, f.fact = 'beat') AS memory_used_bytes,
        anyIf(f.temperature_c, f.fact = 'beat') AS temperature_c, anyIf(f.power_w, f.fact = 'beat') AS power_w,
        anyIf(f.sm_clock_mhz, f.fact = 'beat') AS sm_clock_mhz, anyIf(f.max_sm_clock_mhz, f.fact = 'beat') AS max_sm_clock_mhz,
        anyIf(f.ecc_corrected, f.fact = 'beat') AS ecc_corrected, anyIf(f.ecc_uncorrected, f.fact = 'beat') AS ecc_uncorrected,
        anyIf(f.throttled, f.fact = 'beat') AS throttled,
        maxOrNullIf(f.at, f.fact = 'registered') AS registered_at, maxOrNullIf(f.at, f.fact = 'beat') AS last_heartbeat_at
    FROM (SELECT * FROM device_facts FINAL) AS f
    GROUP BY f.node_id, f.device_id
) AS d
LEFT JOIN nodes AS n ON n.node_id = d.node_id
LEFT JOIN (SELECT node_id, device_ids, reason FROM closed_devices_rows FINAL) AS c ON c.node_id = d.node_id
WHERE d.registered_at IS NOT NULL;

-- Heartbeats by device and minute. A minute is one row however many heartbeats came; every aggregate is one that a repeat does not
-- change (the largest, the least, maps merged by maxMap), so a batch that is written twice leaves it as it was.
-- `utilization` and `power_w` have an entry for the second of each heartbeat that was taken (one in ten seconds at most), as Float32:
-- drivers tell whole percents and tenths of watts. Ordered by device, then time: one curve is one range on disk, and neighbours are alike,
-- which the codecs live on. Rows age by when they came in, after 40 days, as node_minutes do; utilization of nodes and teams is there.
CREATE TABLE IF NOT EXISTS device_minutes_rows (
    node_id LowCardinality(String),
    device_id LowCardinality(String),
    minute DateTime64(3, 'UTC') CODEC(DoubleDelta, ZSTD),
    pool SimpleAggregateFunction(anyLast, LowCardinality(String)),
    job_id SimpleAggregateFunction(max, String) CODEC(ZSTD),
    utilization SimpleAggregateFunction(maxMap, Map(UInt8, Float32)) CODEC(ZSTD),
    power_w SimpleAggregateFunction(maxMap, Map(UInt8, Float32)) CODEC(ZSTD),
    memory_used_bytes SimpleAggregateFunction(max, Nullable(UInt64)) CODEC(ZSTD),
    temperature_c SimpleAggregateFunction(max, Nullable(Float32)) CODEC(ZSTD),
    sm_clock_mhz SimpleAggregateFunction(min, Nullable(Float32)) CODEC(ZSTD),
    ecc_corrected SimpleAggregateFunction(max, Nullable(UInt64)) CODEC(ZSTD),
    ecc_uncorrected SimpleAggregateFunction(max, Nullable(UInt64)) CODEC(ZSTD),
    throttled SimpleAggregateFunction(max, Nullable(UInt8)) CODEC(ZSTD),
    last_at SimpleAggregateFunction(max, DateTime64(3, 'UTC')) CODEC(DoubleDelta, ZSTD),
    source_topic SimpleAggregateFunction(anyLast, LowCardinality(String)),
    source_partition SimpleAggregateFunction(max, UInt32),
    source_offset SimpleAggregateFunction(max, UInt64) CODEC(Delta, ZSTD),
    inserted_at SimpleAggregateFunction(max, DateTime('UTC')) MATERIALIZED now()
) ENGINE = AggregatingMergeTree ORDER BY (node_id, device_id, minute)
TTL inserted_at + INTERVAL 40 DAY
SETTINGS non_replicated_deduplication_window = 1000;

-- utilization_pct, power_w: means of the minute; max_…: the largest sample; NULL where the driver tells nothing. job_id: '' when no rank had it.
CREATE OR REPLACE VIEW device_minutes AS
SELECT
    minute, node_id, device_id, pool, job_id,
    if(empty(utilization), NULL, arrayAvg(mapValues(utilization))) AS utilization_pct,
    if(empty(utilization), NULL, arrayMax(mapValues(utilization))) AS max_utilization_pct,
    if(empty(power_w), NULL, arrayAvg(mapValues(power_w))) AS power_w,
    if(empty(device_minutes_rows.power_w), NULL, arrayMax(mapValues(device_minutes_rows.power_w))) AS max_power_w,
    memory_used_bytes AS max_memory_used_bytes, temperature_c AS max_temperature_c, sm_clock_mhz AS min_sm_clock_mhz,
    ecc_corrected, ecc_uncorrected, throttled = 1 AS throttled, last_at, inserted_at
FROM device_minutes_rows FINAL;

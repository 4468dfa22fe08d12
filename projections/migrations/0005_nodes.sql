-- Facts about nodes: the newest registration, heartbeat, suspicion and loss of each, by time.
CREATE TABLE IF NOT EXISTS node_facts (
    node_id String,
    fact LowCardinality(String),
    version UInt64,
    at DateTime64(3, 'UTC'),
    boot_id String,
    incarnation String,
    pool LowCardinality(String),
    address String,
    device_type LowCardinality(String),
    devices UInt32,
    cpus Float64,
    memory_bytes UInt64,
    labels Map(String, String),
    ranks_running UInt32,
    spool_lag_bytes UInt64,
    silent_s Float64,
    reason String,
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64
) ENGINE = ReplacingMergeTree(version) ORDER BY (node_id, fact)
SETTINGS non_replicated_deduplication_window = 1000;

CREATE OR REPLACE VIEW nodes AS
SELECT
    node_id,
    argMax(f.pool, f.at) AS pool,
    multiIf(argMax(f.fact, f.at) = 'lost', 'LOST', argMax(f.fact, f.at) = 'suspected', 'SUSPECTED', 'ALIVE') AS state,
    argMax(f.boot_id, f.at) AS boot_id,
    anyIf(f.address, f.fact = 'registered') AS address,
    anyIf(f.device_type, f.fact = 'registered') AS device_type,
    anyIf(f.devices, f.fact = 'registered') AS devices,
    anyIf(f.cpus, f.fact = 'registered') AS cpus,
    anyIf(f.memory_bytes, f.fact = 'registered') AS memory_bytes,
    anyIf(f.labels, f.fact = 'registered') AS labels,
    anyIf(f.ranks_running, f.fact = 'beat') AS ranks_running,
    anyIf(f.spool_lag_bytes, f.fact = 'beat') AS spool_lag_bytes,
    anyIf(f.reason, f.fact = 'lost') AS lost_reason,
    maxOrNullIf(f.at, f.fact = 'registered') AS registered_at,
    maxOrNullIf(f.at, f.fact = 'beat') AS last_heartbeat_at,
    maxOrNullIf(f.at, f.fact = 'lost') AS lost_at
FROM node_facts AS f FINAL
GROUP BY node_id;

-- Every verdict: on nodes, devices and gangs, what was lifted again, and whom each failure was blamed on.
-- One row an event, with the columns that verdicts share; what a type does not have is empty or NULL. `value` and `limit` are the number
-- behind a verdict and what it was held against: seconds of silence (suspected, lost, hung), times as slow (straggler), shares of time
-- (data, store), new errors or share of the clock (device), failed checks (probed). `lifted` is the type that a lift takes back.
-- Ordered by time, since everybody asks of a span: the last hour, a week. The id makes a repeat collapse.
CREATE TABLE IF NOT EXISTS verdicts_rows (
    at DateTime64(3, 'UTC') CODEC(Delta, ZSTD),
    event_id String CODEC(ZSTD),
    type LowCardinality(String),
    pool LowCardinality(String),
    job_id String,
    attempt Nullable(UInt32),
    epoch Nullable(UInt32),
    node_id LowCardinality(String),
    boot_id String CODEC(ZSTD),
    device_id String,
    rank Nullable(UInt32),
    ranks Array(UInt32),
    category LowCardinality(String),
    rule LowCardinality(String),
    fingerprint String,
    mine UInt8,
    shard String,
    fault LowCardinality(String),
    restriction LowCardinality(String),
    restricted_by String,
    source LowCardinality(String),
    passed Nullable(UInt8),
    lifted LowCardinality(String),
    value Nullable(Float64),
    limit Nullable(Float64),
    step Nullable(UInt64),
    lost_steps Nullable(UInt64),
    since Nullable(DateTime64(3, 'UTC')),
    failed_at Nullable(DateTime64(3, 'UTC')),
    deadline_at Nullable(DateTime64(3, 'UTC')),
    summary String CODEC(ZSTD),
    evidence String CODEC(ZSTD),
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64,
    inserted_at DateTime('UTC') MATERIALIZED now() CODEC(DoubleDelta, LZ4)
) ENGINE = ReplacingMergeTree ORDER BY (at, event_id)
TTL inserted_at + INTERVAL 365 DAY
SETTINGS non_replicated_deduplication_window = 1000;

CREATE OR REPLACE VIEW verdicts AS SELECT * FROM verdicts_rows FINAL;

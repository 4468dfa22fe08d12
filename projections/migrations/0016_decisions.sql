-- Every decision of the scheduler's journal, one row each: only those of records that count (the first record of a seq), so this is what
-- happened, not what was tried. (partition, seq, ordinal) names one; `at` is the journal's own time; `json` is the decision whole.
-- Ordered by job: a job's decisions are one range on disk, and since its statuses repeat nearly the same text with every step, ZSTD keeps
-- a few per cent of it there. Those about a node or a pool have no job and stand together at the front. `by_time` serves spans of time.
CREATE TABLE IF NOT EXISTS decisions_rows (
    job_id String,
    partition UInt32,
    seq UInt64 CODEC(Delta, ZSTD),
    ordinal UInt32 CODEC(T64, ZSTD),
    at DateTime64(3, 'UTC') CODEC(Delta, ZSTD),
    type LowCardinality(String),
    node_id LowCardinality(String),
    pool LowCardinality(String),
    epoch Nullable(UInt32),
    json String CODEC(ZSTD(3)),
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64 CODEC(Delta, ZSTD),
    INDEX by_time at TYPE minmax GRANULARITY 1,
    inserted_at DateTime('UTC') MATERIALIZED now() CODEC(DoubleDelta, LZ4)
) ENGINE = ReplacingMergeTree ORDER BY (job_id, partition, seq, ordinal)
TTL inserted_at + INTERVAL 365 DAY
SETTINGS non_replicated_deduplication_window = 1000;

CREATE OR REPLACE VIEW decisions AS SELECT * FROM decisions_rows FINAL;

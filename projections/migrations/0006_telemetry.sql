-- One row a metric value. Ordered as curves are drawn: one metric of one job, by attempt and rank, along the steps.
-- Appended only, so that a read needs no FINAL: repeats are kept out by intent, token and count (see positions).
-- Not partitioned by time: the times come from the ranks' clocks, and one wrong clock must not make a thousand parts.
-- Rows age by when they came in (inserted_at), for the same reason.
-- DoubleDelta suits steps and times that grow evenly, Gorilla slowly changing floats; source_offset is constant over a record.
CREATE TABLE IF NOT EXISTS step_metrics (
    job_id LowCardinality(String),
    metric LowCardinality(String),
    epoch UInt32 CODEC(T64, ZSTD),
    attempt UInt32 CODEC(T64, ZSTD),
    rank UInt32 CODEC(T64, ZSTD),
    step UInt64 CODEC(DoubleDelta, LZ4),
    time DateTime64(3, 'UTC') CODEC(DoubleDelta, LZ4),
    value Float64 CODEC(Gorilla, LZ4),
    node_id LowCardinality(String),
    source_partition UInt32 CODEC(T64, LZ4),
    source_offset UInt64 CODEC(Delta, LZ4),
    INDEX by_source source_offset TYPE minmax GRANULARITY 1,
    inserted_at DateTime('UTC') MATERIALIZED now() CODEC(DoubleDelta, LZ4)
) ENGINE = MergeTree ORDER BY (job_id, metric, epoch, rank, step)
TTL inserted_at + INTERVAL 365 DAY
SETTINGS non_replicated_deduplication_window = 1000;

-- One row a line of a rank's output, in the order of its file. Text compresses best with ZSTD.
CREATE TABLE IF NOT EXISTS logs (
    job_id LowCardinality(String),
    epoch UInt32 CODEC(T64, ZSTD),
    attempt UInt32 CODEC(T64, ZSTD),
    rank UInt32 CODEC(T64, ZSTD),
    stream LowCardinality(String),
    offset UInt64 CODEC(Delta, ZSTD),
    time DateTime64(3, 'UTC') CODEC(DoubleDelta, LZ4),
    line String CODEC(ZSTD),
    node_id LowCardinality(String),
    source_partition UInt32 CODEC(T64, LZ4),
    source_offset UInt64 CODEC(Delta, LZ4),
    INDEX by_source source_offset TYPE minmax GRANULARITY 1,
    inserted_at DateTime('UTC') MATERIALIZED now() CODEC(DoubleDelta, LZ4)
) ENGINE = MergeTree ORDER BY (job_id, epoch, rank, stream, offset)
TTL inserted_at + INTERVAL 90 DAY
SETTINGS non_replicated_deduplication_window = 1000;

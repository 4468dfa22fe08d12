-- How well parts of the platform answered, as somebody saw it who asked: one row a span (a minute) and who asked. For objectives (SLOs).
--   good of total were answered within limit_s seconds, failed not at all; p50_s, p99_s, max_s of those that were: NULL where none was
-- A row a minute is little: ordered as it is asked for, one service along the time; repeats have the same key. Kept for a year, so that
-- this month can be held against the same one of last year.
CREATE TABLE IF NOT EXISTS service_measures_rows (
    service LowCardinality(String),
    source LowCardinality(String),
    since DateTime64(3, 'UTC') CODEC(Delta, ZSTD),
    at DateTime64(3, 'UTC') CODEC(Delta, ZSTD),
    total UInt64 CODEC(T64, ZSTD),
    good UInt64 CODEC(T64, ZSTD),
    failed UInt64 CODEC(T64, ZSTD),
    limit_s Float64,
    p50_s Nullable(Float64),
    p99_s Nullable(Float64),
    max_s Nullable(Float64),
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64 CODEC(Delta, ZSTD),
    inserted_at DateTime('UTC') MATERIALIZED now() CODEC(DoubleDelta, LZ4)
) ENGINE = ReplacingMergeTree ORDER BY (service, at, source)
TTL inserted_at + INTERVAL 365 DAY
SETTINGS non_replicated_deduplication_window = 1000;

CREATE OR REPLACE VIEW service_measures AS SELECT * FROM service_measures_rows FINAL;

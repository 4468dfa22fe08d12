-- Why jobs waited: each answer as it was published, in the order of time. The newest of a job that still waits is in the view `why`.
CREATE TABLE IF NOT EXISTS explanations_rows (
    job_id String,
    at DateTime64(3, 'UTC') CODEC(Delta, ZSTD),
    pool LowCardinality(String),
    team LowCardinality(String),
    place UInt32,
    waiting UInt32,
    waiting_since DateTime64(3, 'UTC') CODEC(Delta, ZSTD),
    needs String CODEC(ZSTD),
    obstacle LowCardinality(String),
    text String CODEC(ZSTD),
    refusals Array(String) CODEC(ZSTD),
    unblock Array(String) CODEC(ZSTD),
    score Nullable(Float64),
    score_priority Nullable(Float64),
    score_wait_bonus Nullable(Float64),
    score_over_share_penalty Nullable(Float64),
    reserved_start Nullable(DateTime64(3, 'UTC')),
    eta Nullable(DateTime64(3, 'UTC')),
    eta_from String CODEC(ZSTD),
    json String CODEC(ZSTD),
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64 CODEC(Delta, ZSTD),
    inserted_at DateTime('UTC') MATERIALIZED now() CODEC(DoubleDelta, LZ4)
) ENGINE = ReplacingMergeTree ORDER BY (job_id, at)
TTL inserted_at + INTERVAL 90 DAY
SETTINGS non_replicated_deduplication_window = 1000;

CREATE OR REPLACE VIEW explanations AS SELECT * FROM explanations_rows FINAL;

-- The newest answer of every job that waits.
CREATE OR REPLACE VIEW why AS
SELECT * FROM explanations_rows FINAL
WHERE job_id IN (SELECT job_id FROM jobs_rows FINAL WHERE state = 'PENDING')
ORDER BY job_id, at DESC LIMIT 1 BY job_id;

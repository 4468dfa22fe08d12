-- The whole status of each job; the newest status_seq wins. Small rows in the order in which people ask for them.
-- version = status_seq + 1; a rejection has version 0, so a bad resubmission never hides a job that runs.
-- job_key is the job id, or the submission's event id where a rejected submission had no readable job id.
CREATE TABLE IF NOT EXISTS jobs_rows (
    job_key String,
    version UInt64,
    job_id String,
    name String,
    project LowCardinality(String),
    team LowCardinality(String),
    user LowCardinality(String),
    pool LowCardinality(String),
    priority UInt8,
    state LowCardinality(String),
    reason String,
    attempt UInt32,
    epoch UInt32,
    restarts UInt32,
    world_size UInt32,
    node_ids Array(String),
    step Nullable(UInt64),
    total_steps Nullable(UInt64),
    loss Nullable(Float64),
    learning_rate Nullable(Float64),
    steps_per_s Nullable(Float64),
    samples_per_s Nullable(Float64),
    elapsed_s Nullable(Float64),
    eta_s Nullable(Float64),
    last_checkpoint_step Nullable(UInt64),
    last_checkpoint_commit Nullable(UInt64),
    last_checkpoint_uri String,
    submission_id String,
    spec_sha256 String,
    submitted_at Nullable(DateTime64(3, 'UTC')),
    allocated_at Nullable(DateTime64(3, 'UTC')),
    started_at Nullable(DateTime64(3, 'UTC')),
    finished_at Nullable(DateTime64(3, 'UTC')),
    updated_at DateTime64(3, 'UTC'),
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64
) ENGINE = ReplacingMergeTree(version) ORDER BY job_key
SETTINGS non_replicated_deduplication_window = 1000;

CREATE OR REPLACE VIEW jobs AS SELECT * EXCEPT (job_key, version), toInt64(version) - 1 AS status_seq FROM jobs_rows FINAL;

-- Every status that a job went through, narrow, for its story: about ten bytes a row after the delta codecs.
CREATE TABLE IF NOT EXISTS statuses_rows (
    job_id String,
    status_seq UInt64 CODEC(Delta, ZSTD),
    at DateTime64(3, 'UTC') CODEC(Delta, ZSTD),
    state LowCardinality(String),
    reason String CODEC(ZSTD),
    attempt UInt32,
    restarts UInt32,
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64 CODEC(Delta, ZSTD),
    inserted_at DateTime('UTC') MATERIALIZED now() CODEC(DoubleDelta, LZ4)
) ENGINE = ReplacingMergeTree ORDER BY (job_id, status_seq)
TTL inserted_at + INTERVAL 180 DAY
SETTINGS non_replicated_deduplication_window = 1000;

-- One row a refused submission, cancellation or change.
CREATE TABLE IF NOT EXISTS rejections_rows (
    submission_id String,
    job_id String,
    reason String,
    rejected_at DateTime64(3, 'UTC'),
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64
) ENGINE = ReplacingMergeTree ORDER BY submission_id
SETTINGS non_replicated_deduplication_window = 1000;

CREATE OR REPLACE VIEW rejections AS SELECT * FROM rejections_rows FINAL;

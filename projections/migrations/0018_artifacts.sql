-- Files that jobs and runs put somewhere, by path: the newest word on a path stays. `kind` is the ending of the path, without its dot.
-- Ordered as it is asked for: the artifacts of a job, as a tree of paths. Kept as long as the jobs are.
CREATE TABLE IF NOT EXISTS artifacts_rows (
    job_id String,
    path String CODEC(ZSTD),
    version UInt64,
    at DateTime64(3, 'UTC') CODEC(Delta, ZSTD),
    kind LowCardinality(String),
    uri String CODEC(ZSTD),
    sha256 String,
    size_bytes UInt64,
    deleted UInt8,
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64
) ENGINE = ReplacingMergeTree(version) ORDER BY (job_id, path)
SETTINGS non_replicated_deduplication_window = 1000;

CREATE OR REPLACE VIEW artifacts AS SELECT * EXCEPT (version, deleted) FROM artifacts_rows FINAL WHERE deleted = 0;

-- How each field of a version differs from an earlier version of its dataset, as its publisher computed it from both manifests: a row a field,
-- with the sums over all fields beside it. At most 64 rows a pair, and no TTL, as versions have none.
CREATE TABLE IF NOT EXISTS dataset_drift_rows (
    dataset String,
    sha256 String,
    against_sha256 String,
    field String,
    project String,
    predecessor UInt8,
    row_count UInt64,
    row_count_before UInt64,
    fields_compared UInt32,
    fields_drifted UInt32,
    fields_changed UInt32,
    verdict LowCardinality(String),
    reason String CODEC(ZSTD),
    psi Nullable(Float64),
    psi_limit Nullable(Float64),
    ks Nullable(Float64),
    ks_limit Nullable(Float64),
    missing Float64,
    missing_before Float64,
    user String,
    at DateTime64(3, 'UTC'),
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64
) ENGINE = ReplacingMergeTree ORDER BY (dataset, sha256, against_sha256, field)
SETTINGS non_replicated_deduplication_window = 1000;

CREATE OR REPLACE VIEW dataset_drift AS
SELECT dataset, concat(dataset, '@sha256:', sha256) AS version, concat(dataset, '@sha256:', against_sha256) AS against, predecessor, project,
    field, verdict, reason, psi, psi_limit, ks, ks_limit, missing, missing_before, row_count, row_count_before, fields_compared,
    fields_drifted, fields_changed, user AS measured_by, at AS measured_at
FROM dataset_drift_rows FINAL;

-- No such event is in what the lane has read so far, so no history is to be read again.
INSERT INTO lane_tables (lane, table_name)
SELECT 'facts', 'dataset_drift_rows'
WHERE (SELECT count() FROM positions WHERE lane = 'facts') > 0;

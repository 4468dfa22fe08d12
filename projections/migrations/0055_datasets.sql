-- What was said of each version of a dataset: its publication, once for each tag, and its deprecation. A few rows a version, and no TTL:
-- which data a model was trained on is asked years later. Fields: where the publication names them, which more than 64 KiB of them are not.
CREATE TABLE IF NOT EXISTS dataset_versions_rows (
    dataset String,
    sha256 String,
    fact LowCardinality(String),
    semver String,
    project String,
    schema_hash String,
    split_config_hash String,
    split_names Array(String) CODEC(ZSTD),
    split_samples Array(UInt64),
    split_bytes Array(UInt64),
    split_shards Array(UInt32),
    row_count UInt64,
    bytes UInt64,
    licence String CODEC(ZSTD),
    purposes Array(String) CODEC(ZSTD),
    field_names Array(String) CODEC(ZSTD),
    field_types Array(String) CODEC(ZSTD),
    field_optional Array(UInt32) CODEC(ZSTD),
    user String,
    reason String CODEC(ZSTD),
    at DateTime64(3, 'UTC'),
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64
) ENGINE = ReplacingMergeTree ORDER BY (dataset, sha256, fact, semver)
SETTINGS non_replicated_deduplication_window = 1000;

-- The versions as they are now; what a job names as `data.dataset` is `version`, or `dataset` with one of the tags.
CREATE OR REPLACE VIEW training_datasets AS
SELECT dataset, concat(dataset, '@sha256:', sha256) AS version, sha256, arraySort(groupUniqArrayIf(semver, fact = 'published' AND semver != '')) AS tags,
    anyIf(r.project, fact = 'published') AS project, anyIf(r.schema_hash, fact = 'published') AS schema_hash,
    anyIf(r.split_config_hash, fact = 'published') AS split_config_hash, anyIf(r.split_names, fact = 'published') AS splits,
    anyIf(r.split_samples, fact = 'published') AS split_samples, anyIf(r.split_bytes, fact = 'published') AS split_bytes,
    anyIf(r.split_shards, fact = 'published') AS split_shards, anyIf(r.row_count, fact = 'published') AS row_count,
    anyIf(r.bytes, fact = 'published') AS bytes, anyIf(r.licence, fact = 'published') AS licence,
    anyIf(r.purposes, fact = 'published') AS purposes, argMinIf(r.user, r.at, fact = 'published') AS created_by,
    minIf(r.at, fact = 'published') AS published_at, toUInt8(countIf(fact = 'deprecated') > 0) AS deprecated,
    anyIf(r.reason, fact = 'deprecated') AS deprecated_reason, anyIf(r.user, fact = 'deprecated') AS deprecated_by,
    if(deprecated, maxIf(r.at, fact = 'deprecated'), NULL) AS deprecated_at,
    argMaxIf(r.field_names, length(r.field_names), fact = 'published') AS field_names,
    argMaxIf(r.field_types, length(r.field_names), fact = 'published') AS field_types,
    argMaxIf(r.field_optional, length(r.field_names), fact = 'published') AS field_optional
FROM dataset_versions_rows AS r FINAL
GROUP BY dataset, sha256
HAVING countIf(fact = 'published') > 0;

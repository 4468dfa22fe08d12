-- Fields of a version, where its publication names them: publications of before, and of more than 64 KiB of fields, do not.
ALTER TABLE dataset_versions_rows ADD COLUMN IF NOT EXISTS field_names Array(String) CODEC(ZSTD) AFTER purposes;
ALTER TABLE dataset_versions_rows ADD COLUMN IF NOT EXISTS field_types Array(String) CODEC(ZSTD) AFTER field_names;
ALTER TABLE dataset_versions_rows ADD COLUMN IF NOT EXISTS field_optional Array(UInt32) CODEC(ZSTD) AFTER field_types;

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

-- What was said of each grant of a dataset to another project: that it was given, and that it was revoked. A few rows a grant, and no TTL:
-- who might read what, and when, is asked years later.
--   sha256   '' where it is one of all versions
CREATE TABLE IF NOT EXISTS dataset_grants_rows (
    dataset String,
    sha256 String,
    project String,
    purpose String,
    number UInt64,
    fact LowCardinality(String),
    owner String,
    user String,
    reason String CODEC(ZSTD),
    at DateTime64(3, 'UTC'),
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64
) ENGINE = ReplacingMergeTree ORDER BY (dataset, sha256, project, purpose, number)
SETTINGS non_replicated_deduplication_window = 1000;

-- Grants that were ever given, by the change with the highest number of each.
CREATE OR REPLACE VIEW dataset_grants AS
WITH argMaxIf((r.user, r.reason, r.at), r.number, fact = 'granted') AS given, argMax((r.fact, r.user, r.reason, r.at), r.number) AS last
SELECT dataset, if(sha256 = '', '', concat(dataset, '@sha256:', sha256)) AS version, sha256, any(r.owner) AS owner, project, purpose,
    given.1 AS granted_by, given.2 AS reason, given.3 AS granted_at, toUInt8(last.1 = 'revoked') AS revoked,
    if(revoked, last.2, '') AS revoked_by, if(revoked, last.3, '') AS revoked_reason, if(revoked, last.4, NULL) AS revoked_at
FROM dataset_grants_rows AS r FINAL
GROUP BY dataset, sha256, project, purpose
HAVING countIf(fact = 'granted') > 0;

-- What was said of a shard of a version: that it is in quarantine, with the evidence, and that it is released. A few rows a shard, and no TTL.
CREATE TABLE IF NOT EXISTS dataset_shards_rows (
    dataset String,
    sha256 String,
    shard String,
    fact LowCardinality(String),
    number UInt64,
    split String,
    fault LowCardinality(String),
    sample String CODEC(ZSTD),
    expected String CODEC(ZSTD),
    seen String CODEC(ZSTD),
    job_id String,
    rank Nullable(UInt32),
    node_id String,
    user String,
    reason String CODEC(ZSTD),
    at DateTime64(3, 'UTC'),
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64
) ENGINE = ReplacingMergeTree ORDER BY (dataset, sha256, shard, number)
SETTINGS non_replicated_deduplication_window = 1000;

-- Shards that were ever in quarantine, by the change with the highest number of each; ranks that are not known are NULL, so in a tuple.
CREATE OR REPLACE VIEW quarantined_shards AS
WITH argMaxIf((r.split, r.fault, r.sample, r.expected, r.seen, r.job_id, r.rank, r.node_id, r.at), r.number, fact = 'quarantined') AS found,
    argMax((r.fact, r.user, r.reason, r.at), r.number) AS last
SELECT dataset, concat(dataset, '@sha256:', sha256) AS version, sha256, shard, found.1 AS split, found.2 AS fault, found.3 AS sample,
    found.4 AS expected, found.5 AS seen, found.6 AS job_id, found.7 AS rank, found.8 AS node_id, found.9 AS quarantined_at,
    toUInt8(last.1 = 'released') AS released, if(released, last.2, '') AS released_by, if(released, last.3, '') AS released_reason,
    if(released, last.4, NULL) AS released_at
FROM dataset_shards_rows AS r FINAL
GROUP BY dataset, sha256, shard
HAVING countIf(fact = 'quarantined') > 0;

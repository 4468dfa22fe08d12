-- Every event about a job or a node, for `trainhouse events`. An event id names one event, whichever topics carried it:
-- the copy with the largest version (the most original topic, then the earliest offset) stays.
CREATE TABLE IF NOT EXISTS events_rows (
    job_id String,
    event_id String,
    version UInt64,
    time DateTime64(3, 'UTC'),
    type LowCardinality(String),
    subject String,
    node_id LowCardinality(String),
    epoch Nullable(UInt32),
    summary String CODEC(ZSTD),
    json String CODEC(ZSTD),
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64,
    inserted_at DateTime('UTC') MATERIALIZED now() CODEC(DoubleDelta, LZ4)
) ENGINE = ReplacingMergeTree(version) ORDER BY (job_id, event_id)
TTL inserted_at + INTERVAL 365 DAY
SETTINGS non_replicated_deduplication_window = 1000;

-- The story of jobs: their events, and each change of state or attempt (a status repeats these with every step).
CREATE OR REPLACE VIEW events AS
SELECT job_id, time, type, event_id, subject, node_id, epoch, summary, json, source_topic, source_partition, source_offset
FROM events_rows FINAL
UNION ALL
SELECT job_id, at AS time, 'trainhouse.job.status.v1' AS type, concat(job_id, ':status:', toString(status_seq)) AS event_id,
    job_id AS subject, '' AS node_id, NULL AS epoch,
    concat(state, if(attempt > 0, concat(', attempt ', toString(attempt)), ''), if(reason != '', concat(': ', reason), '')) AS summary,
    '' AS json, source_topic, source_partition, source_offset
FROM (
    SELECT *, lagInFrame(concat(state, '/', toString(attempt), '/', reason), 1, '') OVER
        (PARTITION BY job_id ORDER BY status_seq ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS previous
    FROM statuses_rows FINAL
)
WHERE previous != concat(state, '/', toString(attempt), '/', reason);

-- What could not be read: reported by intake (from the dead-letter topic) or met by the projector itself.
CREATE TABLE IF NOT EXISTS dead_letters_rows (
    topic LowCardinality(String),
    partition UInt32,
    offset UInt64,
    version UInt8,
    seen_by LowCardinality(String),
    reason String,
    job_id String,
    event_id String,
    size_bytes UInt64,
    head String CODEC(ZSTD),
    time DateTime64(3, 'UTC'),
    inserted_at DateTime('UTC') MATERIALIZED now() CODEC(DoubleDelta, LZ4)
) ENGINE = ReplacingMergeTree(version) ORDER BY (topic, partition, offset)
TTL inserted_at + INTERVAL 365 DAY
SETTINGS non_replicated_deduplication_window = 1000;

CREATE OR REPLACE VIEW dead_letters AS SELECT * EXCEPT (version) FROM dead_letters_rows FINAL;

-- Which nodes each attempt was given, from the scheduler's journal: what a rank tells counts if one of them signed it (senders.py).
CREATE TABLE IF NOT EXISTS placements_rows (
    job_id String,
    epoch UInt32,
    attempt UInt32,
    node_id LowCardinality(String),
    at DateTime64(3, 'UTC'),
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64
) ENGINE = ReplacingMergeTree ORDER BY (job_id, epoch, attempt, node_id)
TTL toDateTime(at) + INTERVAL 730 DAY
SETTINGS non_replicated_deduplication_window = 1000;

-- Points come from two topics now, so an offset alone names no record.
ALTER TABLE step_metrics ADD COLUMN IF NOT EXISTS source_topic LowCardinality(String) DEFAULT 'trainhouse.metrics' AFTER node_id;

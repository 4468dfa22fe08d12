-- Where ingestion stands. No TTL here, ever: losing a row would mean reading a topic from its beginning.
--
-- One row a lane, topic and partition: the newest batch that touched it covers the offsets [from_offset, to_offset).
-- done = 0 is the intent, written before the batch's rows; done = 1 follows when all of them are in.
-- The version (2 * batch + done) lets a merge keep the newest row only. One small part an insert, so no partitioning.
CREATE TABLE IF NOT EXISTS positions (
    lane LowCardinality(String),
    topic LowCardinality(String),
    partition UInt32,
    batch UInt64,
    from_offset UInt64,
    to_offset UInt64,
    done UInt8,
    version UInt64
) ENGINE = ReplacingMergeTree(version) ORDER BY (lane, topic, partition)
SETTINGS non_replicated_deduplication_window = 1000;

-- How far each file of a rank has been ingested, so that a range which was cut differently after a restart is trimmed.
-- `before` is the mark ahead of `batch`: while that batch is not done, readers take `before`.
CREATE TABLE IF NOT EXISTS high_water (
    lane LowCardinality(String),
    stream String,
    batch UInt64,
    mark UInt64,
    before UInt64
) ENGINE = ReplacingMergeTree(batch) ORDER BY (lane, stream)
SETTINGS non_replicated_deduplication_window = 1000;

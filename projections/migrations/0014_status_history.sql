-- The history of statuses says more of each: which attempt's fence, how many ranks where, and how far training was. Rows that were
-- written before have the columns' defaults; a rebuild fills them.
ALTER TABLE statuses_rows ADD COLUMN IF NOT EXISTS epoch UInt32 AFTER attempt;
ALTER TABLE statuses_rows ADD COLUMN IF NOT EXISTS pool LowCardinality(String) AFTER restarts;
ALTER TABLE statuses_rows ADD COLUMN IF NOT EXISTS priority UInt8 AFTER pool;
ALTER TABLE statuses_rows ADD COLUMN IF NOT EXISTS world_size UInt32 AFTER priority;
ALTER TABLE statuses_rows ADD COLUMN IF NOT EXISTS node_ids Array(String) CODEC(ZSTD) AFTER world_size;
ALTER TABLE statuses_rows ADD COLUMN IF NOT EXISTS step Nullable(UInt64) CODEC(ZSTD) AFTER node_ids;

-- Every status of every job, each once, oldest first within a job. It comes from the scheduler's decisions as well as from the topic of
-- statuses: that topic is compacted and forgets all but a job's newest status, the decisions do not.
CREATE OR REPLACE VIEW job_status_history AS
SELECT job_id, status_seq, at, state, reason, attempt, epoch, restarts, pool, priority, world_size, node_ids, step,
    source_topic, source_partition, source_offset
FROM statuses_rows FINAL;

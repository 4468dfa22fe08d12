-- What came from what: one row an edge, from a cause to what it led to. Ids say what a thing is: job:ID, attempt:JOB/EPOCH,
-- checkpoint:JOB@COMMIT, code:SHA256, environment:HASH, data:URI, artifact:URI; new kinds of things need nothing here.
--   kind   'code', 'environment', 'data': what a job was given; 'attempt': a try of a job; 'saved': a checkpoint of an attempt;
--          'restored': an attempt began from a checkpoint; 'resumed': a job was told to begin from another; 'wrote': an artifact
--   at     when it was first told (the earliest stays: `version` falls with the time), ms
-- An edge that is told again, by another event or topic, is the same row. Small blocks, and a filter on the other end: whoever walks the
-- graph asks for a few ids at a time, in both directions.
CREATE TABLE IF NOT EXISTS lineage_rows (
    from_id String CODEC(ZSTD),
    to_id String CODEC(ZSTD),
    kind LowCardinality(String),
    version UInt64,
    at DateTime64(3, 'UTC') CODEC(Delta, ZSTD),
    job_id String CODEC(ZSTD),
    project LowCardinality(String),
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64,
    INDEX by_to to_id TYPE bloom_filter GRANULARITY 1,
    INDEX by_job job_id TYPE bloom_filter GRANULARITY 1
) ENGINE = ReplacingMergeTree(version) ORDER BY (from_id, to_id, kind)
SETTINGS index_granularity = 1024, non_replicated_deduplication_window = 1000;

-- project: of the job that the edge belongs to.
CREATE OR REPLACE VIEW lineage_edges AS
SELECT e.from_id AS from_id, e.to_id AS to_id, e.kind AS kind, e.at AS at, e.job_id AS job_id,
    if(e.project != '', e.project, j.project) AS project
FROM (SELECT * FROM lineage_rows FINAL) AS e
LEFT JOIN (SELECT job_id, project FROM jobs WHERE state != 'REJECTED') AS j ON j.job_id = e.job_id;

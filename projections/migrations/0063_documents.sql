-- Saves of a project's reports and views: one row a version of a document. The first record of a version counts: all saves of a document are
-- on one partition, and `earliest` is greatest for the lowest offset. No TTL: a few rows a document, kept as what people wrote.
CREATE TABLE IF NOT EXISTS documents_rows (
    project LowCardinality(String),
    kind LowCardinality(String),
    name String,
    version UInt32,
    earliest UInt64,
    event_id String,
    content String CODEC(ZSTD),
    note String CODEC(ZSTD),
    deleted UInt8,
    saved_by String,
    at DateTime64(3, 'UTC'),
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64
) ENGINE = ReplacingMergeTree(earliest) ORDER BY (project, kind, name, version)
SETTINGS non_replicated_deduplication_window = 1000;

CREATE OR REPLACE VIEW document_versions AS
SELECT project, kind, name, version, event_id, content, note, deleted, saved_by, at FROM documents_rows FINAL;

CREATE OR REPLACE VIEW documents AS
SELECT d.project AS project, d.kind AS kind, d.name AS name, max(d.version) AS version, argMax(d.content, d.version) AS content,
    argMax(d.note, d.version) AS note, argMax(d.saved_by, d.version) AS saved_by, argMax(d.at, d.version) AS at,
    argMin(d.saved_by, d.version) AS created_by, argMin(d.at, d.version) AS created_at
FROM document_versions AS d
GROUP BY d.project, d.kind, d.name
HAVING argMax(d.deleted, d.version) = 0;

-- No such event is in what the lanes have read so far, so no history is to be read again.
INSERT INTO lane_tables (lane, table_name)
SELECT lane, 'documents_rows' FROM (SELECT DISTINCT lane FROM positions WHERE lane = 'facts');

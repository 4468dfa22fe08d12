-- The keys that each node has had, '' from when one was forgotten: a row of the audit is judged by the key of its own time too. No TTL.
CREATE TABLE IF NOT EXISTS node_key_history_rows (
    pool LowCardinality(String),
    node_id String,
    at DateTime64(3, 'UTC'),
    public_key String,
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64
) ENGINE = ReplacingMergeTree ORDER BY (pool, node_id, at, public_key)
SETTINGS non_replicated_deduplication_window = 1000;

CREATE OR REPLACE VIEW audit AS SELECT
    at, event_id, kind, status, count, since, action, target, project, sub, token_id, address, reason, done_by, topic, passed_on_id,
    roles, projects, expires_at, access, access_id, session_id, rows, bytes, took_ms, text, text_sha256,
    sub AS user,
    target AS resource,
    multiIf(kind = 'refused' OR status >= 400, 'refused', kind = 'lost', 'lost', 'allowed') AS outcome,
    source_topic, source_partition, source_offset,
    node_id, job_id, attempt, ranks, exit_code,
    multiIf(
        source_topic != 'trainhouse.node-audit', '',
        signed_by = '', 'unsigned',
        (toString(node_id), toString(signed_by)) IN (SELECT node_id, public_key FROM node_keys_rows FINAL), 'node',
        arrayExists(span -> at >= span.1 AND at < span.2, k.spans), 'node',
        'another key'
    ) AS vouched
FROM audit_rows FINAL
LEFT JOIN (
    SELECT node_id AS of_node, public_key, groupArray((since_at, until_at)) AS spans
    FROM (
        SELECT node_id, public_key, at AS since_at, leadInFrame(at, 1, toDateTime64('2200-01-01 00:00:00', 3, 'UTC'))
            OVER (PARTITION BY pool, node_id ORDER BY at ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS until_at
        FROM node_key_history_rows FINAL
    )
    WHERE public_key != '' GROUP BY node_id, public_key
) AS k ON toString(node_id) = k.of_node AND toString(signed_by) = k.public_key
UNION ALL
SELECT
    at, event_id, decided AS kind, CAST(NULL, 'Nullable(UInt32)') AS status, toUInt64(1) AS count, at AS since, type AS action,
    if(job_id != '', job_id, subject) AS target, project, requested_by AS sub, '' AS token_id, '' AS address, reason, '' AS done_by, topic,
    event_id AS passed_on_id, CAST([], 'Array(String)') AS roles, CAST([], 'Array(String)') AS projects,
    CAST(NULL, 'Nullable(DateTime64(3, \'UTC\'))') AS expires_at, 'kafka' AS access, '' AS access_id, '' AS session_id,
    CAST(NULL, 'Nullable(UInt64)') AS rows, toUInt64(0) AS bytes, CAST(NULL, 'Nullable(UInt64)') AS took_ms, '' AS text, '' AS text_sha256,
    requested_by AS user,
    if(job_id != '', job_id, subject) AS resource,
    if(decided = 'refused', 'refused', 'allowed') AS outcome,
    topic AS source_topic, partition AS source_partition, ifNull(offset, 0) AS source_offset,
    '' AS node_id, job_id, CAST(NULL, 'Nullable(UInt32)') AS attempt, CAST([], 'Array(UInt32)') AS ranks,
    CAST(NULL, 'Nullable(Int32)') AS exit_code, '' AS vouched
FROM kafka_writes;

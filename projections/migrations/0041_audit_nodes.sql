-- What nodes tell of accesses beside what the gateway tells: commands, stacks, secrets; and the nodes' public keys, to judge it by.
--   node_id, job_id, attempt, ranks   what it was about
--   exit_code  of a command that ended
--   signed_by  the public key whose signature over the record holds; '' where none does
ALTER TABLE audit_rows ADD COLUMN IF NOT EXISTS node_id LowCardinality(String) AFTER text_sha256;
ALTER TABLE audit_rows ADD COLUMN IF NOT EXISTS job_id String CODEC(ZSTD) AFTER node_id;
ALTER TABLE audit_rows ADD COLUMN IF NOT EXISTS attempt Nullable(UInt32) CODEC(ZSTD) AFTER job_id;
ALTER TABLE audit_rows ADD COLUMN IF NOT EXISTS ranks Array(UInt32) CODEC(ZSTD) AFTER attempt;
ALTER TABLE audit_rows ADD COLUMN IF NOT EXISTS exit_code Nullable(Int32) CODEC(ZSTD) AFTER ranks;
ALTER TABLE audit_rows ADD COLUMN IF NOT EXISTS signed_by LowCardinality(String) AFTER exit_code;

-- The key of each node as it is now, '' where it was forgotten. A row a node; no TTL: a key counts until another is told.
CREATE TABLE IF NOT EXISTS node_keys_rows (
    pool LowCardinality(String),
    node_id String,
    version UInt64,
    public_key String,
    at DateTime64(3, 'UTC'),
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64
) ENGINE = ReplacingMergeTree(version) ORDER BY (pool, node_id)
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
        'another key'
    ) AS vouched
FROM audit_rows FINAL;

-- Every access, not refusals and writes alone: what was let in and why, what it cost, SQL with its text; and how much of this was lost.
--   kind       besides those of before: 'granted', 'ended' (of SQL and streams, by access_id), 'lost' (so many events that nobody has)
--   access     class of a granted or ended one: read, track, write, sql, stream, session, exec
--   rows, bytes, took_ms   of the answer; rows NULL where its form does not say
--   text       the statement in SQL, or the command; cut where text_sha256 is not ''
ALTER TABLE audit_rows ADD COLUMN IF NOT EXISTS access LowCardinality(String) AFTER expires_at;
ALTER TABLE audit_rows ADD COLUMN IF NOT EXISTS access_id String CODEC(ZSTD) AFTER access;
ALTER TABLE audit_rows ADD COLUMN IF NOT EXISTS session_id String CODEC(ZSTD) AFTER access_id;
ALTER TABLE audit_rows ADD COLUMN IF NOT EXISTS rows Nullable(UInt64) CODEC(ZSTD) AFTER session_id;
ALTER TABLE audit_rows ADD COLUMN IF NOT EXISTS bytes UInt64 CODEC(T64, ZSTD) AFTER rows;
ALTER TABLE audit_rows ADD COLUMN IF NOT EXISTS took_ms Nullable(UInt64) CODEC(ZSTD) AFTER bytes;
ALTER TABLE audit_rows ADD COLUMN IF NOT EXISTS text String CODEC(ZSTD) AFTER took_ms;
ALTER TABLE audit_rows ADD COLUMN IF NOT EXISTS text_sha256 String CODEC(ZSTD) AFTER text;

CREATE OR REPLACE VIEW audit AS SELECT
    at, event_id, kind, status, count, since, action, target, project, sub, token_id, address, reason, done_by, topic, passed_on_id,
    roles, projects, expires_at, access, access_id, session_id, rows, bytes, took_ms, text, text_sha256,
    sub AS user,
    target AS resource,
    multiIf(kind = 'refused' OR status >= 400, 'refused', kind = 'lost', 'lost', 'allowed') AS outcome,
    source_topic, source_partition, source_offset
FROM audit_rows FINAL;

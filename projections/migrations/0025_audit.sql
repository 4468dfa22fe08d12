-- Who asked what of the gateway and got which answer; tokens that were issued or revoked. One row an event.
--   kind       'refused', 'accepted' (a request that changes something), 'issued', 'revoked' (tokens)
--   count, since   a refusal that was repeated is one row: so many alike since then; else 1, and `at`
--   status     the HTTP status of a refusal, else NULL
--   sub, token_id  whose token it was; for 'issued' and 'revoked' the token itself, and `done_by` who did it; '' where nothing could be believed
--   passed_on_id, topic   the event that an accepted request became; roles, projects, expires_at   what an issued token says
-- Ordered by time: an audit asks of a span. Texts come from callers and repeat, which ZSTD lives on. Kept for two years by when they came
-- in: longer than the topic holds them, as audits ask about the year before.
CREATE TABLE IF NOT EXISTS audit_rows (
    at DateTime64(3, 'UTC') CODEC(Delta, ZSTD),
    event_id String CODEC(ZSTD),
    kind LowCardinality(String),
    status Nullable(UInt32),
    count UInt64 CODEC(T64, ZSTD),
    since DateTime64(3, 'UTC') CODEC(Delta, ZSTD),
    action LowCardinality(String),
    target String CODEC(ZSTD),
    project LowCardinality(String),
    sub LowCardinality(String),
    token_id String CODEC(ZSTD),
    address LowCardinality(String),
    reason String CODEC(ZSTD),
    done_by LowCardinality(String),
    topic LowCardinality(String),
    passed_on_id String CODEC(ZSTD),
    roles Array(String),
    projects Array(String),
    expires_at Nullable(DateTime64(3, 'UTC')),
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64 CODEC(Delta, ZSTD),
    inserted_at DateTime('UTC') MATERIALIZED now() CODEC(DoubleDelta, LZ4)
) ENGINE = ReplacingMergeTree ORDER BY (at, event_id)
TTL inserted_at + INTERVAL 730 DAY
SETTINGS non_replicated_deduplication_window = 1000;

CREATE OR REPLACE VIEW audit AS SELECT * FROM audit_rows FINAL;

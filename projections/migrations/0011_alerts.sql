-- When alerts fired and resolved: two facts of one alert, which (rule, key, since) names for ever. A repeat has the same key and collapses.
CREATE TABLE IF NOT EXISTS alerts_rows (
    rule LowCardinality(String),
    key String,
    since DateTime64(3, 'UTC') CODEC(Delta, ZSTD),
    fact LowCardinality(String),
    at DateTime64(3, 'UTC') CODEC(Delta, ZSTD),
    event_id String CODEC(ZSTD),
    severity LowCardinality(String),
    owner LowCardinality(String),
    runbook LowCardinality(String),
    labels Map(String, String),
    summary String CODEC(ZSTD),
    value Nullable(Float64),
    limit Nullable(Float64),
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64,
    inserted_at DateTime('UTC') MATERIALIZED now() CODEC(DoubleDelta, LZ4)
) ENGINE = ReplacingMergeTree ORDER BY (rule, key, since, fact)
TTL inserted_at + INTERVAL 365 DAY
SETTINGS non_replicated_deduplication_window = 1000;

-- One row an alert, open until it has resolved.
CREATE OR REPLACE VIEW alerts AS
SELECT
    rule, key, since,
    if(countIf(f.fact = 'resolved') > 0, 'RESOLVED', 'OPEN') AS state,
    any(f.severity) AS severity,
    any(f.owner) AS owner,
    any(f.runbook) AS runbook,
    any(f.labels) AS labels,
    anyIf(f.value, f.fact = 'fired') AS value,
    anyIf(f.limit, f.fact = 'fired') AS limit,
    argMin(f.summary, f.fact = 'resolved') AS summary,
    minOrNullIf(f.at, f.fact = 'fired') AS fired_at,
    minOrNullIf(f.at, f.fact = 'resolved') AS resolved_at
FROM alerts_rows AS f FINAL
GROUP BY rule, key, since;

CREATE OR REPLACE VIEW alerts_open AS
SELECT * FROM alerts WHERE state = 'OPEN';

-- Observations of models in service, as their senders made them: a row a window and event, with the histograms as JSON of the event's own form.
--   at  time of the record on the brokers: of an event that comes again, the newest stays
CREATE TABLE IF NOT EXISTS model_windows_rows (
    project String,
    name String,
    version UInt32,
    event_id String,
    window_start DateTime64(3, 'UTC'),
    window_end DateTime64(3, 'UTC'),
    predictions UInt64,
    labels UInt32,
    sides Array(String),
    fields Array(String),
    profiles Array(String) CODEC(ZSTD),
    user String,
    at DateTime64(3, 'UTC'),
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64,
    inserted_at DateTime('UTC') MATERIALIZED now()
) ENGINE = ReplacingMergeTree(at) ORDER BY (project, name, version, event_id)
TTL inserted_at + INTERVAL 365 DAY
SETTINGS non_replicated_deduplication_window = 1000;

-- The value of a metric for one labelled prediction; a prediction counts once, in the window that named it last.
--   at  time at which its sender made the event, at most the brokers': one that is sent again late, under its old time, takes back no later value
CREATE TABLE IF NOT EXISTS model_outcomes_rows (
    project String,
    name String,
    version UInt32,
    metric String,
    prediction_id String,
    value Float64,
    lower_is_better UInt8,
    window_start DateTime64(3, 'UTC'),
    window_end DateTime64(3, 'UTC'),
    at DateTime64(3, 'UTC'),
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64,
    inserted_at DateTime('UTC') MATERIALIZED now()
) ENGINE = ReplacingMergeTree(at) ORDER BY (project, name, version, metric, prediction_id)
TTL inserted_at + INTERVAL 365 DAY
SETTINGS non_replicated_deduplication_window = 1000;

-- The distribution that live values of a version are compared with; the newest stays, and without TTL, as versions have none.
CREATE TABLE IF NOT EXISTS model_references_rows (
    project String,
    name String,
    version UInt32,
    event_id String,
    source String,
    samples UInt64,
    sides Array(String),
    fields Array(String),
    profiles Array(String) CODEC(ZSTD),
    user String,
    at DateTime64(3, 'UTC'),
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64
) ENGINE = ReplacingMergeTree(at) ORDER BY (project, name, version)
SETTINGS non_replicated_deduplication_window = 1000;

-- How the values of a field in one window differ from the reference's, as alerts measured it; of a window, the newest measurement counts.
CREATE TABLE IF NOT EXISTS model_drift_rows (
    project String,
    name String,
    version UInt32,
    window_start DateTime64(3, 'UTC'),
    window_end DateTime64(3, 'UTC'),
    side LowCardinality(String),
    field String,
    verdict LowCardinality(String),
    reason String CODEC(ZSTD),
    psi Nullable(Float64),
    psi_limit Nullable(Float64),
    ks Nullable(Float64),
    ks_limit Nullable(Float64),
    wasserstein Nullable(Float64),
    wasserstein_limit Nullable(Float64),
    observations UInt32,
    predictions UInt64,
    reference_id String,
    reference String,
    reference_count UInt64,
    at DateTime64(3, 'UTC'),
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64,
    inserted_at DateTime('UTC') MATERIALIZED now()
) ENGINE = ReplacingMergeTree(at) ORDER BY (project, name, version, window_start, window_end, side, field)
TTL inserted_at + INTERVAL 365 DAY
SETTINGS non_replicated_deduplication_window = 1000;

-- No such event is in what the lane has read so far, so no history is to be read again.
INSERT INTO lane_tables (lane, table_name)
SELECT 'facts', table_name
FROM (SELECT arrayJoin(['model_windows_rows', 'model_outcomes_rows', 'model_references_rows', 'model_drift_rows']) AS table_name)
WHERE (SELECT count() FROM positions WHERE lane = 'facts') > 0;

CREATE OR REPLACE VIEW model_observations AS
SELECT w.project AS project, w.name AS model, w.version AS version, w.window_start AS window_start, w.window_end AS window_end,
    w.predictions AS predictions, w.labels AS labels, w.fields AS fields,
    if(v.version = 0, 'the model has no such version, so it counts nowhere: send its ordinal, as `trainhouse models show` lists them', '') AS refusal,
    w.user AS sender, w.event_id AS event_id, w.at AS received_at
FROM model_windows_rows AS w FINAL
LEFT JOIN (SELECT project, name, version FROM model_facts FINAL WHERE fact = 'registered') AS v
    ON v.project = w.project AND v.name = w.name AND v.version = w.version;

-- Live figures are means over labelled predictions. The champion's stand beside those of every version that labelled the same window.
CREATE OR REPLACE VIEW model_quality AS
SELECT q.project AS project, q.name AS model, q.version AS version, v.stage AS stage, q.metric AS metric, q.lower_is_better AS lower_is_better,
    q.window_start AS window_start, q.window_end AS window_end, w.predictions AS predictions, q.labels AS labels, q.live AS live,
    q.live - 1.96 * q.error AS live_low, q.live + 1.96 * q.error AS live_high, o.offline AS offline, o.offline_low AS offline_low,
    o.offline_high AS offline_high, o.evaluation_id AS evaluation_id, o.suite AS suite, c.champion AS champion, c.champion_live AS champion_live
FROM (
    SELECT r.project AS project, r.name AS name, r.version AS version, r.metric AS metric, r.window_start AS window_start, r.window_end AS window_end,
        max(r.lower_is_better) AS lower_is_better, toUInt64(count()) AS labels, avg(r.value) AS live,
        if(count() > 1, sqrt(varSamp(r.value) / count()), NULL) AS error
    FROM model_outcomes_rows AS r FINAL GROUP BY r.project, r.name, r.version, r.metric, r.window_start, r.window_end
) AS q
INNER JOIN model_versions AS v ON v.project = q.project AND v.model = q.name AND v.version = q.version
LEFT JOIN (
    SELECT project, name, version, window_start, window_end, sum(predictions) AS predictions FROM model_windows_rows FINAL
    GROUP BY project, name, version, window_start, window_end
) AS w ON w.project = q.project AND w.name = q.name AND w.version = q.version AND w.window_start = q.window_start AND w.window_end = q.window_end
LEFT JOIN (
    SELECT project, name, version, metric, toNullable(argMax(value, number)) AS offline, argMax(tuple(low), number).1 AS offline_low,
        argMax(tuple(high), number).1 AS offline_high, argMax(evaluation_id, number) AS evaluation_id, argMax(suite, number) AS suite
    FROM (
        SELECT project, name, version, number, evaluation_id, suite, metric, value, low, high FROM model_facts FINAL
        ARRAY JOIN metrics AS metric, figures AS value, lows AS low, highs AS high WHERE fact = 'evaluated'
    ) GROUP BY project, name, version, metric
) AS o ON o.project = q.project AND o.name = q.name AND o.version = q.version AND o.metric = q.metric
LEFT JOIN (
    SELECT r.project AS project, r.name AS name, r.metric AS metric, r.window_start AS window_start, r.window_end AS window_end,
        toNullable(any(r.version)) AS champion, toNullable(avg(r.value)) AS champion_live
    FROM model_outcomes_rows AS r FINAL
    WHERE (r.project, r.name, r.version) IN (SELECT project, model, version FROM model_versions WHERE stage = 'champion')
    GROUP BY r.project, r.name, r.metric, r.window_start, r.window_end
) AS c ON c.project = q.project AND c.name = q.name AND c.metric = q.metric AND c.window_start = q.window_start AND c.window_end = q.window_end;

CREATE OR REPLACE VIEW drift AS
SELECT d.project AS project, d.name AS model, d.version AS version, v.stage AS stage, d.window_start AS window_start, d.window_end AS window_end,
    d.side AS side, d.field AS field, d.verdict AS verdict, d.reason AS reason, d.psi AS psi, d.psi_limit AS psi_limit, d.ks AS ks,
    d.ks_limit AS ks_limit, d.wasserstein AS wasserstein, d.wasserstein_limit AS wasserstein_limit, d.predictions AS predictions,
    d.reference AS reference, d.reference_count AS reference_count, d.at AS measured_at
FROM (
    SELECT * FROM model_drift_rows FINAL
    WHERE (project, name, version, window_start, window_end, at) IN (
        SELECT project, name, version, window_start, window_end, max(at) FROM model_drift_rows
        GROUP BY project, name, version, window_start, window_end
    )
) AS d
INNER JOIN model_versions AS v ON v.project = d.project AND v.model = d.name AND v.version = d.version;

-- A row a version and each dataset version that it was trained on; one with nothing known of its data has one row.
CREATE OR REPLACE VIEW model_freshness AS
SELECT v.project AS project, v.model AS model, v.version AS version, v.stage AS stage, v.registered_at AS registered_at,
    dateDiff('second', v.registered_at, now()) / 86400 AS age_days, v.data AS data, d.published_at AS data_published_at,
    dateDiff('second', d.published_at, now()) / 86400 AS data_age_days, d.behind AS versions_behind, d.behind_since AS behind_since
FROM (
    SELECT project, model, version, stage, registered_at, arrayJoin(if(empty(m.data), [''], m.data)) AS data FROM model_versions AS m
) AS v
LEFT JOIN (
    SELECT a.version AS version, toNullable(any(a.published_at)) AS published_at,
        toNullable(toUInt32(countIf(b.published_at > a.published_at AND b.deprecated = 0))) AS behind,
        minOrNullIf(b.published_at, b.published_at > a.published_at AND b.deprecated = 0) AS behind_since
    FROM training_datasets AS a INNER JOIN training_datasets AS b ON b.dataset = a.dataset
    GROUP BY a.version
) AS d ON d.version = v.data;

-- What the tuner decided about studies, one row a decision, for ever.
--   number   counts the decisions about a study from 1; 0: the request was refused, and `request_id` names it
--   fact     begun, trial-started, trial-began, value, trial-stopping, trial-ended, changed, refused
--   trial    number of the trial, from 0; -1: it is about none
--   figures  values by metric; `modes` of the study that begins: min or max
CREATE TABLE IF NOT EXISTS study_facts (
    project LowCardinality(String),
    study String,
    number UInt32,
    request_id String,
    fact LowCardinality(String),
    at DateTime64(3, 'UTC'),
    trial Int32,
    state LowCardinality(String),
    user LowCardinality(String),
    reason String CODEC(ZSTD),
    job_id String,
    step UInt64,
    early UInt8,
    told UInt64,
    enqueued UInt8,
    device_s Float64,
    metrics Array(String),
    modes Array(String),
    figures Array(Float64),
    parameters Map(String, String),
    parameters_json String CODEC(ZSTD),
    spec String CODEC(ZSTD),
    spec_sha256 String,
    optuna LowCardinality(String),
    numpy LowCardinality(String),
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64
) ENGINE = ReplacingMergeTree ORDER BY (project, study, number, request_id)
SETTINGS non_replicated_deduplication_window = 1000;

-- The status of each study, whole: the newest counts.
CREATE TABLE IF NOT EXISTS study_statuses_rows (
    project LowCardinality(String),
    study String,
    number UInt32,
    state LowCardinality(String),
    reason String CODEC(ZSTD),
    best Array(UInt32),
    best_json String CODEC(ZSTD),
    trial_states Array(String),
    trial_counts Array(UInt32),
    device_s Float64,
    created_at DateTime64(3, 'UTC'),
    updated_at DateTime64(3, 'UTC'),
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64
) ENGINE = ReplacingMergeTree(number) ORDER BY (project, study)
SETTINGS non_replicated_deduplication_window = 1000;

-- No such event is in what the lane has read so far, so no history is to be read again.
INSERT INTO lane_tables (lane, table_name)
SELECT 'facts', table_name
FROM (SELECT arrayJoin(['study_facts', 'study_statuses_rows']) AS table_name)
WHERE (SELECT count() FROM positions WHERE lane = 'facts') > 0;

CREATE OR REPLACE VIEW studies AS
SELECT b.project AS project, b.study AS study, if(s.state = '', 'RUNNING', s.state) AS state, s.reason AS reason, b.user AS user,
    b.metrics AS metrics, b.modes AS modes, JSONExtractString(b.spec, 'sampler', 'name') AS sampler,
    JSONExtractString(b.spec, 'early_stopping', 'name') AS early_stopping, JSONExtract(b.spec, 'parallel', 'UInt32') AS parallel,
    JSONExtract(b.spec, 'budget', 'trials', 'Nullable(UInt32)') AS budget_trials,
    JSONExtract(b.spec, 'budget', 'device_s', 'Nullable(Float64)') AS budget_device_s,
    JSONExtract(b.spec, 'budget', 'wall_s', 'Nullable(Float64)') AS budget_wall_s,
    CAST((s.trial_states, s.trial_counts), 'Map(String, UInt32)') AS trials, s.best AS best, s.best_json AS best_json, s.device_s AS device_s,
    b.spec AS spec, b.spec_sha256 AS spec_sha256, b.at AS created_at, if(s.state = '', b.at, s.updated_at) AS updated_at
FROM (SELECT * FROM study_facts FINAL WHERE fact = 'begun') AS b
LEFT JOIN (SELECT * FROM study_statuses_rows FINAL) AS s ON s.project = b.project AND s.study = b.study;

CREATE OR REPLACE VIEW trials AS
SELECT t.project AS project, t.study AS study, t.trial AS trial,
    multiIf(t.ended, t.last_state, t.began, 'RUNNING', 'WAITING') AS state, b.metrics[1] AS metric,
    if(has(t.last.1, b.metrics[1]), t.last.2[indexOf(t.last.1, b.metrics[1])], NULL) AS value,
    CAST((t.last.1, t.last.2), 'Map(String, Float64)') AS values, if(has(t.last.1, b.metrics[1]), t.last_step, NULL) AS step,
    t.parameters AS parameters, t.parameters_json AS parameters_json, toUInt8(has(s.best, toUInt32(t.trial))) AS best, t.job_id AS job_id,
    t.device_s AS device_s, t.early AS stopped_early, t.reason AS reason, t.enqueued AS enqueued, t.told AS told, t.optuna AS optuna,
    t.numpy AS numpy, t.started_at AS started_at, if(t.began, t.began_at, NULL) AS began_at, if(t.ended, t.ended_at, NULL) AS ended_at
FROM (
    SELECT project, study, trial, countIf(fact = 'trial-ended') > 0 AS ended, countIf(fact = 'trial-began') > 0 AS began,
        anyIf(f.state, fact = 'trial-ended') AS last_state,
        if(ended, anyIf((f.metrics, f.figures), fact = 'trial-ended'), argMaxIf((f.metrics, f.figures), f.number, fact = 'value')) AS last,
        maxIf(f.step, fact = 'value') AS last_step, anyIf(f.parameters, fact = 'trial-started') AS parameters,
        anyIf(f.parameters_json, fact = 'trial-started') AS parameters_json, anyIf(f.job_id, fact = 'trial-started') AS job_id,
        anyIf(f.device_s, fact = 'trial-ended') AS device_s, maxIf(f.early, fact = 'trial-stopping') AS early,
        if(early = 1, anyIf(f.reason, fact = 'trial-stopping'), anyIf(f.reason, fact = 'trial-ended')) AS reason,
        anyIf(f.enqueued, fact = 'trial-started') AS enqueued, anyIf(f.told, fact = 'trial-started') AS told,
        anyIf(f.optuna, fact = 'trial-started') AS optuna, anyIf(f.numpy, fact = 'trial-started') AS numpy,
        anyIf(at, fact = 'trial-started') AS started_at, anyIf(at, fact = 'trial-began') AS began_at, anyIf(at, fact = 'trial-ended') AS ended_at
    FROM study_facts AS f FINAL WHERE f.trial >= 0 GROUP BY project, study, trial HAVING countIf(fact = 'trial-started') > 0
) AS t
LEFT JOIN (SELECT project, study, metrics FROM study_facts FINAL WHERE fact = 'begun') AS b ON b.project = t.project AND b.study = t.study
LEFT JOIN (SELECT project, study, best FROM study_statuses_rows FINAL) AS s ON s.project = t.project AND s.study = t.study;

CREATE OR REPLACE VIEW trial_values AS
SELECT project, study, trial, step, metric, value, at
FROM study_facts FINAL
ARRAY JOIN metrics AS metric, figures AS value
WHERE fact = 'value';

-- A trial that ended early is taken to have saved what the mean complete trial of its study took beyond it.
CREATE OR REPLACE VIEW study_cost AS
SELECT t.project AS project, t.study AS study, t.state AS state, toUInt32(count()) AS trials, sum(t.device_s) AS device_s,
    if(t.state = 'STOPPED' AND any(c.whole) > 0, sum(greatest(0, c.mean_device_s - t.device_s)), NULL) AS saved_device_s
FROM trials AS t
LEFT JOIN (
    SELECT project, study, count() AS whole, avg(device_s) AS mean_device_s FROM trials WHERE state = 'COMPLETE' GROUP BY project, study
) AS c ON c.project = t.project AND c.study = t.study
GROUP BY project, study, state;

-- What the tuner decided about studies, one row a decision, for ever.
--   number   counts the decisions about a study from 1; 0: the request was refused, and `request_id` names it
--   fact     begun, trial-started, trial-put-off, trial-resubmitted, trial-began, value, trial-stopping, trial-ended, changed, refused
--   trial    number of the trial, from 0; -1: it is about none
--   figures  values of `metrics`; a record of values has those alone that are new
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
    figures Array(Float64),
    parameters Map(String, String),
    parameters_json String CODEC(ZSTD),
    optuna LowCardinality(String),
    numpy LowCardinality(String),
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64
) ENGINE = ReplacingMergeTree ORDER BY (project, study, number, request_id)
SETTINGS non_replicated_deduplication_window = 1000;

-- What each study is: a table of its own, since lists need no trials.
CREATE TABLE IF NOT EXISTS studies_rows (
    project LowCardinality(String),
    study String,
    user LowCardinality(String),
    metrics Array(String),
    modes Array(String),
    spec String CODEC(ZSTD),
    spec_sha256 String,
    created_at DateTime64(3, 'UTC'),
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64
) ENGINE = ReplacingMergeTree ORDER BY (project, study)
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
FROM (SELECT arrayJoin(['study_facts', 'studies_rows', 'study_statuses_rows']) AS table_name)
WHERE (SELECT count() FROM positions WHERE lane = 'facts') > 0;

CREATE OR REPLACE VIEW studies AS
SELECT b.project AS project, b.study AS study, if(s.state = '', 'RUNNING', s.state) AS state, s.reason AS reason, b.user AS user,
    b.metrics AS metrics, b.modes AS modes, JSONExtractString(b.spec, 'sampler', 'name') AS sampler,
    JSONExtractString(b.spec, 'early_stopping', 'name') AS early_stopping, JSONExtract(b.spec, 'parallel', 'UInt32') AS parallel,
    JSONExtract(b.spec, 'budget', 'trials', 'Nullable(UInt32)') AS budget_trials,
    JSONExtract(b.spec, 'budget', 'device_s', 'Nullable(Float64)') AS budget_device_s,
    JSONExtract(b.spec, 'budget', 'wall_s', 'Nullable(Float64)') AS budget_wall_s,
    CAST((s.trial_states, s.trial_counts), 'Map(String, UInt32)') AS trials, s.best AS best, s.best_json AS best_json, s.device_s AS device_s,
    b.spec AS spec, b.spec_sha256 AS spec_sha256, b.created_at AS created_at, if(s.state = '', b.created_at, s.updated_at) AS updated_at
FROM (SELECT * FROM studies_rows FINAL) AS b
LEFT JOIN (SELECT * FROM study_statuses_rows FINAL) AS s ON s.project = b.project AND s.study = b.study;

-- By metric, then by trial, in one pass: a join of a trial's values would read those of all studies. Of a trial that runs the newest value of
-- each metric counts, of one that has ended those that the tuner counts.
CREATE OR REPLACE VIEW trials AS
SELECT t.project AS project, t.study AS study, t.trial AS trial,
    multiIf(t.ended, t.last_state, t.began, 'RUNNING', 'WAITING') AS state, b.metrics[1] AS metric,
    if(has(t.names, b.metrics[1]), t.figures[indexOf(t.names, b.metrics[1])], NULL) AS value,
    CAST((t.names, t.figures), 'Map(String, Float64)') AS values, if(t.logged, t.last_step, NULL) AS step,
    t.parameters AS parameters, t.parameters_json AS parameters_json, toUInt8(has(s.best, toUInt32(t.trial))) AS best, t.job_id AS job_id,
    t.device_s AS device_s, toUInt8(t.early AND t.last_state = 'STOPPED') AS stopped_early, if(stopped_early, t.why_stopped, t.why_ended) AS reason, t.enqueued AS enqueued,
    t.told AS told, t.optuna AS optuna, t.numpy AS numpy, t.started_at AS started_at, if(t.began, t.began_at, NULL) AS began_at,
    if(t.ended, t.ended_at, NULL) AS ended_at
FROM (
    SELECT project, study, trial, max(m.has_ended) AS ended, max(m.has_begun) AS began, max(m.has_newest) AS logged,
        if(ended, groupArrayIf(m.metric, m.has_final), groupArrayIf(m.metric, m.has_newest)) AS names,
        if(ended, groupArrayIf(m.final, m.has_final), groupArrayIf(m.newest, m.has_newest)) AS figures, max(m.last_step) AS last_step,
        max(m.last_state) AS last_state, anyIf(m.parameters, m.has_started) AS parameters, max(m.parameters_json) AS parameters_json,
        max(m.job_id) AS job_id, max(m.device_s) AS device_s, max(m.early) AS early, max(m.why_stopped) AS why_stopped,
        max(m.why_ended) AS why_ended, max(m.enqueued) AS enqueued, max(m.told) AS told, max(m.optuna) AS optuna, max(m.numpy) AS numpy,
        maxIf(m.started_at, m.has_started) AS started_at, minIf(m.began_at, m.has_begun) AS began_at,
        maxIf(m.ended_at, m.has_ended) AS ended_at
    FROM (
        SELECT project, study, trial, metric, countIf(fact = 'value') > 0 AS has_newest, argMaxIf(figure, f.number, fact = 'value') AS newest,
            maxIf(f.step, fact = 'value') AS last_step, countIf(fact = 'trial-ended' AND metric != '') > 0 AS has_final,
            anyIf(figure, fact = 'trial-ended') AS final, countIf(fact = 'trial-ended') > 0 AS has_ended,
            countIf(fact = 'trial-began') > 0 AS has_begun, countIf(fact = 'trial-started') > 0 AS has_started,
            anyIf(f.state, fact = 'trial-ended') AS last_state, anyIf(f.parameters, fact = 'trial-started') AS parameters,
            anyIf(f.parameters_json, fact = 'trial-started') AS parameters_json, argMaxIf(f.job_id, f.number, fact IN ('trial-started', 'trial-resubmitted')) AS job_id,
            max(f.device_s) AS device_s, maxIf(f.early, fact = 'trial-stopping') AS early,
            anyIf(f.reason, fact = 'trial-stopping') AS why_stopped, anyIf(f.reason, fact = 'trial-ended') AS why_ended,
            anyIf(f.enqueued, fact = 'trial-started') AS enqueued, anyIf(f.told, fact = 'trial-started') AS told,
            anyIf(f.optuna, fact = 'trial-started') AS optuna, anyIf(f.numpy, fact = 'trial-started') AS numpy,
            anyIf(at, fact = 'trial-started') AS started_at, minIf(at, fact = 'trial-began') AS began_at,
            anyIf(at, fact = 'trial-ended') AS ended_at
        FROM study_facts AS f FINAL LEFT ARRAY JOIN f.metrics AS metric, f.figures AS figure
        WHERE f.trial >= 0 GROUP BY project, study, trial, metric
    ) AS m GROUP BY project, study, trial HAVING max(m.has_started) > 0
) AS t
LEFT JOIN (SELECT project, study, metrics FROM studies_rows FINAL) AS b ON b.project = t.project AND b.study = t.study
LEFT JOIN (SELECT project, study, best FROM study_statuses_rows FINAL) AS s ON s.project = t.project AND s.study = t.study;

CREATE OR REPLACE VIEW trial_values AS
SELECT project, study, trial, step, metric, value, at
FROM study_facts FINAL
ARRAY JOIN metrics AS metric, figures AS value
WHERE fact = 'value';

-- A trial that ended early is taken to have saved what the mean complete trial of its study took beyond it.
CREATE OR REPLACE VIEW study_cost AS
SELECT project, study, state, toUInt32(length(times)) AS trials, arraySum(times) AS device_s,
    if(state = 'STOPPED' AND notEmpty(whole), arraySum(each -> greatest(0, arrayAvg(whole) - each), times), NULL) AS saved_device_s
FROM (
    SELECT project, study, groupArrayIf(t.device_s, t.state = 'COMPLETE') AS whole, groupArray(t.state) AS states, groupArray(t.device_s) AS seconds
    FROM trials AS t GROUP BY project, study
)
ARRAY JOIN arrayDistinct(states) AS state, arrayMap(s -> arrayFilter((each, of) -> of = s, seconds, states), arrayDistinct(states)) AS times;

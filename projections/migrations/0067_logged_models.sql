-- Models that MLflow's client logs, one row a thing that is known of one: `what` is created (whose first word counts), status or deleted.
-- Their parameters, tags and files are in the tables of runs, under the model's id. No TTL, as runs have none.
CREATE TABLE IF NOT EXISTS logged_models_rows (
    model_id String,
    what LowCardinality(String),
    version UInt64,
    experiment_id String,
    experiment String,
    project LowCardinality(String),
    name String,
    user LowCardinality(String),
    model_type LowCardinality(String),
    source_run_id String,
    text LowCardinality(String),
    changed_at DateTime64(3, 'UTC'),
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64
) ENGINE = ReplacingMergeTree(version) ORDER BY (model_id, what)
SETTINGS non_replicated_deduplication_window = 1000;

-- Logged models that runs made (`role` output) or read (input); of two words about one, the newest counts.
CREATE TABLE IF NOT EXISTS run_models_rows (
    job_id String,
    role LowCardinality(String),
    model_id String,
    version UInt64,
    step UInt64,
    linked_at DateTime64(3, 'UTC'),
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64
) ENGINE = ReplacingMergeTree(version) ORDER BY (job_id, role, model_id)
SETTINGS non_replicated_deduplication_window = 1000;

-- No such event is in what the lane has read so far, so no history is to be read again.
INSERT INTO lane_tables (lane, table_name)
SELECT 'facts', table_name
FROM (SELECT arrayJoin(['logged_models_rows', 'run_models_rows']) AS table_name)
WHERE (SELECT count() FROM positions WHERE lane = 'facts') > 0;

CREATE OR REPLACE VIEW logged_models AS
SELECT model_id, anyIf(m.name, what = 'created') AS name, anyIf(m.project, what = 'created') AS project,
    anyIf(m.experiment_id, what = 'created') AS experiment_id, anyIf(m.experiment, what = 'created') AS experiment,
    anyIf(m.user, what = 'created') AS user, anyIf(m.model_type, what = 'created') AS model_type,
    anyIf(m.source_run_id, what = 'created') AS source_run_id, anyIf(text, what = 'status') AS status,
    toUInt8(anyIf(text, what = 'deleted') = '1') AS deleted, minIf(changed_at, what = 'created') AS created_at, max(changed_at) AS updated_at
FROM logged_models_rows AS m FINAL GROUP BY model_id HAVING countIf(what = 'created') > 0;

CREATE OR REPLACE VIEW run_models AS SELECT job_id, role, model_id, step, linked_at FROM run_models_rows FINAL;

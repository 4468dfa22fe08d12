-- What is tracked: runs that Trainhouse did not schedule, and what every run tells of itself. All small tables in the order in which
-- people ask: by job. An event says what is new, so each row is one thing of one run. `version` is the record's offset, which grows within
-- a job (its events are on one partition): the newest word counts. Where the first word counts (how a run began, a parameter's value) it
-- falls with the offset instead. No TTL: a run is asked for as long as it is known, and it costs a few kilobytes.
CREATE TABLE IF NOT EXISTS tracked_runs_rows (
    job_id String,
    version UInt64,
    experiment_id String,
    experiment String,
    project LowCardinality(String),
    name String,
    user LowCardinality(String),
    client LowCardinality(String),
    state LowCardinality(String),
    started_at DateTime64(3, 'UTC'),
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64
) ENGINE = ReplacingMergeTree(version) ORDER BY job_id
SETTINGS non_replicated_deduplication_window = 1000;

-- What became of a run since: `what` is state, ended, name or deleted.
CREATE TABLE IF NOT EXISTS tracked_changes_rows (
    job_id String,
    what LowCardinality(String),
    version UInt64,
    text String,
    time Nullable(DateTime64(3, 'UTC')),
    changed_at DateTime64(3, 'UTC'),
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64
) ENGINE = ReplacingMergeTree(version) ORDER BY (job_id, what)
SETTINGS non_replicated_deduplication_window = 1000;

CREATE OR REPLACE VIEW tracked_runs AS
SELECT
    r.job_id AS job_id, r.experiment_id AS experiment_id, r.experiment AS experiment, r.project AS project,
    if(c.name != '', c.name, r.name) AS name, r.user AS user, r.client AS client,
    if(c.state != '', c.state, r.state) AS state,
    c.deleted = '1' AS deleted, r.started_at AS started_at, c.ended_at AS ended_at,
    greatest(r.started_at, coalesce(c.changed, r.started_at)) AS updated_at,
    r.source_topic AS source_topic, r.source_partition AS source_partition, r.source_offset AS source_offset
FROM tracked_runs_rows AS r FINAL
LEFT JOIN (
    SELECT job_id, anyIf(text, what = 'state') AS state, anyIf(text, what = 'name') AS name, anyIf(text, what = 'deleted') AS deleted,
        anyIf(time, what = 'ended') AS ended_at, toNullable(max(changed_at)) AS changed
    FROM tracked_changes_rows FINAL GROUP BY job_id
) AS c ON c.job_id = r.job_id;

-- Every job and every tracked run in one list; `source` tells them apart. What only a scheduled job has is empty or NULL of a tracked one.
CREATE OR REPLACE VIEW jobs AS
SELECT * EXCEPT (job_key, version), toInt64(version) - 1 AS status_seq, 'scheduled' AS source FROM jobs_rows FINAL
UNION ALL
SELECT
    job_id, name, project, '' AS team, user, '' AS pool, toUInt8(0) AS priority, state, '' AS reason,
    toUInt32(0) AS attempt, toUInt32(0) AS epoch, toUInt32(0) AS restarts, toUInt32(0) AS world_size,
    CAST([], 'Array(String)') AS node_ids,
    CAST(NULL, 'Nullable(UInt64)') AS step, CAST(NULL, 'Nullable(UInt64)') AS total_steps,
    CAST(NULL, 'Nullable(Float64)') AS loss, CAST(NULL, 'Nullable(Float64)') AS learning_rate,
    CAST(NULL, 'Nullable(Float64)') AS steps_per_s, CAST(NULL, 'Nullable(Float64)') AS samples_per_s,
    CAST(NULL, 'Nullable(Float64)') AS elapsed_s, CAST(NULL, 'Nullable(Float64)') AS eta_s,
    CAST(NULL, 'Nullable(UInt64)') AS last_checkpoint_step, CAST(NULL, 'Nullable(UInt64)') AS last_checkpoint_commit,
    '' AS last_checkpoint_uri, '' AS submission_id, '' AS spec_sha256,
    toNullable(started_at) AS submitted_at, CAST(NULL, 'Nullable(DateTime64(3, \'UTC\'))') AS allocated_at,
    toNullable(started_at) AS started_at, ended_at AS finished_at, updated_at,
    source_topic, source_partition, source_offset, toInt64(0) AS status_seq, 'tracked' AS source
FROM tracked_runs WHERE NOT deleted;

-- Parameters of runs; those of a scheduled job are its spec's hyperparameters and what its ranks logged besides.
CREATE TABLE IF NOT EXISTS parameters_rows (
    job_id String,
    key String,
    version UInt64,
    value String CODEC(ZSTD),
    logged_at DateTime64(3, 'UTC'),
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64
) ENGINE = ReplacingMergeTree(version) ORDER BY (job_id, key)
SETTINGS non_replicated_deduplication_window = 1000;

CREATE OR REPLACE VIEW parameters AS SELECT * EXCEPT (version) FROM parameters_rows FINAL;

-- A removed tag stays as a row that says so, since rows only ever come in.
CREATE TABLE IF NOT EXISTS tags_rows (
    job_id String,
    key String,
    version UInt64,
    value String CODEC(ZSTD),
    deleted UInt8,
    changed_at DateTime64(3, 'UTC'),
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64
) ENGINE = ReplacingMergeTree(version) ORDER BY (job_id, key)
SETTINGS non_replicated_deduplication_window = 1000;

CREATE OR REPLACE VIEW tags AS SELECT * EXCEPT (version, deleted) FROM tags_rows FINAL WHERE NOT deleted;

-- Datasets that runs read.
CREATE TABLE IF NOT EXISTS inputs_rows (
    job_id String,
    digest String,
    name String,
    version UInt64,
    source_type LowCardinality(String),
    source String CODEC(ZSTD),
    context LowCardinality(String),
    schema_text String CODEC(ZSTD),
    profile String CODEC(ZSTD),
    logged_at DateTime64(3, 'UTC'),
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64
) ENGINE = ReplacingMergeTree(version) ORDER BY (job_id, digest, name)
SETTINGS non_replicated_deduplication_window = 1000;

CREATE OR REPLACE VIEW inputs AS SELECT * EXCEPT (version) FROM inputs_rows FINAL;

-- What each attempt ran in, as its rank 0 found it.
CREATE TABLE IF NOT EXISTS job_environments_rows (
    job_id String,
    epoch UInt32,
    rank UInt32,
    version UInt64,
    attempt UInt32,
    node_id LowCardinality(String),
    host LowCardinality(String),
    command Array(String),
    folder String,
    git_commit String,
    git_branch String,
    git_remote String,
    git_dirty UInt8,
    git_diff String CODEC(ZSTD),
    git_diff_sha256 String,
    git_diff_uri String,
    python_version LowCardinality(String),
    torch_version LowCardinality(String),
    cuda_version LowCardinality(String),
    platform LowCardinality(String),
    devices Array(String),
    cpus UInt32,
    memory_bytes UInt64,
    packages Map(String, String) CODEC(ZSTD),
    environment_id String,
    captured_at DateTime64(3, 'UTC'),
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64
) ENGINE = ReplacingMergeTree(version) ORDER BY (job_id, epoch, rank)
SETTINGS non_replicated_deduplication_window = 1000;

CREATE OR REPLACE VIEW job_environments AS SELECT * EXCEPT (version) FROM job_environments_rows FINAL;

-- One row a thing that is known of an experiment: `what` is created, deleted or tag.
CREATE TABLE IF NOT EXISTS experiments_rows (
    experiment_id String,
    what LowCardinality(String),
    key String,
    version UInt64,
    name String,
    project LowCardinality(String),
    user LowCardinality(String),
    text String CODEC(ZSTD),
    deleted UInt8,
    changed_at DateTime64(3, 'UTC'),
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64
) ENGINE = ReplacingMergeTree(version) ORDER BY (experiment_id, what, key)
SETTINGS non_replicated_deduplication_window = 1000;

-- Experiments that somebody made, and one for each project that has jobs. The id follows from the name (see events/tracking.py).
CREATE OR REPLACE VIEW experiments AS
SELECT
    experiment_id, argMax(name, created) AS name, argMax(project, created) AS project, max(is_deleted) AS deleted,
    min(at) AS created_at, max(changed) AS updated_at
FROM (
    SELECT experiment_id, any(name) AS name, any(project) AS project, toUInt8(1) AS created,
        max(what = 'deleted' AND deleted) AS is_deleted, minIf(changed_at, what = 'created') AS at, max(changed_at) AS changed
    FROM experiments_rows FINAL GROUP BY experiment_id
    UNION ALL
    SELECT
        if(project = 'default', '0', toString(reinterpretAsUInt64(reverse(substring(SHA256(project), 1, 8))) % 1000000000000000000)),
        if(project = 'default', 'Default', project), project, toUInt8(0), toUInt8(0),
        min(coalesce(submitted_at, updated_at)), max(updated_at)
    FROM jobs_rows WHERE job_id != '' AND project != '' GROUP BY project
)
GROUP BY experiment_id;

-- The runs of experiments, of both kinds: those that were tracked, and a project's scheduled jobs.
CREATE OR REPLACE VIEW experiment_runs AS
SELECT job_id, experiment_id, project, name, user, state, deleted, started_at, ended_at, toUInt32(0) AS attempt, toUInt32(0) AS epoch,
    'tracked' AS source
FROM tracked_runs
UNION ALL
SELECT
    job_id,
    if(project = 'default', '0', toString(reinterpretAsUInt64(reverse(substring(SHA256(project), 1, 8))) % 1000000000000000000))
        AS experiment_id,
    project, name, user, state, toUInt8(0) AS deleted, coalesce(submitted_at, updated_at) AS started_at, finished_at AS ended_at,
    attempt, epoch, 'scheduled' AS source
FROM jobs_rows FINAL
WHERE job_id != '' AND project != '';

-- Every version of each project: members and purposes as lists of one length. A few rows a project, ordered as they are asked for: the newest
-- version of one. No TTL: who approved a purpose is asked years later.
CREATE TABLE IF NOT EXISTS projects_rows (
    project String,
    version UInt32,
    description String CODEC(ZSTD),
    by_members UInt8,
    member_names Array(String) CODEC(ZSTD),
    member_roles Array(String) CODEC(ZSTD),
    purpose_names Array(String) CODEC(ZSTD),
    purpose_descriptions Array(String) CODEC(ZSTD),
    purpose_approved_by Array(String) CODEC(ZSTD),
    purpose_approved_at Array(DateTime64(3, 'UTC')),
    highest_priority UInt8,
    submissions_per_minute Nullable(UInt32),
    requests_per_minute Nullable(UInt32),
    storage_gib Nullable(Float64),
    closed UInt8,
    user String,
    reason String,
    applied_at DateTime64(3, 'UTC'),
    text String CODEC(ZSTD),
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64
) ENGINE = ReplacingMergeTree ORDER BY (project, version)
SETTINGS non_replicated_deduplication_window = 1000;

-- The projects as they are now; '*' is what holds for every project that was never declared.
CREATE OR REPLACE VIEW projects AS
SELECT project, description, by_members, length(member_names) AS members, length(purpose_names) AS purposes, highest_priority,
    submissions_per_minute, requests_per_minute, storage_gib, closed, version, user AS set_by, reason, applied_at AS set_at
FROM projects_rows FINAL ORDER BY project, version DESC LIMIT 1 BY project;

CREATE OR REPLACE VIEW project_members AS
SELECT p.project AS project, member.1 AS user, member.2 AS role
FROM (SELECT project, member_names, member_roles FROM projects_rows FINAL ORDER BY project, version DESC LIMIT 1 BY project) AS p
ARRAY JOIN arrayZip(p.member_names, p.member_roles) AS member;

CREATE OR REPLACE VIEW project_purposes AS
SELECT p.project AS project, told.1 AS purpose, told.2 AS description, told.3 AS approved_by, told.4 AS approved_at
FROM (
    SELECT project, purpose_names, purpose_descriptions, purpose_approved_by, purpose_approved_at
    FROM projects_rows FINAL ORDER BY project, version DESC LIMIT 1 BY project
) AS p
ARRAY JOIN arrayZip(p.purpose_names, p.purpose_descriptions, p.purpose_approved_by, p.purpose_approved_at) AS told;

-- What each job was for.
ALTER TABLE jobs_rows ADD COLUMN IF NOT EXISTS purpose LowCardinality(String);

CREATE OR REPLACE VIEW jobs AS
SELECT * EXCEPT (job_key, version, purpose), toInt64(version) - 1 AS status_seq, 'scheduled' AS source, purpose FROM jobs_rows FINAL
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
    source_topic, source_partition, source_offset, toInt64(0) AS status_seq, 'tracked' AS source, '' AS purpose
FROM tracked_runs WHERE NOT deleted;

CREATE OR REPLACE VIEW job_status AS
SELECT
    job_key AS job_id, 'scheduled' AS source, name, project, team, user, pool, priority, state, reason, attempt, epoch, restarts, world_size,
    node_ids, step, total_steps, loss, learning_rate, steps_per_s, samples_per_s, elapsed_s, eta_s,
    last_checkpoint_step, last_checkpoint_commit, last_checkpoint_uri, submitted_at, allocated_at, started_at, finished_at, updated_at, purpose
FROM jobs_rows FINAL
WHERE notEmpty(jobs_rows.job_id)
UNION ALL
SELECT
    job_id, 'tracked' AS source, name, project, '' AS team, user, '' AS pool, 0 AS priority, state, '' AS reason, 0 AS attempt, 0 AS epoch,
    0 AS restarts, 0 AS world_size, [] AS node_ids, NULL AS step, NULL AS total_steps, NULL AS loss, NULL AS learning_rate, NULL AS steps_per_s,
    NULL AS samples_per_s, NULL AS elapsed_s, NULL AS eta_s, NULL AS last_checkpoint_step, NULL AS last_checkpoint_commit,
    '' AS last_checkpoint_uri, toNullable(started_at) AS submitted_at, NULL AS allocated_at, toNullable(started_at) AS started_at,
    ended_at AS finished_at, updated_at, '' AS purpose
FROM tracked_runs WHERE NOT deleted;

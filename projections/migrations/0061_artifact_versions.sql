-- Versions of artifacts under their names: one row a name, version, and job or project that it was stored for (`owner`); the newest record
-- counts, by its own time, as ranks' records and others are of two topics. `job_id` is empty for a version that was stored for no job. A
-- rank's record has no project: its job's counts. `action` is stored, or used: a rank read it (`owner` is then `used:JOB`), and its facts are
-- those that the rank recorded, so that a hash says nothing of what another project has.
CREATE TABLE IF NOT EXISTS artifact_versions_rows (
    name String,
    sha256 String,
    owner String,
    version UInt64,
    job_id String,
    action LowCardinality(String),
    project LowCardinality(String),
    kind LowCardinality(String),
    size_bytes UInt64,
    files UInt32,
    created_by String,
    at DateTime64(3, 'UTC') CODEC(Delta, ZSTD),
    deleted UInt8,
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64
) ENGINE = ReplacingMergeTree(version) ORDER BY (name, sha256, owner)
SETTINGS non_replicated_deduplication_window = 1000;

CREATE OR REPLACE VIEW artifact_versions AS
SELECT a.name AS name, a.sha256 AS sha256, a.kind AS kind, if(a.project != '', a.project, j.project) AS project, a.job_id AS job_id,
    a.size_bytes AS size_bytes, a.files AS files, a.created_by AS created_by, a.at AS at, d.deleted AS run_deleted
FROM (SELECT * FROM artifact_versions_rows FINAL WHERE deleted = 0 AND action = 'stored') AS a
LEFT JOIN (SELECT job_id, project FROM job_status) AS j ON j.job_id = a.job_id
LEFT JOIN (SELECT job_id, toUInt8(1) AS deleted FROM tracked_runs WHERE tracked_runs.deleted) AS d ON d.job_id = a.job_id;

CREATE OR REPLACE VIEW job_artifacts AS
SELECT a.job_id AS job_id, a.action AS action, a.name AS name, a.sha256 AS sha256, a.kind AS kind,
    if(a.project != '', a.project, j.project) AS project, a.size_bytes AS size_bytes, a.files AS files, a.at AS at
FROM (SELECT * FROM artifact_versions_rows FINAL WHERE deleted = 0 AND job_id != '') AS a
LEFT JOIN (SELECT job_id, project FROM job_status) AS j ON j.job_id = a.job_id;

-- Files and versions that several runs have are in the store once a project, and count once. Sizes are what ranks recorded, up to 2^60 each:
-- sums are of 128 bits, and each kind counts as 2^60 at most, so that no sum begins at 0 again.
CREATE OR REPLACE VIEW project_storage AS
SELECT u.project AS project,
    toUInt64(least(sum(toUInt128(u.artifact_bytes)), toUInt128(1152921504606846976))) AS artifact_bytes,
    toUInt64(least(sum(toUInt128(u.code_bytes)), toUInt128(1152921504606846976))) AS code_bytes,
    toUInt64(least(sum(toUInt128(u.checkpoint_bytes)), toUInt128(1152921504606846976))) AS checkpoint_bytes,
    artifact_bytes + code_bytes + checkpoint_bytes AS total_bytes, any(p.storage_gib) AS storage_gib,
    ifNull(total_bytes > any(p.storage_gib) * 1073741824, 0) AS over
FROM (
    SELECT j.project AS project, max(a.size_bytes) AS artifact_bytes, toUInt64(0) AS code_bytes, toUInt64(0) AS checkpoint_bytes
    FROM (SELECT job_id, uri, size_bytes FROM artifacts) AS a
    INNER JOIN (SELECT job_id, project FROM job_status) AS j ON j.job_id = a.job_id
    GROUP BY j.project, a.uri
    UNION ALL
    SELECT project, max(size_bytes), toUInt64(0), toUInt64(0) FROM artifact_versions WHERE project != '' AND NOT run_deleted
    GROUP BY project, sha256
    UNION ALL
    SELECT project, toUInt64(0), max(size_bytes), toUInt64(0) FROM (
        SELECT config['project'] AS project, config['code.sha256'] AS sha256, toUInt64OrZero(config['code.size_bytes']) AS size_bytes
        FROM job_specs_rows WHERE config['code.sha256'] != ''
    ) GROUP BY project, sha256
    UNION ALL
    SELECT j.project AS project, toUInt64(0), toUInt64(0), c.size_bytes
    FROM (
        SELECT job_id, toUInt64(least(greatest(sum(toUInt128(bytes_new)), toUInt128(max(bytes_total))), toUInt128(1152921504606846976))) AS size_bytes
        FROM checkpoints WHERE state = 'COMPLETED' GROUP BY job_id
    ) AS c
    INNER JOIN (SELECT job_id, project FROM job_status) AS j ON j.job_id = c.job_id
) AS u
LEFT JOIN projects AS p ON p.project = u.project
GROUP BY u.project;

-- No such event is in what the lanes have read so far, so no history is to be read again.
INSERT INTO lane_tables (lane, table_name)
SELECT lane, 'artifact_versions_rows' FROM (SELECT DISTINCT lane FROM positions WHERE lane IN ('facts', 'ranks'));

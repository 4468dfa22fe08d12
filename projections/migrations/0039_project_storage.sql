-- What each project has in the object store, in bytes: files of its jobs and runs, code of its jobs (each archive once), checkpoints that
-- retention left. Chunks are shared between the checkpoints of a job: they count once, as those of its largest checkpoint at least.
CREATE OR REPLACE VIEW project_storage AS
SELECT u.project AS project, sum(u.artifact_bytes) AS artifact_bytes, sum(u.code_bytes) AS code_bytes, sum(u.checkpoint_bytes) AS checkpoint_bytes,
    artifact_bytes + code_bytes + checkpoint_bytes AS total_bytes, any(p.storage_gib) AS storage_gib,
    ifNull(total_bytes > any(p.storage_gib) * 1073741824, 0) AS over
FROM (
    SELECT j.project AS project, a.size_bytes AS artifact_bytes, toUInt64(0) AS code_bytes, toUInt64(0) AS checkpoint_bytes
    FROM (SELECT job_id, sum(size_bytes) AS size_bytes FROM artifacts GROUP BY job_id) AS a
    INNER JOIN (SELECT job_id, project FROM job_status) AS j ON j.job_id = a.job_id
    UNION ALL
    SELECT project, toUInt64(0), max(size_bytes), toUInt64(0) FROM (
        SELECT config['project'] AS project, config['code.sha256'] AS sha256, toUInt64OrZero(config['code.size_bytes']) AS size_bytes
        FROM job_specs_rows WHERE config['code.sha256'] != ''
    ) GROUP BY project, sha256
    UNION ALL
    SELECT j.project AS project, toUInt64(0), toUInt64(0), c.size_bytes
    FROM (
        SELECT job_id, greatest(sum(bytes_new), max(bytes_total)) AS size_bytes FROM checkpoints WHERE state = 'COMPLETED' GROUP BY job_id
    ) AS c
    INNER JOIN (SELECT job_id, project FROM job_status) AS j ON j.job_id = c.job_id
) AS u
LEFT JOIN projects AS p ON p.project = u.project
GROUP BY u.project;

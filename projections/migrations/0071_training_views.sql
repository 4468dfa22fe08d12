-- What was measured when a checkpoint was saved: the newest values of up to 32 metrics.
ALTER TABLE checkpoint_facts ADD COLUMN IF NOT EXISTS metrics Map(String, Float64) AFTER memory_nodes;

-- One row a commit. One that is gone stays: PRUNED, with the time at which retention removed it, or DELETED, with the time and the user.
CREATE OR REPLACE VIEW checkpoints AS
SELECT
    job_id, toUInt64(f.commit) AS commit,
    argMinIf(f.step, f.at, f.fact = 'completed') AS step,
    argMinIf(f.attempt, f.at, f.fact = 'completed') AS attempt,
    argMinIf(f.epoch, f.at, f.fact = 'completed') AS epoch,
    multiIf(countIf(f.fact = 'deleted') > 0, 'DELETED', countIf(f.fact = 'pruned') > 0, 'PRUNED', 'COMPLETED') AS state,
    argMinIf(f.uri, f.at, f.fact = 'completed') AS uri,
    argMinIf(f.bytes_total, f.at, f.fact = 'completed') AS bytes_total,
    argMinIf(f.bytes_new, f.at, f.fact = 'completed') AS bytes_new,
    argMinIf(f.stage_s, f.at, f.fact = 'completed') AS stage_s,
    argMinIf(f.upload_s, f.at, f.fact = 'completed') AS upload_s,
    argMinIf(f.world_size, f.at, f.fact = 'completed') AS world_size,
    minIf(f.at, f.fact = 'completed') AS completed_at,
    minOrNullIf(f.at, f.fact = 'pruned') AS pruned_at,
    countIf(f.fact = 'restored') AS restores,
    argMinIf(f.memory_nodes, f.at, f.fact = 'completed') AS memory_nodes,
    minOrNullIf(f.at, f.fact = 'deleted') AS deleted_at,
    anyIf(f.reason, f.fact = 'deleted') AS deleted_by,
    argMinIf(f.metrics, f.at, f.fact = 'completed') AS metrics,
    uri AS object_ref,
    completed_at AS created_at
FROM checkpoint_facts AS f FINAL
WHERE f.commit >= 0
GROUP BY job_id, f.commit
HAVING countIf(f.fact = 'completed') > 0;

-- One row a job that the scheduler runs, in the words of other training services: what it runs, on what, and its state.
CREATE OR REPLACE VIEW training_jobs AS
SELECT
    j.job_id AS job_id,
    JSONExtractString(s.json, 'code', 'uri') AS code_ref,
    if(JSONHas(s.json, 'data', 'dataset'), JSONExtractString(s.json, 'data', 'dataset'), JSONExtractString(s.json, 'data', 'uri')) AS data_snapshot,
    JSONExtractUInt(s.json, 'gang', 'ranks') AS devices,
    JSONExtractString(s.json, 'resources', 'device_type') AS device_type,
    if(notEmpty(s.json), concat(toString(devices), 'x', device_type), '') AS resource_shape,
    j.state AS status,
    j.project AS project,
    j.user AS user,
    j.submitted_at AS created_at,
    j.updated_at AS updated_at
FROM (SELECT job_id, state, project, user, submitted_at, updated_at FROM jobs_rows FINAL WHERE notEmpty(job_id)) AS j
LEFT JOIN (SELECT job_id, json FROM job_specs_rows FINAL) AS s ON s.job_id = j.job_id;

-- One row a rank of the newest attempt of each job.
CREATE OR REPLACE VIEW workers AS
SELECT
    r.job_id AS job_id, r.rank AS rank, r.node_id AS host, r.state AS state, r.last_heartbeat_at AS last_heartbeat, r.device_id AS device_id,
    r.attempt AS attempt, r.epoch AS epoch
FROM ranks AS r
WHERE (r.job_id, r.epoch) IN (SELECT job_id, max(epoch) FROM rank_facts GROUP BY job_id);

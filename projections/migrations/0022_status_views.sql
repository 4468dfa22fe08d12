-- The views below are for people and programs outside: projections/CONTRACT.md says what each column means. Columns are only added.

-- One row a job: what it is now; scheduled ones by their key, so that one job is one read. What only a scheduled job has is NULL, 0 or '' of a
-- tracked run.
CREATE OR REPLACE VIEW job_status AS
SELECT
    job_key AS job_id, 'scheduled' AS source, name, project, team, user, pool, priority, state, reason, attempt, epoch, restarts, world_size,
    node_ids, step, total_steps, loss, learning_rate, steps_per_s, samples_per_s, elapsed_s, eta_s,
    last_checkpoint_step, last_checkpoint_commit, last_checkpoint_uri, submitted_at, allocated_at, started_at, finished_at, updated_at
FROM jobs_rows FINAL
WHERE notEmpty(jobs_rows.job_id)
UNION ALL
SELECT
    job_id, 'tracked' AS source, name, project, '' AS team, user, '' AS pool, 0 AS priority, state, '' AS reason, 0 AS attempt, 0 AS epoch,
    0 AS restarts, 0 AS world_size, [] AS node_ids, NULL AS step, NULL AS total_steps, NULL AS loss, NULL AS learning_rate, NULL AS steps_per_s,
    NULL AS samples_per_s, NULL AS elapsed_s, NULL AS eta_s, NULL AS last_checkpoint_step, NULL AS last_checkpoint_commit,
    '' AS last_checkpoint_uri, toNullable(started_at) AS submitted_at, NULL AS allocated_at, toNullable(started_at) AS started_at,
    ended_at AS finished_at, updated_at
FROM tracked_runs WHERE NOT deleted;

-- One row a job that was known at the moment `at`: what it was then.
CREATE OR REPLACE VIEW job_status_at AS
SELECT
    s.job_id AS job_id, j.source AS source, j.name AS name, j.project AS project, j.team AS team, j.user AS user, j.pool AS pool,
    s.state AS state, s.reason AS reason, s.attempt AS attempt, s.restarts AS restarts, s.since AS since
FROM (
    SELECT r.job_id AS job_id, argMax(r.state, r.first.1) AS state, argMax(r.first.2, r.first.1) AS reason,
        argMax(r.attempt, r.first.1) AS attempt, argMax(r.first.3, r.first.1) AS restarts, argMax(r.began, r.first.1) AS since
    FROM (
        SELECT job_id, attempt, state, toDateTime64(min(at), 3, 'UTC') AS began, min(entered) AS first
        FROM job_states_rows WHERE at <= {at:DateTime64(3, 'UTC')} GROUP BY job_id, attempt, state, turn
    ) AS r
    GROUP BY r.job_id
) AS s
LEFT JOIN job_status AS j ON j.job_id = s.job_id;

-- One row a time that a job waited for devices: from PENDING until it had them, or ended.
CREATE OR REPLACE VIEW queue_waits AS
SELECT
    s.job_id AS job_id, j.name AS name, j.project AS project, j.team AS team, j.user AS user, j.pool AS pool, j.priority AS priority,
    j.world_size AS world_size, s.attempt AS attempt, s.began_at AS waiting_since, s.ended_at AS waited_until,
    dateDiff('millisecond', s.began_at, ifNull(s.ended_at, now64(3))) / 1000 AS wait_s,
    multiIf(s.ended_at IS NULL, 'WAITING', s.next_state IN ('SCHEDULED', 'INITIALIZING', 'RUNNING'), 'ALLOCATED', s.next_state) AS outcome,
    if(s.ended_at IS NULL, w.obstacle, '') AS obstacle, if(s.ended_at IS NULL, w.text, s.reason) AS reason
FROM (
    SELECT *, leadInFrame(state, 1, '') OVER
        (PARTITION BY job_id ORDER BY began_at ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS next_state
    FROM job_spans
) AS s
LEFT JOIN job_status AS j ON j.job_id = s.job_id
LEFT JOIN why AS w ON w.job_id = s.job_id
WHERE s.state = 'PENDING';

-- Which steps each attempt made, and when: from whatever metrics its ranks logged. Steps count from 0 over the whole job, so an attempt that
-- restored a checkpoint at step n begins with n. An attempt that logged nothing has no row.
CREATE OR REPLACE VIEW attempt_steps AS
SELECT
    job_id, epoch,
    min(m.step) AS first_step,
    max(m.step) AS last_step,
    min(m.time) AS first_step_at,
    max(m.time) AS last_step_at
FROM step_metrics AS m
GROUP BY job_id, epoch;

-- One row a failed attempt: why it failed, what it cost, and when its job trained again.
--   job_id, epoch, attempt   the attempt (epoch is its fence)
--   pool, name, team, user, project, world_size   whose it was, and of how many ranks
--   failed_at                when it failed; the verdict may be a little later
--   category, rule, summary, fingerprint, mine, node_id, device_id, rank, shard   the newest FailureBlamed about it; '' or NULL: none named
--   lost_steps               as the verdict says, else the steps that the next attempt with steps did again; NULL: not known
--   next_epoch, next_allocated_at   the job's next attempt; NULL: there is none (yet)
--   recovered_at             the first step of any later attempt; NULL: no attempt has made one since
--   recovered_by             'STEP': from metrics; 'STATUS': the job logs none, so when it was RUNNING again; '': not recovered
--   recovery_s               from failed_at to recovered_at, seconds
-- Columns are only added, never changed or removed.
CREATE OR REPLACE VIEW failures AS
WITH
    blamed AS (
        SELECT v.job_id AS job_id, assumeNotNull(v.epoch) AS epoch, ifNull(v.attempt, 0) AS attempt, v.pool AS pool,
            ifNull(v.failed_at, v.at) AS failed_at, v.category AS category, v.rule AS rule, v.summary AS summary,
            v.fingerprint AS fingerprint, v.mine AS mine, v.node_id AS node_id, v.device_id AS device_id, v.rank AS rank,
            v.shard AS shard, v.lost_steps AS lost_steps
        FROM verdicts_rows AS v
        WHERE v.type = 'trainhouse.failure.blamed.v1' AND v.epoch IS NOT NULL
        ORDER BY v.job_id, v.epoch, v.at DESC, v.source_partition, v.source_offset DESC
        LIMIT 1 BY v.job_id, v.epoch
    ),
    allocated AS (
        SELECT f.job_id AS job_id, f.epoch AS epoch, any(f.attempt) AS attempt, max(f.world_size) AS world_size,
            toNullable(min(f.at)) AS allocated_at, toNullable(f.epoch) AS own_epoch
        FROM attempt_facts AS f WHERE f.fact = 'allocated' GROUP BY f.job_id, f.epoch
    ),
    stepped AS (
        SELECT job_id, epoch, toNullable(first_step) AS first_step, toNullable(last_step) AS last_step, toNullable(first_step_at) AS first_step_at
        FROM attempt_steps WHERE job_id IN (SELECT v.job_id FROM verdicts_rows AS v WHERE v.type = 'trainhouse.failure.blamed.v1')
    ),
    running AS (
        SELECT a.job_id AS job_id, a.epoch AS epoch, toNullable(min(s.at)) AS running_at
        FROM statuses_rows AS s INNER JOIN allocated AS a ON a.job_id = s.job_id AND a.attempt = s.attempt
        WHERE s.state = 'RUNNING' GROUP BY a.job_id, a.epoch
    )
SELECT
    b.job_id AS job_id, b.epoch AS epoch, b.attempt AS attempt, b.pool AS pool,
    j.name AS name, j.team AS team, j.user AS user, j.project AS project,
    own.world_size AS world_size,
    b.failed_at AS failed_at,
    b.category AS category, b.rule AS rule, b.summary AS summary, b.fingerprint AS fingerprint, b.mine = 1 AS mine,
    b.node_id AS node_id, b.device_id AS device_id, b.rank AS rank, b.shard AS shard,
    coalesce(b.lost_steps, if(again.first_step IS NULL OR made.last_step IS NULL, NULL,
        toUInt64(greatest(0, toInt64(assumeNotNull(made.last_step)) + 1 - toInt64(assumeNotNull(again.first_step)))))) AS lost_steps,
    later.own_epoch AS next_epoch,
    later.allocated_at AS next_allocated_at,
    coalesce(again.first_step_at, back.running_at) AS recovered_at,
    multiIf(again.first_step_at IS NOT NULL, 'STEP', back.running_at IS NOT NULL, 'STATUS', '') AS recovered_by,
    if(recovered_at IS NULL, NULL, greatest(0, dateDiff('millisecond', failed_at, assumeNotNull(recovered_at))) / 1000) AS recovery_s
FROM blamed AS b
LEFT JOIN allocated AS own ON own.job_id = b.job_id AND own.epoch = b.epoch
LEFT JOIN stepped AS made ON made.job_id = b.job_id AND made.epoch = b.epoch
ASOF LEFT JOIN allocated AS later ON later.job_id = b.job_id AND b.epoch < later.epoch
ASOF LEFT JOIN stepped AS again ON again.job_id = b.job_id AND b.epoch < again.epoch
ASOF LEFT JOIN running AS back ON back.job_id = b.job_id AND b.epoch < back.epoch
LEFT JOIN (SELECT job_id, name, team, user, project FROM jobs WHERE state != 'REJECTED') AS j ON j.job_id = b.job_id;

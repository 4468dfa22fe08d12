-- Whoever may see only some projects is told what these used: utilization_by_team over chosen projects. Every row here stood in 0024.

-- Device-seconds that gangs held, by hour, attempt and node, and whose they are.
CREATE OR REPLACE VIEW held_by_hour AS
SELECT toDateTime(intDiv(h, 1000), 'UTC') AS hour, c.job_id AS job_id, c.epoch AS epoch, c.node_id AS node_id, c.pool AS pool, c.team AS team,
    c.devices * (least(c.e, h + 3600000) - greatest(c.a, h)) / 1000 AS gpu_seconds, c.project AS project
FROM (
    SELECT job_id, epoch, node_id, pool, team, project, devices, a, e,
        arrayJoin(range(intDiv(a, 3600000), intDiv(e - 1, 3600000) + 1)) * 3600000 AS h
    FROM attempt_holds WHERE e > a
) AS c;

-- Internal (no contract). One row a team, pool and hour in which jobs of {projects} held devices; ['*'] is all of them.
CREATE OR REPLACE VIEW utilization_of_projects AS
SELECT
    h.hour AS hour, h.team AS team, h.pool AS pool, uniqExact(h.job_id) AS jobs, sum(h.gpu_seconds) AS held_gpu_seconds,
    any(c.capacity_gpu_seconds) AS capacity_gpu_seconds,
    if(capacity_gpu_seconds > 0, least(1, held_gpu_seconds / capacity_gpu_seconds), NULL) AS held_share,
    if(countIf(u.utilization_pct IS NOT NULL) > 0, sum(u.utilization_pct * h.gpu_seconds)
        / sumIf(h.gpu_seconds, u.utilization_pct IS NOT NULL), NULL) AS utilization_pct
FROM (
    SELECT * FROM held_by_hour WHERE has({projects:Array(String)}, '*') OR has({projects:Array(String)}, toString(project))
) AS h
LEFT JOIN (
    SELECT r.hour AS hour, r.job_id AS job_id, r.epoch AS epoch, r.node_id AS node_id,
        toNullable(arrayAvg(mapValues(r.utilization))) AS utilization_pct
    FROM attempt_use_rows AS r FINAL
) AS u ON u.hour = h.hour AND u.job_id = h.job_id AND u.epoch = h.epoch AND u.node_id = h.node_id
LEFT JOIN (
    SELECT r.hour AS hour, r.pool AS pool, toNullable(sum(60 * arraySum(mapValues(r.devices)))) AS capacity_gpu_seconds
    FROM node_hours_rows AS r FINAL GROUP BY r.hour, r.pool
) AS c ON c.hour = h.hour AND c.pool = h.pool
GROUP BY h.hour, h.team, h.pool;

CREATE OR REPLACE VIEW utilization_by_team AS SELECT * FROM utilization_of_projects(projects = ['*']);

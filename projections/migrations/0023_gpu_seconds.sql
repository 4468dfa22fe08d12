-- The ledger of device time: every device-second that a gang held, in exactly one category; and those that nobody could be given.
--
-- An attempt's devices on a node are held from a to e. That time is cut at f (its first step was logged), k (its last kept step), l (its last
-- step) and x (its ranks had ended, the mean of them); what the ranks had waited for until then is known at each cut and at the end of each
-- hour, so what they waited in each hour of each part is known too. A step is kept unless a later attempt of the job began at or before it,
-- or the job FAILED or was CANCELLED and no checkpoint holds it.

-- Internal (no contract), as the two views after it; times in ms since 1970. One row an attempt and node: what it held, from when to when.
-- An end that nobody told is the next attempt's beginning, or the job's end, or now. x: its ranks had ended, the mean of them.
CREATE OR REPLACE VIEW attempt_holds AS
WITH
    placed AS (
        SELECT f.job_id AS job_id, f.epoch AS epoch, f.node_id AS node_id, any(f.attempt) AS attempt, any(f.pool) AS pool,
            length(anyIf(f.device_ids, f.fact = 'allocated')) AS devices,
            toUnixTimestamp64Milli(minIf(f.at, f.fact = 'allocated')) AS a,
            toUnixTimestamp64Milli(maxIf(f.at, f.fact = 'started')) AS started_ms,
            toUnixTimestamp64Milli(minIf(f.at, f.fact = 'launch_failed')) AS unlaunched_ms,
            toUnixTimestamp64Milli(maxIf(f.at, f.fact = 'stopped')) AS freed_ms,
            groupArrayIf(toUnixTimestamp64Milli(f.at), f.fact = 'exited') AS exits_ms
        FROM attempt_facts AS f FINAL WHERE f.node_id != '' GROUP BY f.job_id, f.epoch, f.node_id HAVING devices > 0
    ),
    chained AS (
        SELECT *, toInt64(9000000000000) AS never, if(count() OVER later > 0, min(p.a) OVER later, never) AS next_ms
        FROM placed AS p
        WINDOW later AS (PARTITION BY p.job_id ORDER BY p.epoch RANGE BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING)
    )
SELECT p.job_id AS job_id, p.epoch AS epoch, p.node_id AS node_id, p.attempt AS attempt, p.pool AS pool, p.devices AS devices, p.a AS a,
    j.team AS team, j.project AS project, j.user AS user, j.state AS state, p.next_ms < p.never AS followed,
    toUnixTimestamp64Milli(now64(3)) AS now_ms,
    if(j.finished_at IS NULL, p.never, toUnixTimestamp64Milli(assumeNotNull(j.finished_at))) AS finished_ms,
    p.freed_ms = 0 AND least(p.next_ms, finished_ms) > now_ms AS open,
    greatest(p.a, least(p.next_ms, if(p.freed_ms > 0, p.freed_ms, least(now_ms, finished_ms)))) AS e,
    least(e, greatest(p.a, multiIf(length(p.exits_ms) > 0,
        intDiv(arraySum(t -> greatest(p.a, least(e, t)), p.exits_ms) + e * greatest(0, p.devices - length(p.exits_ms)),
            greatest(p.devices, length(p.exits_ms))),
        p.unlaunched_ms > 0, p.unlaunched_ms, e))) AS x,
    if(p.started_ms > 0, least(x, greatest(p.a, p.started_ms)), x) AS begun
FROM chained AS p
LEFT JOIN (SELECT job_id, state, finished_at, team, project, user FROM jobs_rows FINAL WHERE version > 0) AS j ON j.job_id = p.job_id;

-- One row an attempt that logged steps: which, when, and from which step on its steps were lost.
CREATE OR REPLACE VIEW attempt_losses AS
SELECT t.job_id AS job_id, t.epoch AS epoch, 1 AS known, t.first_step AS first_step, t.last_step AS last_step,
    toUnixTimestamp64Milli(t.first_step_at) AS f, toUnixTimestamp64Milli(t.last_step_at) AS l,
    least(if(count() OVER later > 0, min(t.first_step) OVER later, 9223372036854775807),
        if(j.state IN ('FAILED', 'CANCELLED'), c.step, 9223372036854775807)) AS lost_from
FROM attempt_steps AS t
LEFT JOIN (SELECT job_id, state FROM jobs_rows FINAL WHERE version > 0) AS j ON j.job_id = t.job_id
LEFT JOIN (SELECT job_id, max(step) AS step FROM checkpoint_facts WHERE fact = 'completed' GROUP BY job_id) AS c ON c.job_id = t.job_id
WINDOW later AS (PARTITION BY t.job_id ORDER BY t.epoch RANGE BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING);

-- What attempt_holds says, cut. `ways` are its parts: (what the rest of it is, what an unfinished or unlogged step in it is, begin, end, waits of
-- its ranks until its begin and end in s: data, saves, data, saves). Where an attempt's lost steps begin is told by the heartbeat at its
-- last kept step (heartbeats count the steps that are finished), and by its mean step from there.
CREATE OR REPLACE VIEW attempt_cuts AS
WITH
    part_kept AS (
        SELECT b.job_id AS job_id, b.epoch AS epoch, b.node_id AS node_id, max(assumeNotNull(b.step)) AS step, any(p.lost_from) AS lost_from,
            max(toUnixTimestamp64Milli(assumeNotNull(b.step_at))) AS at_ms, max(b.data_wait_at_step_s) AS data_s, max(b.save_stall_at_step_s) AS save_s
        FROM attempt_beats_rows AS b
        INNER JOIN (SELECT * FROM attempt_losses WHERE lost_from > first_step AND lost_from <= last_step) AS p
            ON p.job_id = b.job_id AND p.epoch = b.epoch
        WHERE b.step <= p.lost_from AND b.step_at IS NOT NULL
        GROUP BY b.job_id, b.epoch, b.node_id
    ),
    hours AS (
        SELECT h.job_id AS job_id, h.epoch AS epoch, h.node_id AS node_id, max(h.data_wait_s) AS data_s, max(h.save_stall_s) AS save_s,
            min(h.first) AS first, max(h.last) AS last,
            arraySort(groupArray((toInt64(toUnixTimestamp(h.hour)) * 1000, h.data_wait_s, h.save_stall_s))) AS by_hour
        FROM attempt_hours_rows AS h GROUP BY h.job_id, h.epoch, h.node_id
    ),
    hung AS (
        SELECT v.job_id AS job_id, assumeNotNull(v.epoch) AS epoch,
            arraySort(groupUniqArrayIf(toUnixTimestamp64Milli(v.at) - toInt64(ifNull(v.value, 0) * 1000), v.type = 'trainhouse.gang.hung.v1'))
                AS froms,
            arraySort(groupUniqArrayIf(toUnixTimestamp64Milli(v.at), v.lifted = 'trainhouse.gang.hung.v1')) AS lifts,
            arrayMap(s -> (s, ifNull(arrayFirstOrNull(t -> t > s, lifts), toInt64(9000000000000))), froms) AS spans
        FROM verdicts_rows AS v
        WHERE v.epoch IS NOT NULL AND (v.type = 'trainhouse.gang.hung.v1' OR v.lifted = 'trainhouse.gang.hung.v1')
        GROUP BY v.job_id, v.epoch
    ),
    bounded AS (
        SELECT p.job_id AS job_id, p.epoch AS epoch, p.node_id AS node_id, p.attempt AS attempt, p.pool AS pool, p.devices AS devices,
            p.team AS team, p.project AS project, p.user AS user, p.open AS open, p.a AS a, p.begun AS begun, p.x AS x, p.e AS e,
            s.known AS by_metrics, by_metrics OR (h.last.1 > 0) AS steps,
            max(steps) OVER (PARTITION BY p.job_id) AS measured,
            toInt64(if(by_metrics, s.first_step, h.first.1 - 1)) AS first_step,
            toInt64(if(by_metrics, s.last_step, h.last.1 - 1)) AS last_step,
            multiIf(by_metrics, least(p.x, greatest(p.a, s.f)), steps, least(p.x, greatest(p.a, toUnixTimestamp64Milli(h.first.2))),
                measured, p.x, p.begun) AS f,
            if(steps, least(p.x, greatest(f, s.l, toUnixTimestamp64Milli(h.last.2))), f) AS l,
            h.data_s AS data_s, h.save_s AS save_s, h.by_hour AS by_hour, g.spans AS hung,
            if(h.last.1 > 0, least(data_s, h.first.3), 0) AS data_f, if(h.last.1 > 0, least(save_s, h.first.4), 0) AS save_f,
            multiIf(h.last.1 > 0, greatest(data_f, -h.last.3), steps, data_s, 0) AS data_l,
            multiIf(h.last.1 > 0, greatest(save_f, -h.last.4), steps, save_s, 0) AS save_l,
            if(last_step > first_step AND l > f,
                greatest(0., (l - f) - 1000 * (data_l - data_f + save_l - save_f) / p.devices
                    - arraySum(t -> greatest(0, least(l, t.2) - greatest(f, t.1)), hung)) / greatest(1, last_step - first_step), 0.) AS step_ms,
            by_metrics AND s.lost_from <= s.first_step AS all_lost, by_metrics AND s.lost_from <= s.last_step AS some_lost,
            multiIf(NOT some_lost, l, all_lost, f, u.lost_from > 0,
                least(l, greatest(f, u.at_ms + toInt64(step_ms * greatest(0, toInt64(u.lost_from) - toInt64(u.step))))),
                least(l, f + intDiv((l - f) * (toInt64(s.lost_from) - 1 - first_step), greatest(1, last_step - first_step)))) AS k,
            multiIf(NOT some_lost, data_l, all_lost, data_f, u.lost_from > 0, greatest(data_f, least(data_l, u.data_s)),
                data_f + (data_l - data_f) * (k - f) / greatest(1, l - f)) AS data_k,
            multiIf(NOT some_lost, save_l, all_lost, save_f, u.lost_from > 0, greatest(save_f, least(save_l, u.save_s)),
                save_f + (save_l - save_f) * (k - f) / greatest(1, l - f)) AS save_k,
            NOT p.open AND (p.followed OR p.state IN ('FAILED', 'CANCELLED')) AS gave_up
        FROM attempt_holds AS p
        LEFT JOIN attempt_losses AS s ON s.job_id = p.job_id AND s.epoch = p.epoch
        LEFT JOIN part_kept AS u ON u.job_id = p.job_id AND u.epoch = p.epoch AND u.node_id = p.node_id
        LEFT JOIN hours AS h ON h.job_id = p.job_id AND h.epoch = p.epoch AND h.node_id = p.node_id
        LEFT JOIN hung AS g ON g.job_id = p.job_id AND g.epoch = p.epoch
    )
SELECT job_id, epoch, attempt, node_id, pool, team, project, user, devices, open, measured, a, begun, f, k, l, x, e, hung, by_hour, step_ms,
    arrayFilter(w -> w.4 > w.3, [
        ('starting', multiIf(NOT steps, '', all_lost, 'rework', 'stepping'), a, f, 0., 0., data_f, save_f),
        ('stepping', '', f, k, data_f, save_f, data_k, save_k),
        ('rework', '', k, l, data_k, save_k, data_l, save_l),
        ('unknown', multiIf(NOT steps, '', open, 'stepping', gave_up, 'rework', ''), l, x, data_l, save_l, data_s, save_s),
        ('idle', '', x, e, data_s, save_s, data_s, save_s)
    ]) AS ways
FROM bounded;

-- What a node is, from its newest registration alone.
CREATE OR REPLACE VIEW node_kinds AS
SELECT node_id, device_type, devices, labels['spot'] = 'true' AS spot FROM node_facts FINAL WHERE fact = 'registered';

CREATE OR REPLACE VIEW gpu_seconds AS
WITH
    parts AS (
        SELECT job_id, epoch, attempt, node_id, pool, team, project, user, devices, step_ms, hung, by_hour, w.1 AS rest, w.2 AS own, w.3 AS b, w.4 AS e,
            w.5 AS data_b, w.6 AS save_b, w.7 AS data_e, w.8 AS save_e,
            arrayJoin(range(intDiv(b, 3600000), intDiv(e - 1, 3600000) + 1)) * 3600000 AS h
        FROM attempt_cuts ARRAY JOIN ways AS w
    ),
    cells AS (
        SELECT job_id, epoch, attempt, node_id, pool, team, project, user, h, rest, own,
            greatest(b, h) AS begin, least(e, h + 3600000) AS end, toFloat64(devices * (end - begin)) AS whole,
            arrayFilter(t -> t.1 < h, by_hour) AS before, arrayFilter(t -> t.1 <= h, by_hour) AS within,
            if(b >= h, data_b, greatest(data_b, arrayMax(t -> t.2, before))) AS data_from,
            if(b >= h, save_b, greatest(save_b, arrayMax(t -> t.3, before))) AS save_from,
            if(e <= h + 3600000, data_e, least(data_e, arrayMax(t -> t.2, within))) AS data_to,
            if(e <= h + 3600000, save_e, least(save_e, arrayMax(t -> t.3, within))) AS save_to,
            if(rest = 'idle', 0., toFloat64(devices * arraySum(t -> greatest(0, least(end, t.2) - greatest(begin, t.1)),
                arrayMap((t, i) -> (greatest(t.1, arrayMax(p -> p.2, arraySlice(hung, 1, i - 1))), t.2), hung, arrayEnumerate(hung))))) AS hung_ms,
            least(whole - hung_ms, 1000 * greatest(0, data_to - data_from)) AS data_ms,
            least(whole - hung_ms - data_ms, 1000 * greatest(0, save_to - save_from)) AS save_ms,
            whole - hung_ms - data_ms - save_ms AS left,
            if(own != '' AND if(rest = 'starting', e <= h + 3600000, b >= h), least(left, devices * step_ms), 0.) AS own_ms
        FROM parts
    ),
    sorted AS (
        SELECT job_id, epoch, attempt, node_id, pool, team, project, user, h, c.1 AS category, assumeNotNull(sum(c.2)) / 1000 AS gpu_seconds
        FROM cells ARRAY JOIN [(rest, left - own_ms), (own, own_ms), ('data_wait', data_ms), ('checkpoint_stall', save_ms), ('hung', hung_ms)] AS c
        WHERE c.2 > 0 GROUP BY job_id, epoch, attempt, node_id, pool, team, project, user, h, category
    ),
    closed AS (
        SELECT r.node_id AS node_id, r.pool AS pool, toUnixTimestamp64Milli(r.restricted_at) AS b,
            toUnixTimestamp64Milli(leadInFrame(r.restricted_at, 1, now64(3)) OVER
                (PARTITION BY r.node_id ORDER BY r.version ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)) AS e, r.restriction AS restriction
        FROM node_restrictions_rows AS r FINAL
    ),
    withheld AS (
        SELECT c.node_id AS node_id, c.pool AS pool, toInt64(n.devices) AS devices, c.b AS b, c.e AS e
        FROM closed AS c INNER JOIN node_kinds AS n ON n.node_id = c.node_id WHERE c.restriction != 'NONE' AND c.e > c.b
        UNION ALL
        SELECT c.node_id AS node_id, c.pool AS pool, -toInt64(u.devices) AS devices, greatest(c.b, u.a) AS b, least(c.e, u.e) AS e
        FROM closed AS c INNER JOIN attempt_holds AS u ON u.node_id = c.node_id
        WHERE c.restriction != 'NONE' AND least(c.e, u.e) > greatest(c.b, u.a)
    ),
    quarantined AS (
        SELECT node_id, pool, h, sum(devices * (least(e, h + 3600000) - greatest(b, h))) / 1000 AS gpu_seconds
        FROM (SELECT *, arrayJoin(range(intDiv(b, 3600000), intDiv(e - 1, 3600000) + 1)) * 3600000 AS h FROM withheld)
        GROUP BY node_id, pool, h HAVING gpu_seconds > 0
    )
SELECT toDateTime(intDiv(s.h, 1000), 'UTC') AS hour, s.job_id AS job_id, s.epoch AS epoch, s.attempt AS attempt, s.node_id AS node_id,
    s.pool AS pool, s.team AS team, s.project AS project, s.user AS user, n.device_type AS device_type, n.spot AS spot,
    s.category AS category, s.gpu_seconds AS gpu_seconds
FROM sorted AS s
LEFT JOIN node_kinds AS n ON n.node_id = s.node_id
UNION ALL
SELECT toDateTime(intDiv(q.h, 1000), 'UTC') AS hour, '' AS job_id, 0 AS epoch, 0 AS attempt, q.node_id AS node_id, q.pool AS pool, '' AS team,
    '' AS project, '' AS user, n.device_type AS device_type, n.spot AS spot, 'quarantined' AS category,
    q.gpu_seconds AS gpu_seconds
FROM quarantined AS q LEFT JOIN node_kinds AS n ON n.node_id = q.node_id;

-- What the fleet's time was used for, and what it cost, by hour. Everything here follows from the ledger, and from heartbeats by hour.

-- How busy the devices of an attempt on a node were, by hour: the rollup of attempt_minutes for a year. A sample under its second of the hour.
CREATE TABLE IF NOT EXISTS attempt_use_rows (
    hour DateTime('UTC') CODEC(Delta, ZSTD),
    job_id String,
    epoch UInt32,
    node_id LowCardinality(String),
    ranks SimpleAggregateFunction(max, UInt32),
    utilization SimpleAggregateFunction(maxMap, Map(UInt16, Float64)) CODEC(ZSTD),
    inserted_at SimpleAggregateFunction(max, DateTime('UTC'))
) ENGINE = AggregatingMergeTree ORDER BY (hour, job_id, epoch, node_id)
TTL inserted_at + INTERVAL 365 DAY
SETTINGS non_replicated_deduplication_window = 1000;

CREATE MATERIALIZED VIEW IF NOT EXISTS attempt_use_of_minutes TO attempt_use_rows AS
SELECT toStartOfHour(toDateTime(m.minute, 'UTC')) AS hour, toString(m.job_id) AS job_id, epoch, node_id, max(m.ranks) AS ranks,
    maxMap(mapApply((s, v) -> (toUInt16(toMinute(m.minute) * 60 + s), v), m.utilization)) AS utilization, now() AS inserted_at
FROM attempt_minutes_rows AS m WHERE notEmpty(m.utilization)
GROUP BY hour, job_id, epoch, node_id;

INSERT INTO attempt_use_rows
SELECT toStartOfHour(toDateTime(m.minute, 'UTC')) AS hour, toString(m.job_id) AS job_id, epoch, node_id, max(m.ranks) AS ranks,
    maxMap(mapApply((s, v) -> (toUInt16(toMinute(m.minute) * 60 + s), v), m.utilization)) AS utilization, now() AS inserted_at
FROM attempt_minutes_rows AS m WHERE notEmpty(m.utilization)
GROUP BY hour, job_id, epoch, node_id;

-- Device-seconds that gangs held, by hour, attempt and node, and whose they are: the ledger's sums without its categories, for questions that
-- need none.
CREATE OR REPLACE VIEW held_by_hour AS
SELECT toDateTime(intDiv(h, 1000), 'UTC') AS hour, c.job_id AS job_id, c.epoch AS epoch, c.node_id AS node_id, c.pool AS pool, c.team AS team,
    c.devices * (least(c.e, h + 3600000) - greatest(c.a, h)) / 1000 AS gpu_seconds, c.project AS project
FROM (
    SELECT job_id, epoch, node_id, pool, team, project, devices, a, e,
        arrayJoin(range(intDiv(a, 3600000), intDiv(e - 1, 3600000) + 1)) * 3600000 AS h
    FROM attempt_holds WHERE e > a
) AS c;

-- One row a node and hour in which it sent heartbeats.
CREATE OR REPLACE VIEW utilization_by_node AS
SELECT
    n.hour AS hour, n.node_id AS node_id, n.pool AS pool, n.capacity_gpu_seconds AS capacity_gpu_seconds,
    ifNull(h.gpu_seconds, 0) AS held_gpu_seconds,
    if(n.capacity_gpu_seconds > 0, least(1, held_gpu_seconds / n.capacity_gpu_seconds), NULL) AS held_share, n.utilization_pct AS utilization_pct
FROM (
    SELECT r.hour AS hour, r.node_id AS node_id, r.pool AS pool, 60 * arraySum(mapValues(r.devices)) AS capacity_gpu_seconds,
        if(empty(r.utilization), NULL, arrayAvg(mapValues(r.utilization))) AS utilization_pct
    FROM node_hours_rows AS r FINAL
) AS n
LEFT JOIN (SELECT hour, node_id, toNullable(sum(gpu_seconds)) AS gpu_seconds FROM held_by_hour GROUP BY hour, node_id) AS h
    ON h.hour = n.hour AND h.node_id = n.node_id;

-- One row a pool and hour.
CREATE OR REPLACE VIEW utilization_by_hour AS
SELECT
    u.hour AS hour, u.pool AS pool, count() AS nodes, sum(u.capacity_gpu_seconds) AS capacity_gpu_seconds,
    sum(u.held_gpu_seconds) AS held_gpu_seconds,
    if(capacity_gpu_seconds > 0, least(1, held_gpu_seconds / capacity_gpu_seconds), NULL) AS held_share,
    if(countIf(u.utilization_pct IS NOT NULL) > 0, sum(u.utilization_pct * u.capacity_gpu_seconds)
        / sumIf(u.capacity_gpu_seconds, u.utilization_pct IS NOT NULL), NULL) AS utilization_pct
FROM utilization_by_node AS u
GROUP BY u.hour, u.pool;

-- Internal (no contract). One row a team, pool and hour in which jobs of {projects} held devices; ['*'] is all of them. Whoever may see only
-- some projects is told what these used. utilization_pct: of the devices that were held.
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

-- One row a team, pool and hour in which it held devices.
CREATE OR REPLACE VIEW utilization_by_team AS SELECT * FROM utilization_of_projects(projects = ['*']);

-- One row a job and hour: how much of what it held made steps that were kept. NULL: nothing is known of what it did.
CREATE OR REPLACE VIEW goodput AS
SELECT
    hour, job_id, pool, team, project, user, sum(g.gpu_seconds) AS held_gpu_seconds,
    sumIf(g.gpu_seconds, g.category = 'stepping') AS stepping_gpu_seconds,
    sumIf(g.gpu_seconds, g.category = 'rework') AS rework_gpu_seconds,
    sumIf(g.gpu_seconds, g.category = 'unknown') AS unknown_gpu_seconds,
    if(held_gpu_seconds > unknown_gpu_seconds, stepping_gpu_seconds / (held_gpu_seconds - unknown_gpu_seconds), NULL) AS goodput
FROM gpu_seconds AS g
WHERE g.job_id != ''
GROUP BY hour, job_id, pool, team, project, user;

-- What a device-hour costs, from the pools' policies: from `since` until the pool's next row of that type. The first one that a pool ever had
-- holds for the time before it too. device_type 'any': every type that the pool has no price of its own for.
CREATE OR REPLACE VIEW prices AS
SELECT p.pool AS pool, p.price.1 AS device_type, p.price.2 AS reserved_per_gpu_hour, ifNull(p.price.3, p.price.2) AS spot_per_gpu_hour,
    p.currency AS currency, p.version AS policy_version,
    if(row_number() OVER (PARTITION BY p.pool, p.price.1 ORDER BY p.version) = 1, toDateTime64(0, 3, 'UTC'), p.applied_at) AS since
FROM (
    SELECT pool, version, applied_at, JSONExtractString(json, 'prices', 'currency') AS currency,
        arrayJoin(arrayMap(d -> (d.1, JSONExtractFloat(d.2, 'reserved'), JSONExtract(d.2, 'spot', 'Nullable(Float64)')),
            JSONExtractKeysAndValuesRaw(json, 'prices', 'devices'))) AS price
    FROM policies_rows FINAL
) AS p;

-- The ledger with its price. cost: in `currency`; NULL where the pool's policy never named a price for such devices.
CREATE OR REPLACE VIEW cost AS
SELECT
    g.hour AS hour, g.job_id AS job_id, g.pool AS pool, g.team AS team, g.project AS project, g.user AS user, g.device_type AS device_type,
    g.spot AS spot, g.category AS category, g.gpu_seconds AS gpu_seconds,
    multiIf(o.pool != '', if(g.spot, o.spot_per_gpu_hour, o.reserved_per_gpu_hour),
        d.pool != '', if(g.spot, d.spot_per_gpu_hour, d.reserved_per_gpu_hour), NULL) AS price_per_gpu_hour,
    if(o.pool != '', o.currency, d.currency) AS currency,
    g.gpu_seconds / 3600 * price_per_gpu_hour AS cost
FROM (
    SELECT hour, job_id, pool, team, project, user, device_type, spot, category, sum(s.gpu_seconds) AS gpu_seconds,
        toDateTime64(hour, 3, 'UTC') AS moment, 'any' AS any_type
    FROM gpu_seconds AS s GROUP BY hour, job_id, pool, team, project, user, device_type, spot, category
) AS g
ASOF LEFT JOIN prices AS o ON o.pool = g.pool AND o.device_type = g.device_type AND g.moment >= o.since
ASOF LEFT JOIN prices AS d ON d.pool = g.pool AND d.device_type = g.any_type AND g.moment >= d.since;

-- One row a span of a gang's time. kind 'state': a state of the job (no node); 'part': what an attempt did on a node, in the ledger's words;
-- 'hang': a hang, over the parts. ended_at NULL: it lasts.
CREATE OR REPLACE VIEW gang_timeline AS
SELECT s.job_id AS job_id, s.attempt AS attempt, toUInt32(0) AS epoch, '' AS node_id, 'state' AS kind, toString(s.state) AS span,
    s.began_at AS began_at, s.ended_at AS ended_at,
    dateDiff('millisecond', s.began_at, ifNull(s.ended_at, now64(3))) / 1000 AS duration_s, s.reason AS reason
FROM job_spans AS s
UNION ALL
SELECT c.job_id AS job_id, c.attempt AS attempt, c.epoch AS epoch, toString(c.node_id) AS node_id, 'part' AS kind, c.w.1 AS span,
    fromUnixTimestamp64Milli(c.w.3, 'UTC') AS began_at,
    if(c.open AND c.w.4 = c.e, NULL, fromUnixTimestamp64Milli(c.w.4, 'UTC')) AS ended_at, (c.w.4 - c.w.3) / 1000 AS duration_s, '' AS reason
FROM (SELECT *, arrayJoin(ways) AS w FROM attempt_cuts) AS c
UNION ALL
SELECT c.job_id AS job_id, c.attempt AS attempt, c.epoch AS epoch, toString(c.node_id) AS node_id, 'hang' AS kind, 'hung' AS span,
    fromUnixTimestamp64Milli(greatest(c.a, c.t.1), 'UTC') AS began_at,
    if(c.open AND c.t.2 > c.x, NULL, fromUnixTimestamp64Milli(least(c.x, c.t.2), 'UTC')) AS ended_at,
    (least(c.x, c.t.2) - greatest(c.a, c.t.1)) / 1000 AS duration_s, '' AS reason
FROM (SELECT *, arrayJoin(hung) AS t FROM attempt_cuts) AS c WHERE least(c.x, c.t.2) > greatest(c.a, c.t.1);

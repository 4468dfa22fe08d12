-- A node that the scheduler has forgotten is none, until it registers again; its facts stay for questions about the past.
CREATE OR REPLACE VIEW nodes AS
SELECT
    f.node_id AS node_id,
    argMax(f.pool, f.at) AS pool,
    multiIf(argMax(f.fact, f.at) = 'lost', 'LOST', argMax(f.fact, f.at) = 'suspected', 'SUSPECTED', 'ALIVE') AS state,
    if(any(r.restriction) = '', 'NONE', any(r.restriction)) AS restriction,
    any(r.reason) AS restriction_reason,
    any(r.restricted_by) AS restricted_by,
    argMax(f.boot_id, f.at) AS boot_id,
    anyIf(f.address, f.fact = 'registered') AS address,
    anyIf(f.device_type, f.fact = 'registered') AS device_type,
    anyIf(f.devices, f.fact = 'registered') AS devices,
    anyIf(f.cpus, f.fact = 'registered') AS cpus,
    anyIf(f.memory_bytes, f.fact = 'registered') AS memory_bytes,
    anyIf(f.labels, f.fact = 'registered') AS labels,
    anyIf(f.ranks_running, f.fact = 'beat') AS ranks_running,
    anyIf(f.spool_lag_bytes, f.fact = 'beat') AS spool_lag_bytes,
    anyIf(f.reason, f.fact = 'lost') AS lost_reason,
    maxOrNullIf(f.at, f.fact = 'registered') AS registered_at,
    maxOrNullIf(f.at, f.fact = 'beat') AS last_heartbeat_at,
    maxOrNullIf(f.at, f.fact = 'lost') AS lost_at
FROM (SELECT * FROM node_facts FINAL) AS f
LEFT JOIN (
    SELECT node_id, restriction, reason, restricted_by FROM node_restrictions_rows FINAL ORDER BY node_id, version DESC LIMIT 1 BY node_id
) AS r ON r.node_id = f.node_id
GROUP BY node_id
HAVING argMax(f.fact, f.at) != 'forgotten';

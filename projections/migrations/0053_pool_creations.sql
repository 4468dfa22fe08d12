-- When each pool was created: the first time that a scheduler took it in, which a move to another partition does not change. On
-- trainhouse.pools the newest record stays alone, and that is the move's; the journal has the first one. The largest `version` is the
-- earliest time.
CREATE TABLE IF NOT EXISTS pool_creations_rows (
    pool String,
    version UInt64,
    created_at DateTime64(3, 'UTC'),
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64
) ENGINE = ReplacingMergeTree(version) ORDER BY pool
SETTINGS non_replicated_deduplication_window = 1000;

CREATE OR REPLACE VIEW pools AS
SELECT
    p.pool AS pool,
    p.partition AS partition,
    if(b.pool = '', p.created_at, least(b.created_at, p.created_at)) AS created_at,
    n.nodes AS nodes,
    n.nodes_alive AS nodes_alive,
    n.nodes_closed AS nodes_closed,
    n.devices AS devices,
    if(c.version = 0, 'default', c.name) AS policy,
    c.version AS policy_version,
    c.user AS policy_user,
    c.applied_at AS policy_applied_at
FROM (SELECT * FROM pools_rows FINAL) AS p
LEFT JOIN (
    SELECT pool, count() AS nodes, countIf(state = 'ALIVE') AS nodes_alive, countIf(restriction != 'NONE') AS nodes_closed,
        sum(devices) AS devices
    FROM nodes GROUP BY pool
) AS n ON n.pool = p.pool
LEFT JOIN (
    SELECT pool, version, name, user, toNullable(applied_at) AS applied_at
    FROM policies_rows FINAL ORDER BY pool, version DESC LIMIT 1 BY pool
) AS c ON c.pool = p.pool
LEFT JOIN (SELECT pool, created_at FROM pool_creations_rows FINAL) AS b ON b.pool = p.pool;

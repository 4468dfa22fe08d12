-- What a thing came from, and what came of it, over every kind of edge: any id (job:…, attempt:…, checkpoint:…, code:…, environment:…, data:…,
-- artifact:…, and kinds that come later). One row an edge on the way, told once, with its least distance from the thing, 1 being next to it.
-- A walk ends after 16 edges: it is as deep as five resumptions, and a circle (a file that is read and written) ends there too.
--
-- Each step of a walk reads the edges of the step before by key. By from_id edges stand in lineage_rows; this is the same by to_id.
CREATE TABLE IF NOT EXISTS lineage_back_rows (
    to_id String CODEC(ZSTD),
    from_id String CODEC(ZSTD),
    kind LowCardinality(String),
    at SimpleAggregateFunction(min, DateTime64(3, 'UTC')) CODEC(Delta, ZSTD),
    job_id SimpleAggregateFunction(max, String) CODEC(ZSTD),
    project SimpleAggregateFunction(max, String) CODEC(ZSTD)
) ENGINE = AggregatingMergeTree ORDER BY (to_id, from_id, kind)
SETTINGS index_granularity = 1024, non_replicated_deduplication_window = 1000;

CREATE MATERIALIZED VIEW IF NOT EXISTS lineage_back_of_lineage TO lineage_back_rows AS
SELECT to_id, from_id, kind, min(e.at) AS at, max(e.job_id) AS job_id, max(toString(e.project)) AS project
FROM lineage_rows AS e GROUP BY to_id, from_id, kind;

INSERT INTO lineage_back_rows
SELECT to_id, from_id, kind, min(e.at) AS at, max(e.job_id) AS job_id, max(toString(e.project)) AS project
FROM lineage_rows AS e GROUP BY to_id, from_id, kind;

-- What came of {id}.
CREATE OR REPLACE VIEW lineage_of AS
WITH RECURSIVE walked AS (
    SELECT e.from_id AS from_id, e.to_id AS to_id, e.kind AS kind, e.at AS at, e.job_id AS job_id, e.project AS project, 1 AS distance
    FROM lineage_rows AS e WHERE e.from_id = {id:String}
    UNION ALL
    SELECT DISTINCT e.from_id AS from_id, e.to_id AS to_id, e.kind AS kind, e.at AS at, e.job_id AS job_id, e.project AS project,
        w.distance + 1 AS distance
    FROM (SELECT * FROM lineage_rows WHERE from_id IN (SELECT to_id FROM walked WHERE distance < 16)) AS e
    INNER JOIN walked AS w ON e.from_id = w.to_id
)
SELECT f.from_id AS from_id, f.to_id AS to_id, f.kind AS kind, f.distance AS distance, f.at AS at, f.job_id AS job_id,
    if(f.project != '', f.project, j.project) AS project
FROM (
    SELECT w.from_id AS from_id, w.to_id AS to_id, toString(w.kind) AS kind, toUInt8(min(w.distance)) AS distance, min(w.at) AS at,
        max(w.job_id) AS job_id, max(toString(w.project)) AS project
    FROM walked AS w GROUP BY w.from_id, w.to_id, w.kind
) AS f
LEFT JOIN (SELECT job_id, toString(project) AS project FROM job_status) AS j ON j.job_id = f.job_id;

-- What {id} came from: the same walk against the edges.
CREATE OR REPLACE VIEW lineage_to AS
WITH RECURSIVE walked AS (
    SELECT e.from_id AS from_id, e.to_id AS to_id, e.kind AS kind, toDateTime64(e.at, 3, 'UTC') AS at, toString(e.job_id) AS job_id,
        toString(e.project) AS project, 1 AS distance
    FROM lineage_back_rows AS e WHERE e.to_id = {id:String}
    UNION ALL
    SELECT DISTINCT e.from_id AS from_id, e.to_id AS to_id, e.kind AS kind, toDateTime64(e.at, 3, 'UTC') AS at, toString(e.job_id) AS job_id,
        toString(e.project) AS project, w.distance + 1 AS distance
    FROM (SELECT * FROM lineage_back_rows WHERE to_id IN (SELECT from_id FROM walked WHERE distance < 16)) AS e
    INNER JOIN walked AS w ON e.to_id = w.from_id
)
SELECT f.from_id AS from_id, f.to_id AS to_id, f.kind AS kind, f.distance AS distance, f.at AS at, f.job_id AS job_id,
    if(f.project != '', f.project, j.project) AS project
FROM (
    SELECT w.from_id AS from_id, w.to_id AS to_id, toString(w.kind) AS kind, toUInt8(min(w.distance)) AS distance, min(w.at) AS at,
        max(w.job_id) AS job_id, max(w.project) AS project
    FROM walked AS w GROUP BY w.from_id, w.to_id, w.kind
) AS f
LEFT JOIN (SELECT job_id, toString(project) AS project FROM job_status) AS j ON j.job_id = f.job_id;

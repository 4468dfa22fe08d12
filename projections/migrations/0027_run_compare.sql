-- What each job was to run: its spec whole, and as flat pairs (gang.ranks -> 4) that compare without JSON functions. One small row a job, by job.
-- No TTL: a run is compared as long as it is known.
CREATE TABLE IF NOT EXISTS job_specs_rows (
    job_id String,
    version UInt8,
    spec_sha256 String,
    submitted_at DateTime64(3, 'UTC'),
    config Map(String, String) CODEC(ZSTD),
    json String CODEC(ZSTD),
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64
) ENGINE = ReplacingMergeTree(version) ORDER BY job_id
SETTINGS index_granularity = 256, non_replicated_deduplication_window = 1000;

CREATE OR REPLACE VIEW job_specs AS SELECT job_id, spec_sha256, submitted_at, config, json FROM job_specs_rows FINAL;

-- Everything that tells run {a} from run {b}, one row a thing. part 'config': the specs; 'parameter': hyperparameters and what was logged as such;
-- 'metric': last, least and largest value of each metric of rank 0; 'resource': what it took. a, b: NULL where the run has no such thing.
CREATE OR REPLACE VIEW run_compare AS
SELECT part, name, a, b, toFloat64OrNull(a) AS a_value, toFloat64OrNull(b) AS b_value, a IS DISTINCT FROM b AS differs
FROM (
    SELECT 'config' AS part, key AS name, if(mapContains(ca, key), toNullable(ca[key]), NULL) AS a,
        if(mapContains(cb, key), toNullable(cb[key]), NULL) AS b
    FROM (
        SELECT anyIf(config, job_id = {a:String}) AS ca, anyIf(config, job_id = {b:String}) AS cb
        FROM job_specs_rows WHERE job_id IN ({a:String}, {b:String})
    )
    ARRAY JOIN arrayDistinct(arrayConcat(mapKeys(ca), mapKeys(cb))) AS key
    UNION ALL
    SELECT 'parameter' AS part, p.key AS name, anyOrNullIf(p.value, p.job_id = {a:String}) AS a, anyOrNullIf(p.value, p.job_id = {b:String}) AS b
    FROM parameters AS p WHERE p.job_id IN ({a:String}, {b:String}) GROUP BY p.key
    UNION ALL
    SELECT 'metric' AS part, concat(m.metric, ' ', told.1) AS name, told.2 AS a, told.3 AS b
    FROM (
        SELECT toString(s.metric) AS metric,
            argMaxOrNullIf(s.value, (s.epoch, s.step), s.job_id = {a:String}) AS last_a,
            argMaxOrNullIf(s.value, (s.epoch, s.step), s.job_id = {b:String}) AS last_b,
            minOrNullIf(s.value, s.job_id = {a:String}) AS least_a, minOrNullIf(s.value, s.job_id = {b:String}) AS least_b,
            maxOrNullIf(s.value, s.job_id = {a:String}) AS most_a, maxOrNullIf(s.value, s.job_id = {b:String}) AS most_b
        FROM step_metrics AS s WHERE s.job_id IN ({a:String}, {b:String}) AND s.rank = 0 GROUP BY s.metric
    ) AS m
    ARRAY JOIN [('last', toString(m.last_a), toString(m.last_b)), ('least', toString(m.least_a), toString(m.least_b)),
        ('most', toString(m.most_a), toString(m.most_b))] AS told
    UNION ALL
    SELECT 'resource' AS part, r.name AS name, toString(sumOrNullIf(r.amount, r.job_id = {a:String})) AS a,
        toString(sumOrNullIf(r.amount, r.job_id = {b:String})) AS b
    FROM (
        SELECT job_id, concat('gpu_seconds ', category) AS name, g.gpu_seconds AS amount FROM gpu_seconds AS g
        WHERE job_id IN ({a:String}, {b:String})
        UNION ALL
        SELECT job_id, concat('cost ', currency), assumeNotNull(c.cost) FROM cost AS c
        WHERE job_id IN ({a:String}, {b:String}) AND c.cost IS NOT NULL
        UNION ALL
        SELECT job_id, 'wait_s', wait_s FROM queue_waits WHERE job_id IN ({a:String}, {b:String})
        UNION ALL
        SELECT job_id, 'attempts', toFloat64(count()) FROM attempts WHERE job_id IN ({a:String}, {b:String}) GROUP BY job_id
        UNION ALL
        SELECT job_id, 'failures', toFloat64(count()) FROM failures WHERE job_id IN ({a:String}, {b:String}) GROUP BY job_id
    ) AS r
    GROUP BY r.name
    UNION ALL
    SELECT 'resource' AS part, told.1 AS name, told.2 AS a, told.3 AS b
    FROM (
        SELECT anyOrNullIf(toString(state), job_id = {a:String}) AS state_a, anyOrNullIf(toString(state), job_id = {b:String}) AS state_b,
            anyOrNullIf(toString(world_size), job_id = {a:String}) AS ranks_a, anyOrNullIf(toString(world_size), job_id = {b:String}) AS ranks_b
        FROM job_status WHERE job_id IN ({a:String}, {b:String})
    )
    ARRAY JOIN [('state', state_a, state_b), ('world_size', ranks_a, ranks_b)] AS told
);

-- The curves of one metric of two runs, side by side by step: at most {points} ranges of steps, each with its least, largest and last value, so that
-- extremes stay. Restarts overwrite steps: the newest attempt's value of a step counts.
CREATE OR REPLACE VIEW run_curves AS
SELECT
    width * intDiv(c.step, width) AS step,
    minOrNullIf(c.value, c.job_id = {a:String}) AS a_least, maxOrNullIf(c.value, c.job_id = {a:String}) AS a_most,
    argMaxOrNullIf(c.value, c.step, c.job_id = {a:String}) AS a_last,
    minOrNullIf(c.value, c.job_id = {b:String}) AS b_least, maxOrNullIf(c.value, c.job_id = {b:String}) AS b_most,
    argMaxOrNullIf(c.value, c.step, c.job_id = {b:String}) AS b_last
FROM (
    SELECT s.job_id AS job_id, s.step AS step, argMax(s.value, s.epoch) AS value
    FROM step_metrics AS s
    WHERE s.job_id IN ({a:String}, {b:String}) AND s.metric = {metric:String} AND s.rank = 0
    GROUP BY s.job_id, s.step
) AS c
CROSS JOIN (
    SELECT greatest(toUInt64(1), toUInt64(ceil((max(t.step) + 1) / {points:UInt32}))) AS width
    FROM step_metrics AS t WHERE t.job_id IN ({a:String}, {b:String}) AND t.metric = {metric:String} AND t.rank = 0
) AS w
GROUP BY step;

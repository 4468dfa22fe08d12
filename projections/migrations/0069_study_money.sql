-- What studies cost, and what their best values gained lately: both as the tuner decided. Of facts and statuses of before it has none.
--   cost        of the trial so far, of ended trials in a status; NULL: the study has no price
--   price       of a device's hour, of the facts `priced` and of the status
--   stagnation  figures by which a study ended, or as they are now, as JSON; empty: none
ALTER TABLE study_facts ADD COLUMN IF NOT EXISTS cost Nullable(Float64);
ALTER TABLE study_facts ADD COLUMN IF NOT EXISTS price Nullable(Float64);
ALTER TABLE study_facts ADD COLUMN IF NOT EXISTS currency LowCardinality(String);
ALTER TABLE study_facts ADD COLUMN IF NOT EXISTS pool LowCardinality(String);
ALTER TABLE study_facts ADD COLUMN IF NOT EXISTS policy_version UInt32;
ALTER TABLE study_facts ADD COLUMN IF NOT EXISTS stagnation String CODEC(ZSTD);
ALTER TABLE study_statuses_rows ADD COLUMN IF NOT EXISTS cost Nullable(Float64);
ALTER TABLE study_statuses_rows ADD COLUMN IF NOT EXISTS price Nullable(Float64);
ALTER TABLE study_statuses_rows ADD COLUMN IF NOT EXISTS currency LowCardinality(String);
ALTER TABLE study_statuses_rows ADD COLUMN IF NOT EXISTS stagnation String CODEC(ZSTD);

CREATE OR REPLACE VIEW studies AS
SELECT b.project AS project, b.study AS study, if(s.state = '', 'RUNNING', s.state) AS state, s.reason AS reason, b.user AS user,
    b.metrics AS metrics, b.modes AS modes, JSONExtractString(b.spec, 'sampler', 'name') AS sampler,
    JSONExtractString(b.spec, 'early_stopping', 'name') AS early_stopping, JSONExtract(b.spec, 'parallel', 'UInt32') AS parallel,
    JSONExtract(b.spec, 'budget', 'trials', 'Nullable(UInt32)') AS budget_trials,
    JSONExtract(b.spec, 'budget', 'device_s', 'Nullable(Float64)') AS budget_device_s,
    JSONExtract(b.spec, 'budget', 'wall_s', 'Nullable(Float64)') AS budget_wall_s,
    CAST((s.trial_states, s.trial_counts), 'Map(String, UInt32)') AS trials, s.best AS best, s.best_json AS best_json, s.device_s AS device_s,
    b.spec AS spec, b.spec_sha256 AS spec_sha256, b.created_at AS created_at, if(s.state = '', b.created_at, s.updated_at) AS updated_at,
    JSONExtract(b.spec, 'budget', 'cost', 'Nullable(Float64)') AS budget_cost, s.cost AS cost, s.currency AS currency,
    s.price AS price_per_gpu_hour, JSONExtract(b.spec, 'max_failed', 'UInt32') AS max_failed, s.stagnation AS stagnation_json
FROM (SELECT * FROM studies_rows FINAL) AS b
LEFT JOIN (SELECT * FROM study_statuses_rows FINAL) AS s ON s.project = b.project AND s.study = b.study;

-- By state of its trials, from the facts of each trial alone: no value of theirs is read. A trial that ended early is taken to have saved what
-- the mean complete trial of its study took beyond it.
CREATE OR REPLACE VIEW study_cost AS
SELECT c.project AS project, c.study AS study, c.state AS state, toUInt32(length(c.times)) AS trials, arraySum(c.times) AS device_s,
    if(c.state = 'STOPPED' AND notEmpty(c.whole), arraySum(each -> greatest(0, arrayAvg(c.whole) - each), c.times), NULL) AS saved_device_s,
    if(p.currency = '', NULL, arraySum(c.costs)) AS cost, p.currency AS currency,
    if(c.state = 'STOPPED' AND notEmpty(c.whole) AND p.currency != '',
        arraySum(each -> greatest(0, arrayAvg(c.whole_costs) - each), c.costs), NULL) AS saved_cost,
    toUInt32(arrayCount(each -> each > 0, c.times)) AS ran_trials
FROM (
    SELECT g.project AS project, g.study AS study, of AS state, g.whole AS whole, g.whole_costs AS whole_costs,
        arrayFilter((each, s) -> s = of, g.seconds, g.states) AS times, arrayFilter((each, s) -> s = of, g.amounts, g.states) AS costs
    FROM (
        SELECT t.project AS project, t.study AS study, groupArray(t.state) AS states, groupArray(t.device_s) AS seconds,
            groupArray(t.cost) AS amounts, groupArrayIf(t.device_s, t.state = 'COMPLETE' AND t.device_s > 0) AS whole,
            groupArrayIf(t.cost, t.state = 'COMPLETE' AND t.device_s > 0) AS whole_costs
        FROM (
            SELECT f.project AS project, f.study AS study, f.trial AS trial,
                multiIf(countIf(f.fact = 'trial-ended') > 0, anyIf(f.state, f.fact = 'trial-ended'),
                    countIf(f.fact = 'trial-began') > 0, 'RUNNING', 'WAITING') AS state,
                max(f.device_s) AS device_s, ifNull(max(f.cost), 0) AS cost
            FROM study_facts AS f FINAL
            WHERE f.trial >= 0 AND f.fact IN ('trial-started', 'trial-began', 'trial-ended')
            GROUP BY f.project, f.study, f.trial HAVING countIf(f.fact = 'trial-started') > 0
        ) AS t GROUP BY t.project, t.study
    ) AS g ARRAY JOIN arrayDistinct(g.states) AS of
) AS c
LEFT JOIN (
    SELECT project, study, argMaxIf(q.currency, q.number, q.fact = 'priced') AS currency FROM study_facts AS q FINAL
    WHERE q.fact = 'priced' GROUP BY project, study
) AS p ON p.project = c.project AND p.study = c.study;

-- One row a change of a study's state, or of the price of its devices.
CREATE OR REPLACE VIEW study_changes AS
SELECT f.project AS project, f.study AS study, f.number AS number, f.at AS at, f.fact AS change, f.state AS state, f.reason AS reason,
    f.user AS user, f.request_id AS request_id, f.price AS price_per_gpu_hour, f.currency AS currency, f.pool AS pool,
    f.policy_version AS policy_version, JSONExtract(f.stagnation, 'best', 'Nullable(Float64)') AS best,
    JSONExtract(f.stagnation, 'trial', 'Nullable(UInt32)') AS trial, JSONExtract(f.stagnation, 'gain', 'Nullable(Float64)') AS gain,
    JSONExtract(f.stagnation, 'from_device_s', 'Nullable(Float64)') AS from_device_s,
    JSONExtract(f.stagnation, 'to_device_s', 'Nullable(Float64)') AS to_device_s,
    JSONExtract(f.stagnation, 'gain_rate', 'Nullable(Float64)') AS gain_per_device_s,
    JSONExtract(f.stagnation, 'min_gain', 'Nullable(Float64)') AS min_gain,
    JSONExtract(f.stagnation, 'within_device_s', 'Nullable(Float64)') AS within_device_s
FROM study_facts AS f FINAL
WHERE f.fact IN ('changed', 'priced');

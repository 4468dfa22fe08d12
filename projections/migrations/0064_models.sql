-- What the registry of models decided, one row a decision, for ever: which version was champion at any moment, on what evidence, by whose word.
--   number   counts the decisions about a model from 1; 0: the request was refused, and `request_id` names it
--   other    the champion before (promoted, rolled-back), the successor (archived), the other version (compared); 0: none
--   figures  of an evaluation or a comparison, one entry a metric
CREATE TABLE IF NOT EXISTS model_facts (
    project String,
    name String,
    number UInt32,
    request_id String,
    fact LowCardinality(String),
    at DateTime64(3, 'UTC'),
    version UInt32,
    other UInt32,
    semver String,
    content String,
    job_id String,
    commit UInt64,
    trained_by String,
    data Array(String),
    framework String,
    size_bytes UInt64,
    user String,
    reason String CODEC(ZSTD),
    notes String CODEC(ZSTD),
    tags Map(String, String),
    gate_version UInt64,
    gate String CODEC(ZSTD),
    conditions String CODEC(ZSTD),
    approvers Array(String),
    evaluations Array(String),
    evidence String,
    emergency UInt8,
    evaluation_id String,
    suite LowCardinality(String),
    dataset String,
    split String,
    document String,
    samples UInt64,
    metrics Array(String),
    groups Array(String),
    verdicts Array(String),
    figures Array(Float64),
    lows Array(Nullable(Float64)),
    highs Array(Nullable(Float64)),
    p_values Array(Nullable(Float64)),
    margins Array(Nullable(Float64)),
    source_topic LowCardinality(String),
    source_partition UInt32,
    source_offset UInt64
) ENGINE = ReplacingMergeTree ORDER BY (project, name, number, request_id)
SETTINGS non_replicated_deduplication_window = 1000;

-- No such event is in what the lane has read so far, so no history is to be read again.
INSERT INTO lane_tables (lane, table_name)
SELECT 'facts', 'model_facts'
WHERE (SELECT count() FROM positions WHERE lane = 'facts') > 0;

CREATE OR REPLACE VIEW model_versions AS
SELECT r.project AS project, r.name AS model, r.version AS version, r.semver AS semver,
    multiIf(s.last IN ('promoted', 'rolled-back'), 'champion', s.last = 'archived', 'archived', 'staging') AS stage,
    if(r.project = 'default', concat('model:', r.name, '@', toString(r.version)), concat('model:', r.project, '/', r.name, '@', toString(r.version)))
        AS lineage_id,
    r.content AS content, r.job_id AS job_id, r.commit AS commit, r.trained_by AS trained_by, r.data AS data, r.framework AS framework,
    r.size_bytes AS size_bytes, r.user AS registered_by, r.at AS registered_at, r.reason AS semver_reason, if(s.described, s.new_notes, r.notes) AS notes, if(s.described, s.new_tags, r.tags) AS tags,
    s.evaluated AS evaluations, toUInt8(s.emergency_number > s.reviewed_number) AS emergency
FROM (SELECT * FROM model_facts FINAL WHERE fact = 'registered') AS r
LEFT JOIN (
    SELECT project, name, version, argMaxIf(fact, number, fact IN ('registered', 'promoted', 'archived', 'rolled-back')) AS last,
        countIf(fact = 'described') > 0 AS described, argMaxIf(f.notes, f.number, fact = 'described') AS new_notes,
        argMaxIf(f.tags, f.number, fact = 'described') AS new_tags, countIf(fact = 'evaluated') AS evaluated, maxIf(number, fact = 'promoted' AND emergency = 1) AS emergency_number,
        maxIf(number, fact = 'reviewed') AS reviewed_number
    FROM model_facts AS f FINAL WHERE number > 0 GROUP BY project, name, version
) AS s ON s.project = r.project AND s.name = r.name AND s.version = r.version;

CREATE OR REPLACE VIEW models AS
SELECT project, model, maxIf(version, stage = 'champion') AS champion, anyIf(v.semver, stage = 'champion') AS champion_semver,
    anyIf(v.content, stage = 'champion') AS champion_content, max(version) AS newest, toUInt32(count()) AS versions,
    toUInt32(sum(v.emergency)) AS emergencies, any(g.gate_version) AS gate_version, any(g.gate) AS gate, min(v.registered_at) AS registered_at
FROM model_versions AS v
LEFT JOIN (
    SELECT project, name, argMax(f.gate_version, f.number) AS gate_version, argMax(f.gate, f.number) AS gate
    FROM model_facts AS f FINAL WHERE fact = 'gate' GROUP BY project, name
) AS g ON g.project = v.project AND g.name = v.model
GROUP BY project, model;

-- The stage of each version at a moment, with the decision that put it there.
CREATE OR REPLACE VIEW model_stage_at AS
SELECT project, model, version, semver, multiIf(last.1 IN ('promoted', 'rolled-back'), 'champion', last.1 = 'archived', 'archived', 'staging') AS stage,
    last.2 AS since, last.3 AS decided_by, last.4 AS reason, last.5 AS gate_version, last.6 AS approvers, last.7 AS evaluations,
    last.8 AS evidence, last.9 AS emergency, last.10 AS conditions
FROM (
    SELECT project, name AS model, version, anyIf(r.semver, fact = 'registered') AS semver,
        argMax((r.fact, r.at, r.user, r.reason, r.gate_version, r.approvers, r.evaluations, r.evidence, r.emergency, r.conditions), r.number) AS last
    FROM model_facts AS r FINAL
    WHERE number > 0 AND r.at <= {at:DateTime64(3, 'UTC')} AND fact IN ('registered', 'promoted', 'archived', 'rolled-back')
    GROUP BY project, name, version
);

CREATE OR REPLACE VIEW model_evaluations AS
SELECT project, name AS model, version, evaluation_id, suite, dataset, split, samples, metric, value, low, high, document, user AS recorded_by,
    at AS recorded_at
FROM model_facts FINAL
ARRAY JOIN metrics AS metric, figures AS value, lows AS low, highs AS high
WHERE fact = 'evaluated';

CREATE OR REPLACE VIEW model_comparisons AS
SELECT project, name AS model, version, other AS against, evaluation_id, suite, samples, metric, group, verdict, difference, low, high, p_value, margin,
    user AS recorded_by, at AS recorded_at
FROM model_facts FINAL
ARRAY JOIN metrics AS metric, groups AS group, verdicts AS verdict, figures AS difference, lows AS low, highs AS high, p_values AS p_value, margins AS margin
WHERE fact = 'compared';

-- A word counts until that person gives another one, or evidence is new, or the version is archived by a person.
CREATE OR REPLACE VIEW model_approvals AS
SELECT a.project AS project, a.name AS model, a.version AS version, a.user AS user, toUInt8(a.fact = 'approved') AS approved, a.reason AS reason,
    a.evidence AS evidence, a.at AS at, toUInt8(a.number > n.evidence AND a.number = l.last) AS counts
FROM (SELECT * FROM model_facts FINAL WHERE fact IN ('approved', 'rejected')) AS a
LEFT JOIN (
    SELECT project, name, version, max(number) AS evidence FROM model_facts FINAL
    WHERE fact IN ('evaluated', 'compared') OR (fact = 'archived' AND other = 0)
    GROUP BY project, name, version
) AS n ON n.project = a.project AND n.name = a.name AND n.version = a.version
LEFT JOIN (
    SELECT project, name, version, user, max(number) AS last FROM model_facts FINAL WHERE fact IN ('approved', 'rejected')
    GROUP BY project, name, version, user
) AS l ON l.project = a.project AND l.name = a.name AND l.version = a.version AND l.user = a.user;

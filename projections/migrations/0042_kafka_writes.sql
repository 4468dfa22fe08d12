-- Records that were written to trainhouse.jobs or a project's topic directly, and what intake decided. From the tables that have them: the
-- events of trainhouse.jobs, what the directory made of those of projects' topics, refusals, dead letters. What a gateway passed on is not
-- here: its own row of the audit tells it, by the same event id.
CREATE OR REPLACE VIEW kafka_writes AS
WITH
    letters AS (
        SELECT topic, partition, offset, reason, job_id, event_id, time,
            if(topic = 'trainhouse.jobs', '', substring(topic, length('trainhouse.jobs.') + 1)) AS project,
            concat(topic, '-', toString(partition), '-', toString(offset)) AS record
        FROM dead_letters_rows FINAL
        WHERE seen_by = 'intake' AND (topic = 'trainhouse.jobs' OR startsWith(topic, 'trainhouse.jobs.'))
    ),
    written AS (
        SELECT job_id, event_id, time, type, subject, json, source_partition, source_offset
        FROM events_rows WHERE source_topic = 'trainhouse.jobs' ORDER BY version DESC LIMIT 1 BY job_id, event_id
    ),
    forwarded AS (
        SELECT job_id, time, type, subject, json,
            if(type = 'trainhouse.job.admitted.v1', JSONExtractString(json, 'submission_id'), event_id) AS asked_id
        FROM events_rows
        WHERE source_topic = 'trainhouse.control' AND (
            (type = 'trainhouse.job.admitted.v1' AND startsWith(
                JSONExtractString(json, 'submission_id'), concat(JSONExtractString(json, 'spec', 'project'), '/')))
            OR JSONExtractString(json, 'requested_by', 'via') = 'project'
        )
        ORDER BY version DESC LIMIT 1 BY job_id, event_id
    )
SELECT w.time AS at, w.event_id AS event_id, if(r.found OR l.found, 'refused', 'accepted') AS decided, w.type AS type, w.job_id AS job_id,
    w.subject AS subject, JSONExtractString(w.json, 'spec', 'project') AS project,
    multiIf(
        JSONExtractString(w.json, 'requested_by', 'name') != '', JSONExtractString(w.json, 'requested_by', 'name'),
        JSONExtractString(w.json, 'user') != '', JSONExtractString(w.json, 'user'),
        JSONExtractString(w.json, 'spec', 'user')
    ) AS requested_by,
    multiIf(l.found, l.reason, r.found, r.reason, 'operators and gateways write this topic: the name is what the record says') AS reason,
    'trainhouse.jobs' AS topic, w.source_partition AS partition, toNullable(w.source_offset) AS offset
FROM written AS w
LEFT JOIN (SELECT submission_id, reason, toUInt8(1) AS found FROM rejections_rows FINAL) AS r ON r.submission_id = w.event_id
LEFT JOIN (SELECT partition, offset, reason, toUInt8(1) AS found FROM letters WHERE topic = 'trainhouse.jobs') AS l
    ON l.partition = w.source_partition AND l.offset = w.source_offset
WHERE w.event_id NOT IN (SELECT passed_on_id FROM audit_rows WHERE kind = 'accepted' AND topic = 'trainhouse.jobs')
UNION ALL
SELECT time, event_id, 'refused', '', job_id, job_id, project, '', reason, topic, partition, toNullable(offset) FROM letters
WHERE topic != 'trainhouse.jobs' OR (partition, offset) NOT IN (SELECT source_partition, source_offset FROM written)
UNION ALL
SELECT time, asked_id, 'accepted', type, job_id, subject, splitByChar('/', asked_id)[1],
    if(type = 'trainhouse.job.admitted.v1', JSONExtractString(json, 'spec', 'user'), JSONExtractString(json, 'requested_by', 'name')),
    'the project that may write this topic vouches for the name', concat('trainhouse.jobs.', splitByChar('/', asked_id)[1]), 0, NULL
FROM forwarded WHERE asked_id NOT IN (SELECT event_id FROM written)
UNION ALL
SELECT rejected_at, submission_id, 'refused', '', job_id, job_id, splitByChar('/', submission_id)[1], '', reason,
    concat('trainhouse.jobs.', splitByChar('/', submission_id)[1]), 0, NULL
FROM rejections_rows FINAL
WHERE position(submission_id, '/') > 1 AND submission_id NOT IN (SELECT event_id FROM written)
    AND submission_id NOT IN (SELECT concat(project, '/', event_id) FROM letters)
    AND submission_id NOT IN (SELECT concat(project, '/', record) FROM letters);

CREATE OR REPLACE VIEW audit AS SELECT
    at, event_id, kind, status, count, since, action, target, project, sub, token_id, address, reason, done_by, topic, passed_on_id,
    roles, projects, expires_at, access, access_id, session_id, rows, bytes, took_ms, text, text_sha256,
    sub AS user,
    target AS resource,
    multiIf(kind = 'refused' OR status >= 400, 'refused', kind = 'lost', 'lost', 'allowed') AS outcome,
    source_topic, source_partition, source_offset,
    node_id, job_id, attempt, ranks, exit_code,
    multiIf(
        source_topic != 'trainhouse.node-audit', '',
        signed_by = '', 'unsigned',
        (toString(node_id), toString(signed_by)) IN (SELECT node_id, public_key FROM node_keys_rows FINAL), 'node',
        'another key'
    ) AS vouched
FROM audit_rows FINAL
UNION ALL
SELECT
    at, event_id, decided AS kind, CAST(NULL, 'Nullable(UInt32)') AS status, toUInt64(1) AS count, at AS since, type AS action,
    if(job_id != '', job_id, subject) AS target, project, requested_by AS sub, '' AS token_id, '' AS address, reason, '' AS done_by, topic,
    event_id AS passed_on_id, CAST([], 'Array(String)') AS roles, CAST([], 'Array(String)') AS projects,
    CAST(NULL, 'Nullable(DateTime64(3, \'UTC\'))') AS expires_at, 'kafka' AS access, '' AS access_id, '' AS session_id,
    CAST(NULL, 'Nullable(UInt64)') AS rows, toUInt64(0) AS bytes, CAST(NULL, 'Nullable(UInt64)') AS took_ms, '' AS text, '' AS text_sha256,
    requested_by AS user,
    if(job_id != '', job_id, subject) AS resource,
    if(decided = 'refused', 'refused', 'allowed') AS outcome,
    topic AS source_topic, partition AS source_partition, ifNull(offset, 0) AS source_offset,
    '' AS node_id, job_id, CAST(NULL, 'Nullable(UInt32)') AS attempt, CAST([], 'Array(UInt32)') AS ranks,
    CAST(NULL, 'Nullable(Int32)') AS exit_code, '' AS vouched
FROM kafka_writes;

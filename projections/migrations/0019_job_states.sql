-- When each job entered each state: what `statuses_rows` says with every step of progress, without the repeats. A running job's statuses repeat
-- RUNNING with each step, and RUNNING is entered once an attempt: those are one row (turn 0), all others stand by themselves. So 10,000 jobs
-- with a million statuses are some 60,000 rows here, and the states of all jobs at any past moment are one small scan.
-- Both aggregates are least values, so a repeat changes nothing. Ordered by job: its story is one range on disk.
CREATE TABLE IF NOT EXISTS job_states_rows (
    job_id String,
    attempt UInt32,
    state LowCardinality(String),
    turn UInt64,
    at SimpleAggregateFunction(min, DateTime64(3, 'UTC')) CODEC(Delta, ZSTD),
    entered SimpleAggregateFunction(min, Tuple(status_seq UInt64, reason String, restarts UInt32))
) ENGINE = AggregatingMergeTree ORDER BY (job_id, attempt, state, turn)
SETTINGS non_replicated_deduplication_window = 1000;

CREATE MATERIALIZED VIEW IF NOT EXISTS job_states_of_statuses TO job_states_rows AS
SELECT job_id, attempt, state, if(s.state = 'RUNNING', 0, s.status_seq) AS turn, min(s.at) AS at,
    min(CAST((s.status_seq, s.reason, s.restarts), 'Tuple(status_seq UInt64, reason String, restarts UInt32)')) AS entered
FROM statuses_rows AS s
GROUP BY job_id, attempt, state, turn;

INSERT INTO job_states_rows
SELECT job_id, attempt, state, if(s.state = 'RUNNING', 0, s.status_seq) AS turn, min(s.at) AS at,
    min(CAST((s.status_seq, s.reason, s.restarts), 'Tuple(status_seq UInt64, reason String, restarts UInt32)')) AS entered
FROM statuses_rows AS s
GROUP BY job_id, attempt, state, turn;

-- One row a state that a job was in, from when to when. A state that is told again with another reason is the same one, with the newest reason.
CREATE OR REPLACE VIEW job_spans AS
WITH entered AS (
    SELECT r.job_id AS job_id, r.attempt AS attempt, r.state AS state, min(r.at) AS at, min(r.entered) AS first
    FROM job_states_rows AS r GROUP BY r.job_id, r.attempt, r.state, r.turn
),
marked AS (
    SELECT *, first.1 AS seq, lagInFrame((state, attempt), 1, ('', 0)) OVER before != (state, attempt) AS begins
    FROM entered
    WINDOW before AS (PARTITION BY job_id ORDER BY first.1 ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
),
numbered AS (
    SELECT *, sum(begins) OVER (PARTITION BY job_id ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS span FROM marked
),
spans AS (
    SELECT n.job_id AS job_id, n.span AS span, any(n.attempt) AS attempt, any(n.state) AS state, toDateTime64(min(n.at), 3, 'UTC') AS began_at,
        argMax(n.first.2, n.seq) AS reason
    FROM numbered AS n GROUP BY n.job_id, n.span
)
SELECT job_id, attempt, state, reason, began_at,
    leadInFrame(toNullable(began_at), 1, NULL) OVER
        (PARTITION BY job_id ORDER BY span ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS ended_at
FROM spans;

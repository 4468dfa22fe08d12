"""A large fleet and many jobs, written as rows of the real tables by one statement each: what the pages must stay fluid with.

Holds: every figure follows from a row's number, so that a test can name what it expects.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.support.tables.alert_tables import Tables
from trainhouse.projections.store.rollups import roll_up

DEVICES_A_NODE = 8
STATES = ("SUCCEEDED", "SUCCEEDED", "SUCCEEDED", "FAILED", "RUNNING", "CANCELLED", "PENDING", "SUCCEEDED")
"""The state of bulk job n is STATES[n % 8]."""
SWEEP = 50


@dataclass(frozen=True)
class Size:
    """How much of everything."""

    nodes: int = 40
    jobs: int = 400
    long_curve: int = 20_000
    long_runs: int = 0
    long_points: int = 1_000_000
    """Runs `long-000` and on, each with a curve of so many points."""


def fill(tables: Tables, size: Size) -> None:
    """Nodes with gangs, jobs in all states, a sweep of runs to compare, one very long curve, logs."""
    run = tables.clickhouse.command
    _fleet(tables, size.nodes)
    run(_jobs(size.jobs))
    run(_WAITING)
    _sweep(tables)
    run(_LONG.format(points=size.long_curve))
    if size.long_runs:
        run(_LONG_JOBS.format(runs=size.long_runs, points=size.long_points))
    for number in range(size.long_runs):
        run(_LONG_CURVES.format(number=number, points=size.long_points))
    roll_up(tables.clickhouse, "1")  # as the projector does batch by batch


def _fleet(tables: Tables, nodes: int) -> None:
    run = tables.clickhouse.command
    for fact, seconds in (("registered", 86_400), ("beat", 2)):
        run(_NODES.format(fact=fact, ago=seconds, nodes=nodes, devices=DEVICES_A_NODE))
    run(_LOST)
    run(_CLOSED)
    run(_DEVICES.format(devices=nodes * DEVICES_A_NODE, per=DEVICES_A_NODE))
    run(_GANGS.format(nodes=nodes, per=DEVICES_A_NODE))
    run(_HOURS.format(nodes=nodes, per=DEVICES_A_NODE))


def _jobs(count: int) -> str:
    states = "[" + ",".join(f"'{s}'" for s in STATES) + "]"
    return f"""
INSERT INTO jobs_rows (job_key, version, job_id, name, project, team, user, pool, priority, state, reason, attempt, epoch, restarts,
    world_size, node_ids, step, total_steps, loss, learning_rate, steps_per_s, samples_per_s, elapsed_s, submitted_at, allocated_at,
    started_at, finished_at, updated_at, spec_sha256)
SELECT concat('bulk-', leftPad(toString(number), 5, '0')) AS id, 5, id,
    concat(['llama-8b', 'vit-large', 'whisper', 'gpt-tiny', 'bert-base'][number % 5 + 1], '-', toString(number)),
    ['research', 'speech', 'default'][number % 3 + 1], ['vision', 'speech', 'language', 'platform'][number % 4 + 1],
    ['ada', 'grace', 'alan', 'edsger', 'barbara'][number % 5 + 1], if(number % 4 = 0, 'h100', 'a100'), 50,
    {states}[number % 8 + 1] AS s, if(s = 'FAILED', 'rank 3 ended with code 1: CUDA out of memory', ''), 0, 1, 0,
    [8, 16, 1, 64][number % 4 + 1], [], if(s = 'PENDING', NULL, (number * 37) % 1000), 1000,
    if(s = 'PENDING', NULL, 2 + (number % 100) / 50), 0.0003, 2.5, 640, (number % 300) * 60,
    now64(3) - number * 60 AS at, if(s = 'PENDING', NULL, at + 30), if(s = 'PENDING', NULL, at + 60),
    if(s IN ('RUNNING', 'PENDING'), NULL, at + (number % 300) * 60), at + 90, 'a'
FROM numbers({count})"""


_WAITING = """
INSERT INTO explanations_rows (job_id, at, pool, team, place, waiting, waiting_since, needs, obstacle, text, unblock, score, eta, eta_from)
SELECT job_id, now64(3) - 5, pool, team, rowNumberInAllBlocks() + 1, 60, submitted_at, concat(toString(world_size), ' devices'), 'NO_ROOM',
    concat('needs ', toString(world_size), ' devices of ', pool, ' at once; the most that come free together are 4'),
    ['a smaller gang', 'another pool'], 50, now64(3) + 600, 'limits of run time'
FROM jobs_rows WHERE state = 'PENDING' ORDER BY submitted_at"""

_NODES = """
INSERT INTO node_facts (node_id, fact, version, at, boot_id, pool, address, device_type, devices, cpus, memory_bytes, labels, ranks_running)
SELECT concat('node-', leftPad(toString(number), 4, '0')), '{fact}', 1, now64(3) - {ago}, 'b', if(number % 4 = 0, 'h100', 'a100') AS p,
    concat('10.0.', toString(intDiv(number, 250)), '.', toString(number % 250)), upper(p), {devices}, 96, 1099511627776,
    map('rack', concat('r', toString(intDiv(number, 8)))), if(number % 3 = 0, 0, {devices})
FROM numbers({nodes})"""

_LOST = """
INSERT INTO node_facts (node_id, fact, version, at, pool, reason, silent_s)
SELECT node_id, if(n % 2 = 0, 'lost', 'suspected'), 1, now64(3), pool, 'no heartbeat for 15 s', 15
FROM (SELECT node_id, pool, toUInt32(substring(node_id, 6)) AS n FROM node_facts WHERE fact = 'registered')
WHERE n % 19 = 7 OR n % 38 = 8"""

_CLOSED = """
INSERT INTO node_restrictions_rows (node_id, version, pool, restriction, reason, restricted_by, restricted_at)
SELECT node_id, 1, pool, 'CORDONED', 'fans are noisy', 'ada', now64(3) - 3600
FROM node_facts WHERE fact = 'registered' AND toUInt32(substring(node_id, 6)) % 23 = 9"""

_DEVICES = """
INSERT INTO device_facts (node_id, device_id, fact, version, at, pool, device_index, device_type, memory_bytes, utilization_pct,
    memory_used_bytes, temperature_c, power_w, job_id, epoch, rank)
SELECT concat('node-', leftPad(toString(intDiv(number, {per})), 4, '0')) AS node,
    concat(node, ':gpu', toString(number % {per})), f, 1, if(f = 'beat', now64(3), now64(3) - 86400), 'a100', number % {per}, 'H100',
    85899345920, 40 + number % 60, 42949672960, 50 + number % 30, 300 + number % 300, '', NULL, NULL
FROM numbers({devices}) ARRAY JOIN ['registered', 'beat'] AS f"""

# Two of three nodes hold a gang: of a running job, or of one that starts or saves.
_GANGS = """
INSERT INTO attempt_facts (job_id, epoch, attempt, fact, node_id, rank, pool, at, first_rank, device_ids, world_size)
SELECT concat('bulk-', leftPad(toString((number % 40) * 8 + 4), 5, '0')), 1, 0, f,
    concat('node-', leftPad(toString(number), 4, '0')) AS node, -1, if(number % 4 = 0, 'h100', 'a100'), now64(3) - 3500 + number, 0,
    if(f = 'allocated', arrayMap(i -> concat(node, ':gpu', toString(i)), range({per} - number % 3)), []), 8
FROM numbers({nodes}) ARRAY JOIN ['allocated', 'started'] AS f WHERE number % 3 != 0"""

# An hour and a minute: in the last minute of an hour, sixty of them would be one hour alone.
_HOURS = """
INSERT INTO node_minutes_rows (minute, node_id, pool, devices, devices_held, utilization, last_at)
SELECT toStartOfMinute(now64(3)) - m * 60, concat('node-', leftPad(toString(number), 4, '0')), if(number % 4 = 0, 'h100', 'a100'), {per},
    {per}, map(toUInt32(10), 55. + (number * 7 + m) % 40), toStartOfMinute(now64(3)) - m * 60
FROM numbers({nodes}) ARRAY JOIN range(0, 61) AS m"""

_LONG = """
INSERT INTO step_metrics (job_id, metric, epoch, attempt, rank, step, time, value, node_id)
SELECT 'bulk-00004', 'loss', 1, 0, 0, number, now64(3) - 7200 + number / 1000, 2 + 3 / (1 + number / 5000) + sin(number / 700) / 9
    + if(number = 7777, 90, 0), 'node-0001'
FROM numbers({points})"""


_LONG_JOBS = """
INSERT INTO jobs_rows (job_key, version, job_id, name, project, team, user, pool, priority, state,
    attempt, epoch, world_size, step, total_steps, loss, steps_per_s, elapsed_s, submitted_at, started_at, finished_at, updated_at)
SELECT concat('long-', leftPad(toString(number), 3, '0')) AS id, 5, id, id, 'research', 'language', 'ada', 'a100', 50, 'SUCCEEDED',
    0, 1, 1, {points}, {points}, 2, 100, {points} / 100, now64(3) - 30000 + number, now64(3) - 29990, now64(3) - 100, now64(3) - 100
FROM numbers({runs})"""

# One value in a million is a spike, at another step of each run.
_LONG_CURVES = """
INSERT INTO step_metrics (job_id, metric, epoch, attempt, rank, step, time, value, node_id)
SELECT concat('long-', leftPad(toString({number}), 3, '0')), 'loss', 1, 0, 0, number, now64(3) - 29990 + number / 100,
    2 + {number} / 50 + 3 / (1 + number / 50000) + sin(number / 7000 + {number}) / 9 + randCanonical() / 5
    + if(number = 7777 + {number}, 90, 0), 'node-0001'
FROM numbers({points})"""


def _sweep(tables: Tables) -> None:
    """SWEEP runs of one program with another learning rate and width each, their specs as admitted, and their curves."""
    run = tables.clickhouse.command
    run(_SWEEP_JOBS.format(n=SWEEP))
    run(_SWEEP_SPECS)
    run(_SWEEP_CURVES)


_SWEEP_JOBS = """
INSERT INTO jobs_rows (job_key, version, job_id, name, project, team, user, pool, priority, state,
    attempt, epoch, world_size, step, total_steps, loss, steps_per_s, elapsed_s, submitted_at, started_at, finished_at, updated_at)
SELECT concat('sweep-', leftPad(toString(number), 2, '0')) AS id, 5, id, id, 'research', 'language', 'ada', 'a100', 50, 'SUCCEEDED',
    0, 1, 1, 400, 400, 1.5 + number / 40, 5 + number % 7, 80 + number,
    now64(3) - 20000 + number, now64(3) - 19990, now64(3) - 19900, now64(3) - 19900
FROM numbers({n})"""

_SWEEP_SPECS = """
INSERT INTO job_specs_rows (job_id, version, spec_sha256, submitted_at, config, json)
SELECT job_id, 1, 'a', submitted_at, map('name', name),
    concat('{"name":"', name, '","gang":{"ranks":1},"hyperparameters":{"lr":', toString(round(0.0001 * (1 + n), 6)),
        ',"width":', toString(64 * (1 + n % 4)), ',"seed":1}}')
FROM (SELECT *, toUInt32(substring(job_id, 7)) AS n FROM jobs_rows WHERE startsWith(job_id, 'sweep-'))"""

_SWEEP_CURVES = """
INSERT INTO step_metrics (job_id, metric, epoch, attempt, rank, step, time, value, node_id)
SELECT job_id, m, 1, 0, 0, step, submitted_at + 10 + step / 5,
    if(m = 'loss', loss + 3 / (1 + step / 20) + sin(step / 9) / 20, 200 + (step * 13) % 40), 'node-0002'
FROM (SELECT job_id, submitted_at, loss FROM jobs_rows WHERE startsWith(job_id, 'sweep-'))
ARRAY JOIN range(400) AS step ARRAY JOIN ['loss', 'samples_per_s'] AS m"""

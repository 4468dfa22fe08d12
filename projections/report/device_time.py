"""Allocated device time by cause, as SQL: every moment of every device that a gang held belongs to one cause.

Why not by the view gpu_seconds: the ledger counts whole hours up to the clock's now, and an attempt that runs up to there; a report cuts
anywhere, at its own now, and counts such an attempt up to its last step. The ledger also has each wait where it was, and tells hangs and
held devices without ranks from what is not known. So the two do not give the same shares.
Holds: the causes of a piece add up to the device time that was allocated in it.

An attempt's time on a node, [allocated, freed), is cut at three moments: training begins (one mean step before its first step was
logged), its last kept step, its last step. A step is kept unless a later attempt of the job began at or before it, or the job ended
without success and no checkpoint holds it; the steps of an attempt count as equally long. What the ranks waited for data, or were held
up by saves, is known as a sum of the attempt alone: it is taken out of its stepping time evenly.
"""

from trainhouse.projections.report.period import Period
from trainhouse.projections.report.queries import SINCE, UNTIL, Question, bind

CAUSES = ("KEPT", "REWORK", "STARTING", "DATA_WAIT", "SAVE_STALL", "ENDING", "UNMEASURED")
"""UNMEASURED: of jobs that never logged a step. ENDING: from an attempt's last step until its devices were free."""

# An allocation whose end nobody reported (its node is gone) ends when its job's next one begins, or the job does, or now.
_ATTEMPTS = """
held AS (
    SELECT a.job_id AS job_id, a.epoch AS epoch, a.node_id AS node_id, a.devices AS devices, a.allocated_at AS allocated_at,
        least(ifNull(a.freed_at, {now}), ifNull(n.allocated_at, {now}), ifNull(j.finished_at, {now}), {now}) AS ended_at,
        a.freed_at IS NULL AND n.allocated_at IS NULL AND j.finished_at IS NULL AS open
    FROM (SELECT job_id, epoch, node_id, devices, assumeNotNull(allocated_at) AS allocated_at, freed_at FROM allocations
          WHERE allocated_at < {until} AND ({{pool:String}} = '' OR pool = {{pool:String}})) AS a
    ASOF LEFT JOIN (SELECT job_id, epoch, toNullable(min(at)) AS allocated_at FROM attempt_facts WHERE fact = 'allocated'
                    GROUP BY job_id, epoch) AS n ON n.job_id = a.job_id AND a.epoch < n.epoch
    LEFT JOIN (SELECT job_id, finished_at FROM jobs WHERE state != 'REJECTED') AS j ON j.job_id = a.job_id
    WHERE ended_at > {since}
),
saved AS (
    SELECT job_id, max(step) AS step FROM checkpoints WHERE job_id IN (SELECT job_id FROM held) GROUP BY job_id
),
spans AS (
    SELECT t.job_id AS job_id, t.epoch AS epoch, t.first_step AS first_step, t.last_step AS last_step,
        t.first_step_at AS first_at, t.last_step_at AS last_at,
        least(if(count() OVER later > 0, min(t.first_step) OVER later, {never}),
              if(j.state IN ('FAILED', 'CANCELLED'), c.step, {never})) AS lost_from
    FROM attempt_steps AS t
    LEFT JOIN saved AS c ON c.job_id = t.job_id
    LEFT JOIN (SELECT job_id, state FROM jobs WHERE state != 'REJECTED') AS j ON j.job_id = t.job_id
    WHERE t.job_id IN (SELECT job_id FROM held)
    WINDOW later AS (PARTITION BY t.job_id ORDER BY t.epoch ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING)
),
bounds AS (
    SELECT job_id, epoch, 1 AS known, first_at, last_at,
        if(last_step > first_step, dateDiff('millisecond', first_at, last_at) / (last_step - first_step), 0) AS mean_ms,
        multiIf(lost_from > last_step, toUnixTimestamp64Milli(last_at), lost_from <= first_step, 0,
                toUnixTimestamp64Milli(first_at) + toInt64(mean_ms * (lost_from - 1 - first_step))) AS kept_ms
    FROM spans
),
waits AS (
    SELECT job_id, epoch, sum(data_wait_s) AS data_wait_s, sum(save_stall_s) AS save_stall_s
    FROM ranks WHERE job_id IN (SELECT job_id FROM held) GROUP BY job_id, epoch
),
cut AS (
    SELECT h.job_id AS job_id, h.epoch AS epoch, h.node_id AS node_id, h.devices AS devices,
        toUnixTimestamp64Milli(h.allocated_at) AS a,
        greatest(a, toUnixTimestamp64Milli(if(h.open AND b.known, least(h.ended_at, b.last_at), h.ended_at))) AS e,
        if(b.known = 0, e, least(e, greatest(a, toUnixTimestamp64Milli(b.first_at) - toInt64(b.mean_ms)))) AS began,
        if(b.known = 0, e, least(e, greatest(began, toUnixTimestamp64Milli(b.last_at)))) AS stepped,
        if(b.known = 0, e, least(stepped, greatest(began, b.kept_ms))) AS kept,
        h.job_id IN (SELECT job_id FROM spans) AS measured,
        ifNull(w.data_wait_s, 0) AS data_wait_s, ifNull(w.save_stall_s, 0) AS save_stall_s
    FROM held AS h
    LEFT JOIN bounds AS b ON b.job_id = h.job_id AND b.epoch = h.epoch
    LEFT JOIN waits AS w ON w.job_id = h.job_id AND w.epoch = h.epoch
),
shares AS (
    SELECT *, sum(devices * (stepped - began)) OVER (PARTITION BY job_id, epoch) / 1000 AS stepping_s,
        if(stepping_s > 0, least(1, data_wait_s / stepping_s), 0) AS data_share,
        if(stepping_s > 0, least(1 - data_share, save_stall_s / stepping_s), 0) AS save_share
    FROM cut
),
parts AS (
    SELECT *, arrayJoin([
        (if(measured, 'STARTING', 'UNMEASURED'), a, began, 1.),
        ('KEPT', began, kept, 1. - data_share - save_share), ('REWORK', kept, stepped, 1. - data_share - save_share),
        ('DATA_WAIT', began, stepped, data_share), ('SAVE_STALL', began, stepped, save_share), ('ENDING', stepped, e, 1.)
    ]) AS part
    FROM shares
)
"""
_NEVER = 2**63


def device_time(period: Period, now_ms: int) -> Question:
    """(piece, cause, device_s, node_s): device-seconds, and the same as shares of whole nodes. `now_ms`: where open ends are cut."""
    clauses = _ATTEMPTS.format(since=SINCE, until=UNTIL, now="fromUnixTimestamp64Milli({now_ms:Int64}, 'UTC')", never=_NEVER)
    begin = "greatest(p.part.2, {since_ms:Int64} + piece * {piece_ms:Int64})"
    end = "least(p.part.3, {since_ms:Int64} + (piece + 1) * {piece_ms:Int64}, {until_ms:Int64})"
    sql = (
        f"WITH {clauses} SELECT piece, p.part.1 AS cause, sum(p.devices * p.part.4 * greatest(0, {end} - {begin})) / 1000 AS device_s, "
        f"sum(p.devices / greatest(p.devices, n.devices) * p.part.4 * greatest(0, {end} - {begin})) / 1000 AS node_s "
        "FROM (SELECT *, arrayJoin(range({pieces:UInt32})) AS piece FROM parts) AS p LEFT JOIN nodes AS n ON n.node_id = p.node_id "
        "GROUP BY piece, cause HAVING device_s > 0 ORDER BY piece, cause"
    )
    return bind(period, sql, now_ms=now_ms, pieces=period.pieces)

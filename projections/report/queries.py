"""Queries of the report, as SQL with bound values: one function a query, each for one Period.

Holds: times are clipped to the period; every answer is bounded and in a stated order; `piece` counts a period's pieces from 0.
Never: asks anything (`loader` does).
"""

from typing import Any

from trainhouse.projections.report.period import Period

Question = tuple[str, dict[str, Any]]
"""SQL, and its bound values by name."""

TOP = 10
FIT = "fromUnixTimestamp64Milli({%s:Int64}, 'UTC')"
SINCE, UNTIL = FIT % "since_ms", FIT % "until_ms"


def bind(period: Period, sql: str, **more: Any) -> Question:
    """The question with the period's values."""
    values = {"since_ms": period.since_ms, "until_ms": period.until_ms, "pool": period.pool or "", "piece_ms": period.piece_ms}
    return sql, {name: value for name, value in (values | more).items() if f"{{{name}:" in sql}


def within(moment: str, pool: str = "pool") -> str:
    """The condition that a moment is in the period, and the row of its pool; `pool` "" asks nothing of pools."""
    own = f" AND ({{pool:String}} = '' OR {pool} = {{pool:String}})" if pool else ""
    return f"{moment} >= {SINCE} AND {moment} < {UNTIL}{own}"


OF_POOL = "({pool:String} = '' OR job_id IN (SELECT job_id FROM jobs WHERE pool = {pool:String}))"
RECOVERY = """
    count() AS failures, uniqExact(job_id) AS jobs, countIf(recovered_at IS NOT NULL) AS recovered,
    countIf(recovered_by = 'STATUS') AS by_status,
    if(recovered > 0, quantileExactInclusive(0.5)(recovery_s), NULL) AS p50_s,
    if(recovered > 0, quantileExactHigh(0.95)(recovery_s), NULL) AS p95_s,
    max(recovery_s) AS worst_s, sum(lost_steps) AS lost_steps
"""


def failures(period: Period) -> Question:
    """Failed attempts of each category and, as category '', of all: how many, of how many jobs, and the times to recover."""
    where = within("failed_at")
    return bind(
        period,
        f"SELECT category, {RECOVERY} FROM failures WHERE {where} GROUP BY category ORDER BY failures DESC, category "
        f"UNION ALL SELECT '' AS category, {RECOVERY} FROM failures WHERE {where} HAVING failures > 0",
    )


def failures_by_rule(period: Period) -> Question:
    """Returns failures by deciding rule, most often first: rule, category, failures, jobs, the newest summary."""
    return bind(
        period,
        "SELECT rule, category, count() AS failures, uniqExact(job_id) AS jobs, argMax(summary, failed_at) AS newest "
        f"FROM failures WHERE {within('failed_at')} GROUP BY rule, category ORDER BY failures DESC, rule, category LIMIT {TOP}",
    )


def failures_by_team(period: Period) -> Question:
    """Returns failures by team: team, failures, jobs, those that are known to be the job's own fault."""
    return bind(
        period,
        "SELECT team, count() AS failures, uniqExact(job_id) AS jobs, countIf(mine OR category = 'USER_CODE') AS own "
        f"FROM failures WHERE {within('failed_at')} GROUP BY team ORDER BY failures DESC, team LIMIT {TOP}",
    )


def failures_by_job(period: Period) -> Question:
    """The jobs whose attempts failed most: job, name, team, failures, the rule of the newest, its state now."""
    return bind(
        period,
        "SELECT f.job_id AS job_id, any(f.name) AS name, any(f.team) AS team, count() AS failures, argMax(f.rule, f.failed_at) AS rule, "
        "argMax(f.category, f.failed_at) AS category, any(j.state) AS state "
        f"FROM failures AS f LEFT JOIN jobs AS j ON j.job_id = f.job_id WHERE {within('f.failed_at', 'f.pool')} "
        f"GROUP BY f.job_id ORDER BY failures DESC, f.job_id LIMIT {TOP}",
    )


def failures_over_time(period: Period) -> Question:
    """Failures of each category in each piece of the period."""
    piece = "toUInt32(intDiv(toUnixTimestamp64Milli(failed_at) - {since_ms:Int64}, {piece_ms:Int64}))"
    return bind(
        period,
        f"SELECT {piece} AS piece, category, count() AS failures FROM failures WHERE {within('failed_at')} "
        "GROUP BY piece, category ORDER BY piece, category",
    )


def unjudged(period: Period) -> Question:
    """Attempts that a rank left by itself with an error, and of which no verdict says why. 75: asked to save and leave."""
    return bind(
        period,
        "SELECT count() AS attempts FROM (SELECT job_id, epoch, min(at) AS failed_at, any(pool) AS pool FROM attempt_facts AS a FINAL "
        "WHERE fact = 'exited' AND exit_code IS NOT NULL AND exit_code NOT IN (0, 75) GROUP BY job_id, epoch) "
        f"WHERE {within('failed_at')} AND (job_id, epoch) NOT IN (SELECT job_id, epoch FROM failures)",
    )


def checkpoints(period: Period) -> Question:
    """Saves: how many became checkpoints and how many failed, how long they took, and what restores found."""
    at = within("at", "")
    return bind(
        period,
        "SELECT countIf(fact = 'completed') AS completed, countIf(fact = 'failed') AS failed, countIf(fact = 'restored') AS restored, "
        "countIf(fact = 'restored' AND reason != '') AS damaged, sumIf(bytes_new, fact = 'completed') AS bytes_new, "
        "if(completed > 0, quantileExactInclusiveIf(0.5)(stage_s, fact = 'completed'), NULL) AS stage_p50_s, "
        "if(completed > 0, quantileExactInclusiveIf(0.5)(upload_s, fact = 'completed'), NULL) AS upload_p50_s, "
        "if(completed > 0, quantileExactHighIf(0.95)(upload_s, fact = 'completed'), NULL) AS upload_p95_s, "
        "if(restored > 0, quantileExactInclusiveIf(0.5)(restore_s, fact = 'restored'), NULL) AS restore_p50_s "
        f"FROM (SELECT * FROM checkpoint_facts FINAL) WHERE {at} AND {OF_POOL}",
    )


def checkpoint_failures(period: Period) -> Question:
    """Reasons of failed saves, most frequent first."""
    return bind(
        period,
        "SELECT reason, count() AS failed, uniqExact(job_id) AS jobs FROM checkpoint_failures "
        f"WHERE {within('failed_at', '')} AND {OF_POOL} GROUP BY reason ORDER BY failed DESC, reason LIMIT {TOP}",
    )


def worst_nodes(period: Period) -> Question:
    """Nodes by what was held against them: failures blamed on them, losses, quarantines, failed and passed self tests; and why."""
    return bind(
        period,
        "SELECT node_id, any(pool) AS of_pool, countIf(kind = 'blamed') AS blames, countIf(kind = 'lost') AS losses, "
        "countIf(kind = 'restricted' AND restriction = 'QUARANTINED') AS quarantines, "
        "countIf(kind = 'probed' AND passed = 0) AS probes_failed, countIf(kind = 'probed' AND passed = 1) AS probes_passed, "
        "argMaxIf(restriction, at, kind = 'restricted') AS restricted_now, "
        "arrayStringConcat(arraySlice(groupUniqArrayIf(3)(concat(category, ' ', rule), kind = 'blamed'), 1, 3), ', ') AS rules, "
        "argMaxIf(summary, at, kind IN ('blamed', 'lost') OR (kind = 'probed' AND passed = 0)) AS newest "
        "FROM (SELECT *, transform(type, ['trainhouse.failure.blamed.v1', 'trainhouse.node.lost.v1', "
        "'trainhouse.decision.node-restricted.v1', 'trainhouse.node.probed.v1'], ['blamed', 'lost', 'restricted', 'probed'], '') AS kind "
        f"FROM verdicts) WHERE kind != '' AND node_id != '' AND {within('at')} GROUP BY node_id "
        "HAVING blames + losses + quarantines + probes_failed > 0 "
        f"ORDER BY blames + losses + quarantines + probes_failed DESC, node_id LIMIT {TOP}",
    )


def alerts(period: Period) -> Question:
    """Alerts that were open at some time of the period, by rule: how many fired in it, how many were open at its end."""
    return bind(
        period,
        f"SELECT rule, any(severity) AS severity, any(owner) AS owner, countIf(fired_at >= {SINCE}) AS fired, "
        f"countIf(resolved_at IS NULL OR resolved_at >= {UNTIL}) AS open, argMax(summary, fired_at) AS newest "
        f"FROM alerts WHERE fired_at < {UNTIL} AND (resolved_at IS NULL OR resolved_at >= {SINCE}) "
        "AND ({pool:String} = '' OR labels['pool'] IN ('', {pool:String})) GROUP BY rule "
        f"ORDER BY indexOf(['INFO', 'WARNING', 'CRITICAL'], severity) DESC, fired DESC, rule LIMIT {TOP}",
    )

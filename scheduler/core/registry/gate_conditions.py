"""Conditions of a model's gate for a version at a moment, each with its numbers. Pure.

Holds: the same gate, version, champion and moment give the same conditions. Results count for their content alone, and of a suite that the
gate has jobs for only results of these jobs, since anybody may send any; a comparison counts only
of the result that counts, against the champion of that moment; too few samples never pass.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from trainhouse.events import GateCondition, ModelCompared, ModelEvaluated, ModelGate
from trainhouse.events.model.model_gate import MOST_CONDITIONS, AgainstChampion, ComparisonVerdict, GateSuite, MetricLimits
from trainhouse.events.model.model_registry import MetricComparison
from trainhouse.scheduler.core.registry.evaluation_jobs import job_detail
from trainhouse.scheduler.core.registry.registry_state import Version

DAY_MS: Final = 86_400_000
APPROVALS: Final = "approvals"
_PASSES: Final = {
    AgainstChampion.BETTER: frozenset({ComparisonVerdict.BETTER}),
    AgainstChampion.NOT_WORSE: frozenset({ComparisonVerdict.BETTER, ComparisonVerdict.NOT_WORSE}),
}


def conditions(
    gate: ModelGate, version: Version, champion: Version | None, now_ms: int, *, emergency: bool = False
) -> tuple[GateCondition, ...]:
    """All conditions of a gate. `emergency` leaves out approvals."""
    found = [condition for suite in gate.suites for condition in _of_suite(gate, suite, version, champion, now_ms)]
    found += _failed_jobs(gate, version)
    if gate.complete_lineage:
        missing = ", ".join(version.facts.missing)
        detail = f"not known of its lineage: {missing}" if missing else "job, code and data are known"
        found.append(GateCondition(name="complete lineage", met=not missing, value=len(version.facts.missing), limit=0, detail=detail))
    if not emergency:
        found.append(_approvals(gate, version))
    return tuple(found)


def recorded(found: tuple[GateCondition, ...]) -> tuple[GateCondition, ...]:
    """Returns what an event holds of them: all, or of too many the unmet ones first. The decision itself is on all of them."""
    return found if len(found) <= MOST_CONDITIONS else tuple(sorted(found, key=lambda each: each.met))[:MOST_CONDITIONS]


def _approvals(gate: ModelGate, version: Version) -> GateCondition:
    approvers, rejecters = version.approvers, version.rejecters
    given, needed = len(approvers), gate.approvals
    by = f" ({', '.join(approvers)})" if approvers else ""
    detail = f"{given} of {needed} approvals{by} on the evidence of now"
    if rejecters:
        detail += f"; rejected by {', '.join(rejecters)}, who may approve it, or new evidence may come"
    elif given < needed:
        detail += "; `trainhouse models approve` by another person than trained or registered it"
    return GateCondition(name=APPROVALS, met=given >= needed and not rejecters, value=given, limit=needed, detail=detail)


def _failed_jobs(gate: ModelGate, version: Version) -> Iterator[GateCondition]:
    """Jobs that gave no result where none is lacking: met, since they keep up nothing."""
    lacking = {suite.suite for suite in gate.suites if _newest(gate, version, suite) is None}
    for suite in dict.fromkeys(job.suite for job in version.jobs):
        last = version.last_job(suite)
        if last is not None and last.reason and suite not in lacking:
            yield GateCondition(name=f"{suite} evaluation", met=True, detail=job_detail(last))


def _of_suite(gate: ModelGate, suite: GateSuite, version: Version, champion: Version | None, now_ms: int) -> Iterator[GateCondition]:
    result = _newest(gate, version, suite)
    on = (f" on {suite.dataset}" if suite.dataset else "") + (f" split {suite.split}" if suite.split else "")
    if result is None:
        by_job = _is_by_job(gate, suite)
        todo = "`trainhouse models evaluate --submit` starts a job" if by_job else "evaluate the version"
        todo, of = job_detail(version.last_job(suite.suite)) or todo, " of a job" if by_job else ""
        yield GateCondition(name=f"{suite.suite} result", met=False, detail=f"no result{of} of suite {suite.suite}{on}; {todo}")
        return
    yield GateCondition(name=f"{suite.suite} result", met=True, detail=f"evaluation {result.evaluation_id}, {result.samples} samples")
    if gate.max_age_days is not None:
        age_days = max(0, now_ms - result.evaluated_at_ms) / DAY_MS
        detail = f"evaluation {result.evaluation_id} is {age_days:.3g} days old, and {gate.max_age_days:g} are allowed"
        met = age_days <= gate.max_age_days
        detail += "" if met else "; evaluate the version again"
        yield GateCondition(name=f"{suite.suite} age", met=met, value=age_days, limit=gate.max_age_days, detail=detail)
    for metric, limits in suite.metrics.items():
        yield from _of_metric(suite, metric, limits, result, version, champion)


def _of_metric(
    suite: GateSuite, metric: str, limits: MetricLimits, result: ModelEvaluated, version: Version, champion: Version | None
) -> Iterator[GateCondition]:
    name = f"{suite.suite}/{metric}"
    figure = result.metrics.get(metric)
    if figure is None:
        detail = f"evaluation {result.evaluation_id} has no metric {metric}; it has {', '.join(sorted(result.metrics)) or 'none'}"
        yield GateCondition(name=name, met=False, detail=detail)
        return
    value = figure.value
    for word, limit, met in (("at least", limits.at_least, _ge), ("at most", limits.at_most, _le)):
        if limit is not None:
            detail = f"{name} is {value:.6g}, and {word} {limit:.6g} is needed"
            yield GateCondition(name=f"{name} {word}", met=met(value, limit), value=value, limit=limit, detail=detail)
    if limits.against_champion is not None:
        yield _against(suite, metric, limits, result, version, champion)


def _against(
    suite: GateSuite, metric: str, limits: MetricLimits, result: ModelEvaluated, version: Version, champion: Version | None
) -> GateCondition:
    needed = limits.against_champion
    assert needed is not None  # nosec B101  # the caller has looked
    name = f"{suite.suite}/{metric} {needed} than champion"
    if champion is None:
        return GateCondition(name=name, met=True, detail="there is no champion to compare with")
    compared = next((each for each in reversed(version.comparisons) if _compares(each, suite, result, champion)), None)
    found = [each for each in compared.metrics if each.metric == metric] if compared is not None else []
    if not found:
        detail = (
            f"evaluation {result.evaluation_id} was not compared with the champion, version {champion.version}, on the same samples; "
            "compare them"
        )
        return GateCondition(name=name, met=False, detail=detail)
    worst = next((each for each in found if each.verdict not in _PASSES[needed]), found[0])
    margin = limits.margin or 0.0
    wide = next((each for each in found if not _within(each, margin)), None)
    if wide is not None and worst.verdict in _PASSES[needed]:
        of = "an unknown margin" if wide.margin is None else f"a margin of {wide.margin:.6g}"
        detail = f"{wide.verdict} than version {champion.version} by {of}; compare them with a margin of {margin:.6g} at most"
        return GateCondition(name=name, met=False, value=wide.margin, limit=margin, detail=detail)
    in_group = f" in group {worst.group}" if worst.group else ""
    detail = f"{worst.verdict} than version {champion.version}{in_group}: difference {worst.difference:.6g}, and {needed} is needed"
    return GateCondition(name=name, met=worst.verdict in _PASSES[needed], value=worst.difference, detail=detail)


def _compares(compared: ModelCompared, suite: GateSuite, result: ModelEvaluated, champion: Version) -> bool:
    of_result = compared.suite == suite.suite and compared.evaluation_id == result.evaluation_id
    return of_result and compared.against == champion.facts.content


def _within(compared: MetricComparison, margin: float) -> bool:
    """Whether the verdict holds for this margin: `not worse` is the only one that depends on it."""
    return compared.verdict is not ComparisonVerdict.NOT_WORSE or (compared.margin is not None and compared.margin <= margin)


def _is_by_job(gate: ModelGate, suite: GateSuite) -> bool:
    return any(each.suite == suite.suite for each in gate.evaluate)


def _newest(gate: ModelGate, version: Version, suite: GateSuite) -> ModelEvaluated | None:
    """The result that counts: the newest one of the suite, on the data that it asks for; of a job, where the gate names one."""
    of_jobs = {job.evaluation_id for job in version.jobs} if _is_by_job(gate, suite) else None
    fits = (
        each
        for each in version.evaluations
        if each.suite == suite.suite
        and (of_jobs is None or each.evaluation_id in of_jobs)
        and (suite.dataset is None or each.dataset == suite.dataset)
        and (suite.split is None or each.split == suite.split)
    )
    return newest_of(fits)


def newest_of(results: Iterable[ModelEvaluated]) -> ModelEvaluated | None:
    """The result that counts of those that are alike, in the order in which they were recorded: the one of the latest end, the first of
    equals."""
    return max(results, key=lambda each: each.evaluated_at_ms, default=None)


def _ge(value: float, limit: float) -> bool:
    return value >= limit


def _le(value: float, limit: float) -> bool:
    return value <= limit

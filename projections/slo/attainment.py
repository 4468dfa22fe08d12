"""Questions about objectives: what was good in the window and in the spans of burn rates, in one query each.

Holds: moments are bound by ClickHouse. Blocks on it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainhouse.projections.alerts.query import moment
from trainhouse.projections.slo.burn_rate import PAIRS, Counted
from trainhouse.projections.slo.targets import Figure, Target

Ask = Callable[[str, Mapping[str, str]], Sequence[Mapping[str, Any]]]
"""Rows of a query with its bound values, times as text."""
SPANS_S = tuple(sorted({span for pair in PAIRS for span in (pair.short_s, pair.long_s)}))
DAY_S = 86_400
NOW = "{now:DateTime64(3, 'UTC')}"
# A scheduler's first decision takes a pool in; pools are few, and decisions are as many as all jobs of a year have had.
_POOLS = "(SELECT created_at FROM pools_rows UNION ALL SELECT created_at FROM pool_creations_rows)"
FIRST_DECISION_AT = f"(SELECT min(created_at) FROM {_POOLS})"
AGE_QUESTION = f"SELECT if(count() = 0, NULL, dateDiff('second', min(created_at), {NOW})) AS age_s FROM {_POOLS} WHERE created_at <= {NOW}"
FIGURES = {
    Figure.MEAN: "avgOrNull(e.value)",
    Figure.P50: "quantileOrNull(0.5)(e.value)",
    Figure.P95: "quantileOrNull(0.95)(e.value)",
    Figure.P99: "quantileOrNull(0.99)(e.value)",
    Figure.NONE: "NULL",
}


@dataclass(frozen=True)
class Attainment:
    """Attainment of an objective. `figure`: as the target's says, in its unit. `burn_rates` by span in seconds.

    `age_s`: how long the stack has decided for; None: it has not yet. A span that is longer has no burn rate: a few minutes prove nothing
    about days.
    """

    target: Target
    counted: Counted
    figure: float | None
    burn_rates: Mapping[int, float | None]
    age_s: float | None = None

    def too_young(self, span_s: int) -> bool:
        """Whether the stack is younger than the span."""
        return self.age_s is None or self.age_s < span_s

    @property
    def met(self) -> bool | None:
        """True if the share is met, and the figure too; None: nothing was counted."""
        share = self.counted.share
        if share is None:
            return None
        within = self.target.figure_limit is None or self.figure is None or self.figure <= self.target.figure_limit
        return share >= self.target.objective and (within or self.target.figure is not Figure.MEAN)


def question(target: Target) -> str:
    """One row: good and total of the window and of every span, and the figure of the window."""
    window_s = target.window_days * DAY_S
    parts = [
        f"ifNull(sum(e.good), 0) AS good_all, sum(e.total) AS total_all, toFloat64OrNull(toString({FIGURES[target.figure]})) AS figure"
    ]
    for span_s in SPANS_S:
        after = f"e.at > {NOW} - INTERVAL {span_s} SECOND"
        parts.append(f"ifNull(sumIf(e.good, {after}), 0) AS good_{span_s}, sumIf(e.total, {after}) AS total_{span_s}")
    since = f"({NOW} - INTERVAL {window_s} SECOND)"
    return f"SELECT {', '.join(parts)} FROM ({target.between(since, NOW)}) AS e"


def standings(targets: Sequence[Target], ask: Ask, now_ms: int) -> list[Attainment]:
    """Returns the attainment of objectives at a moment. Raises the errors of `ask`."""
    values = {"now": moment(now_ms)}
    (age,) = ask(AGE_QUESTION, values)
    return [standing_of(target, {**row, **age}) for target in targets for row in ask(question(target), values)]


def standing_of(target: Target, row: Mapping[str, Any]) -> Attainment:
    """From the rows of `question` and AGE_QUESTION in one."""
    age_s = None if row["age_s"] is None else float(row["age_s"])
    rates = {
        span_s: None
        if age_s is None or age_s < span_s
        else Counted(int(row[f"good_{span_s}"]), int(row[f"total_{span_s}"])).burn_rate(target.objective)
        for span_s in SPANS_S
    }
    figure = row["figure"]
    return Attainment(target, Counted(int(row["good_all"]), int(row["total_all"])), None if figure is None else float(figure), rates, age_s)


def as_row(standing: Attainment) -> dict[str, Any]:
    """As JSON for programs."""
    target, counted = standing.target, standing.counted
    return {
        "name": target.name,
        "title": target.title,
        "objective": target.objective,
        "window_days": target.window_days,
        "good_means": target.good_means,
        "derived": target.derived,
        "good": counted.good,
        "total": counted.total,
        "actual": counted.share,
        "met": standing.met,
        "budget_left": counted.budget_left(target.objective),
        "figure": target.figure.value,
        "figure_value": standing.figure,
        "figure_limit": target.figure_limit,
        "unit": target.unit,
        "age_s": standing.age_s,
        "too_young": [pair.name for pair in PAIRS if standing.too_young(pair.long_s)],
        "burn_rates": {pair.name: _both(standing, pair.short_s, pair.long_s) for pair in PAIRS},
    }


def _both(standing: Attainment, short_s: int, long_s: int) -> float | None:
    """The rate that both spans reach."""
    short, long = standing.burn_rates[short_s], standing.burn_rates[long_s]
    return None if short is None or long is None else min(short, long)

"""Rules of alerts from the objectives: one for each pair of spans, over all objectives. Run as a program it writes their file.

Holds: `alerts/shipped/slo.yaml` is what this makes (a test holds that); a rule fires where both spans burn faster than the pair's limit
and the long one has enough events to prove it, on a stack that is as old as the long span: of a younger one, its few minutes would stand
for days.
"""

from collections.abc import Sequence
from pathlib import Path

from trainhouse.projections.slo.attainment import FIRST_DECISION_AT
from trainhouse.projections.slo.burn_rate import PAIRS, Pair, in_words
from trainhouse.projections.slo.targets import Target, shipped

FILE = Path(__file__).parents[1] / "alerts" / "shipped" / "slo.yaml"
HEAD = """\
# Budgets of the platform's objectives that burn too fast. Made from projections/slo/targets.yaml: change that, then run
# `python -m trainhouse.projections.slo.rules`. Two spans each: the long one says that it matters, the short one that it still goes on.
rules:
"""
EVERY_S = {3_600: 120, 21_600: 300, 86_400: 900, 259_200: 1_800}


def text_of(targets: Sequence[Target]) -> str:
    """The whole file."""
    return HEAD + "\n".join(_rule(pair, targets) for pair in PAIRS)


def _rule(pair: Pair, targets: Sequence[Target]) -> str:
    # A budget cannot burn faster than all of it at once: where that is below the limit, the rule could never fire.
    able = [target for target in targets if 1 / (1 - target.objective) > pair.limit]
    query = "\nUNION ALL\n".join(_of_target(pair, target) for target in able)
    lines = [
        f"  - name: slo-burn-{pair.name}",
        f"    severity: {pair.severity}",
        "    owner: platform",
        f"    runbook: runbooks.md#slo-burn-{pair.name}",
        f'    summary: "the error budget of {{slo}} burns {{value:.1f}} times as fast as it may, over {in_words(pair.short_s)} and '
        f'{in_words(pair.long_s)} (limit {{limit:g}})"',
        "    labels: [slo]",
        "    sql: |",
        *(f"      {line}".rstrip() for line in query.splitlines()),
        "    when: above",
        f"    limit: {pair.limit:g}",
        f"    every_s: {EVERY_S[pair.long_s]}",
        "",
    ]
    return "\n".join(lines)


def _of_target(pair: Pair, target: Target) -> str:
    short = f"e.at > {{now}} - INTERVAL {pair.short_s} SECOND"
    budget = f"{1 - target.objective:.6g}"
    events = target.between(f"({{now}} - INTERVAL {pair.long_s} SECOND)", "{now}")
    bad_long, bad_short = "1 - sum(e.good) / sum(e.total)", f"1 - sumIf(e.good, {short}) / sumIf(e.total, {short})"
    return (
        f"SELECT '{target.name}' AS slo, least({bad_long}, {bad_short}) / {budget} AS value\n"
        f"FROM (\n{events}\n) AS e\nHAVING sum(e.total) >= {target.least_events} AND sumIf(e.total, {short}) > 0\n"
        f"    AND {FIRST_DECISION_AT} <= {{now}} - INTERVAL {pair.long_s} SECOND"
    )


if __name__ == "__main__":
    FILE.write_text(text_of(shipped()), "utf-8")

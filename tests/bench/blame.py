"""How often the classifier blames right, with its confusion matrix; its peer reads exit codes and signals alone."""

import time

from tests.bench import report
from tests.support.failure_cases import accuracy, by_code_alone, cases, confusion
from trainhouse.scheduler.core.blame import blame

ROUNDS = 20


def run() -> None:
    """Prints accuracy over all, over what rules were made on, and over what was held out."""
    all_cases = cases()
    kept, held_out = [c for c in all_cases if not c.held_out], [c for c in all_cases if c.held_out]
    began = time.process_time()
    for _ in range(ROUNDS):
        for case in all_cases:
            blame(case.evidence)
    each_ms = (time.process_time() - began) * 1000 / ROUNDS / len(all_cases)
    matrix = confusion(all_cases, lambda e: blame(e).category)
    report.line(
        "blame",
        cases=len(all_cases),
        accuracy=accuracy(matrix),
        accuracy_rules_made_on=accuracy(confusion(kept, lambda e: blame(e).category)),
        accuracy_held_out=accuracy(confusion(held_out, lambda e: blame(e).category)),
        by_code_alone=accuracy(confusion(all_cases, by_code_alone)),
        by_code_alone_held_out=accuracy(confusion(held_out, by_code_alone)),
        failure_ms=each_ms,
        matrix=matrix,
    )

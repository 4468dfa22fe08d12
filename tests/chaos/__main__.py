"""A long campaign: `python -m tests.chaos --seed 1 --each 10`, kills of every part at seeded instants; `make chaos` runs it."""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.chaos.campaign import run
from tests.chaos.faults import TARGETS, plan
from tests.chaos.start import started

STEPS = 300
FAULTS_PER_JOB = 5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--each", type=int, default=10, help="faults of every target")
    parser.add_argument("--targets", nargs="*", default=list(TARGETS), choices=TARGETS)
    parser.add_argument("--report", type=Path, help="where to write what was done and judged, as Markdown")
    given = parser.parse_args()
    jobs = max(1, len(given.targets) * given.each // FAULTS_PER_JOB)
    with tempfile.TemporaryDirectory(prefix="trainhouse-chaos-") as folder, started(Path(folder) / "data") as stack:
        verdict = run(stack, plan(given.seed, tuple(given.targets), given.each, STEPS, jobs), STEPS)
    lines = [f"seed {given.seed}: {len(verdict.done)} faults over {jobs} jobs in {verdict.wall_s:.0f} s"]
    lines += [f"- {done}" for done in verdict.done]
    lines += [f"COMPLAINT: {complaint}" for complaint in verdict.complaints] or ["no complaints"]
    print("\n".join(lines))
    if given.report:
        given.report.write_text("# Chaos report\n\n" + "\n".join(lines) + "\n")
    return 1 if verdict.complaints else 0


if __name__ == "__main__":
    sys.exit(main())

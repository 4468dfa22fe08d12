"""A long campaign: `python -m tests.chaos --seed 1 --faults 100`, faults of all kinds at seeded instants; `make chaos` runs it."""

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.chaos.campaign import Verdict, run
from tests.chaos.faults import PROCESSES, Kind, mixed, plan
from tests.chaos.hands import MOMENT_S
from tests.chaos.judge_bounds import MIB
from tests.chaos.start import started

STEPS = 300
FAULTS_PER_ROUND = 10


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=100, help="how many, of all kinds in their usual shares")
    parser.add_argument("--targets", nargs="*", default=list(PROCESSES), choices=PROCESSES, help="leave out all others")
    parser.add_argument("--kinds", nargs="*", default=list(Kind), choices=list(Kind), type=Kind, help="leave out all others")
    parser.add_argument("--longest", type=float, default=60.0, help="seconds that a fault lasts at most")
    parser.add_argument("--report", type=Path, help="where to write what was done and judged, as Markdown")
    given = parser.parse_args()
    whats = mixed(given.seed, given.faults, given.targets, given.kinds)
    rounds = max(1, len(whats) // FAULTS_PER_ROUND)
    print(f"seed {given.seed}: {len(whats)} faults over {rounds} rounds", flush=True)
    with tempfile.TemporaryDirectory(prefix="trainhouse-chaos-") as folder, started(Path(folder) / "data", passed=True) as stack:
        verdict = run(stack, plan(given.seed, whats, STEPS, rounds, given.longest), STEPS)
    lines = told(given.seed, verdict)
    print("\n".join(lines))
    if given.report:
        given.report.write_text("# Chaos report\n\n" + "\n".join(lines) + "\n")
    return 1 if verdict.complaints else 0


def told(seed: int, verdict: Verdict) -> list[str]:
    """What was done and judged, as lines of Markdown."""
    kinds = Counter(str(done.fault.kind) for done in verdict.done)
    jobs = Counter(str(asked.kind) for asked in verdict.jobs)
    lines = [
        f"seed {seed}: {len(verdict.done)} faults in {verdict.wall_s:.0f} s: " + ", ".join(f"{n} {kind}" for kind, n in kinds.items()),
        f"jobs: {len(verdict.jobs)}: " + ", ".join(f"{n} {kind}" for kind, n in jobs.items()),
        f"extremes: {verdict.sent} records, {verdict.unreadable} of them unreadable, and {verdict.refused} that the brokers refused",
        f"journals: {verdict.journal_bytes_a_day / MIB:.0f} MiB a day at this pace",
        "memory at most: " + ", ".join(f"{part} {peak / MIB:.0f} MiB" for part, peak in sorted(verdict.peaks.items())),
        f"moments that did not come within {MOMENT_S:.0f} s: {', '.join(verdict.missed) or 'none'}",
        "",
        *(f"- {done}" for done in verdict.done),
        "",
    ]
    return lines + ([f"COMPLAINT: {complaint}" for complaint in verdict.complaints] or ["no complaints"])


if __name__ == "__main__":
    sys.exit(main())

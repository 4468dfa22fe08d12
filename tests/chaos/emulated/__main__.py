"""A long campaign in emulation: `python -m tests.chaos.emulated --seed 1 --faults 1000`."""

import argparse
import logging
import resource
import sys
import time
from pathlib import Path

from tests.chaos.emulated.campaign import emulate


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=1000)
    parser.add_argument("--report", type=Path, help="where to write what was done and judged, as Markdown")
    given = parser.parse_args()
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # what a killed scheduler had begun is destroyed with it
    began = time.monotonic()
    outcome = emulate(given.seed, given.faults)
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    lines = [*outcome.lines(), f"took {time.monotonic() - began:.0f} s and {peak_mib:.0f} MiB"]
    print("\n".join(lines))
    if given.report:
        given.report.write_text("# Emulated chaos report\n\n" + "\n".join(f"- {line}" for line in lines) + "\n")
    return 1 if outcome.complaints else 0


if __name__ == "__main__":
    sys.exit(main())

"""The example program in every layout of 8 gloo ranks, beside one rank: `python -m tests.layouts --ranks 8`.

Prints one JSON line for each layout (the largest relative difference of a loss) and for each restore in another layout; ends with 1 if a
difference is beyond the tolerance, or a restored tensor is not the saved one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import orjson

from tests.support.example_layouts import TOLERANCE, Found, judged, losses_alone, run_all

MOST_S = 3_600


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description="Train and restore the example in every layout of some gloo ranks.")
    parser.add_argument("--ranks", type=int, default=8)
    ranks: int = parser.parse_args().ranks
    alone = losses_alone(ranks)
    with tempfile.TemporaryDirectory() as folder:
        found: list[Found] = run_all(ranks, Path(folder), MOST_S)
    lines = list(judged(found, alone, ranks))
    for line in lines:
        sys.stdout.write(orjson.dumps(line).decode() + "\n")
    return int(any(line["difference"] > TOLERANCE or not line.get("same_state", True) for line in lines))  # type: ignore[operator]


if __name__ == "__main__":
    sys.exit(main())

"""The long form of the security tests: `python -m tests.security --probes 10000 --seed 1`.

A stack of its own, a foreign project in it, and probes of every door: the API, SQL, Kafka, other ports, files. Prints what each door was
tried with and how it answered; ends with 1 if a probe got through.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.security.campaign import http_door, kafka_door, machine_door, sql_door
from tests.security.campaign.outcome import Tally
from tests.security.campaign.target import Target, prepare
from tests.support.stack.live_stack import running_stack

# The part of all probes that each door gets; a refused connection to Kafka takes the longest.
PARTS = {"http": 0.5, "sql": 0.3, "files": 0.1, "ports": 0.09, "kafka": 0.01}


def campaign(target: Target, probes: int, seed: int) -> Tally:
    """All doors, `probes` in all; blocks until each was answered."""
    tally = Tally()
    counts = {door: max(1, round(probes * part)) for door, part in PARTS.items()}
    if machine_door.may_change_uid():
        tally.add(machine_door.probe_files(target, counts["files"], seed))
    counts["http"] += probes - tally.total - sum(counts[door] for door in ("http", "sql", "ports", "kafka"))
    tally.add(machine_door.probe_ports(target, counts["ports"], seed))
    tally.add(kafka_door.probe(target, counts["kafka"], seed))
    tally.add(sql_door.probe(target, counts["sql"], seed))
    tally.add(http_door.probe(target, counts["http"], seed))
    return tally


def main() -> None:
    """Entry point; blocks for minutes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--probes", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trainhouse-security-") as folder, running_stack(Path(folder) / "data", 2) as stack:
        tally = campaign(prepare(stack), chosen.probes, chosen.seed)
    print("\n".join(tally.lines()))
    print(tally.json())
    sys.exit(1 if tally.successes else 0)


if __name__ == "__main__":
    main()

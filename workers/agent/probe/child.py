"""Process of a self test: reads a plan from standard input, writes a line of JSON at each check's begin and end.

Holds: a check that fails does not keep the others from being tried.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator

from trainhouse.workers.agent.probe import checks as probe_checks
from trainhouse.workers.agent.probe.prober import ProbePlan

NICENESS = 5
MAX_DEVICES = 56  # an event holds 64 checks


def main() -> None:
    """Blocks until all is tried."""
    os.nice(NICENESS)  # ranks of a gang that may still run here go first
    found = json.load(sys.stdin)
    for name, check in checks(ProbePlan(**{**found, "devices": tuple(found["devices"])})):
        _print_line({"begin": name})
        try:
            passed, text = True, check()
        except Exception as error:
            passed, text = False, str(error) if isinstance(error, probe_checks.CheckFailedError) else f"{type(error).__name__}: {error}"
        _print_line({"name": name, "passed": passed, "found": text})
    _print_line({"done": True})


def checks(plan: ProbePlan) -> Iterator[tuple[str, Callable[[], str]]]:
    """Each check's name and what it does, the cheap ones first."""
    if not plan.devices_only:
        yield "network", lambda: probe_checks.network(plan.address)
        yield "disk", lambda: probe_checks.disk(plan.folder)
    if not plan.devices_only or not plan.devices:
        yield "memory", probe_checks.memory
        yield "processors", probe_checks.processors
    if plan.store and not plan.devices_only:
        yield "store", lambda: probe_checks.store(plan.node_id)
        yield "clock", probe_checks.clock
    for index, device_id in enumerate(plan.devices[:MAX_DEVICES]):
        yield f"device-{index}", lambda index=index, device_id=device_id: _device(index, device_id)  # type: ignore[misc]


def _device(index: int, device_id: str) -> str:
    from trainhouse.workers.agent.probe import device_checks  # torch is large, and not every node has a device

    return device_checks.accelerator(index, device_id)


def _print_line(line: dict[str, object]) -> None:
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()

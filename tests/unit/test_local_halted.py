"""`trainhouse ps` names partitions that stand still, from the figures that the parts serve."""

from prometheus_client import CollectorRegistry, generate_latest

from trainhouse.deploy.local.halted_partitions import lines_of
from trainhouse.scheduler.stream.meters import JournalMeters


def test_what_stands_still_is_named_with_what_to_do() -> None:
    registry = CollectorRegistry()
    meters = JournalMeters("scheduler", registry)
    for partition, fault, value in ((0, "STOPPED", 0), (2, "STOPPED", 1), (3, "PLACEMENT_FROZEN", 1)):
        meters.halted.labels(partition, fault).set(value)
    stopped, frozen = lines_of(generate_latest(registry).decode(), "scheduler")
    assert stopped.startswith("partition 2 of trainhouse.decisions decides nothing") and "trainhouse journal repair" in stopped
    assert frozen.startswith("partition 3 of trainhouse.decisions places nothing new")
    assert not list(lines_of("", "intake"))

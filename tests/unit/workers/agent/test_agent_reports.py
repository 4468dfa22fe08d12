"""What an agent says of itself: a heartbeat before its registration, and its registration before all else."""

from typing import Any

from tests.support.core_world import registered
from tests.support.detector_world import beat
from trainhouse.events import Envelope
from trainhouse.events.wire.topics import CONTROL, HEARTBEATS
from trainhouse.workers.agent.core import Identity, Report
from trainhouse.workers.agent.ship.reports import Reports

ME = Identity("n", "b1", "i1", "p")


class Brokers:
    """Stands where the outbox does: takes all, and holds it when told to."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, str]] = []
        self._acks: list[Any] = []

    def offer(self, topic: str, envelope: Envelope, *, on_ack: Any = None, **_: Any) -> None:
        self.taken.append((topic, str(envelope.id)))
        self._acks += [] if on_ack is None else [on_ack]

    def ack(self) -> None:
        acks, self._acks = self._acks, []
        for held in acks:
            held()


def report(name: str) -> Report:
    return Report(registered("n"), name)


def test_a_node_registers_when_the_brokers_hold_a_heartbeat_of_it_and_before_it_reports_anything() -> None:
    brokers = Brokers()
    reports = Reports(brokers, None, ME, lambda key: None, lambda: 1)  # type: ignore[arg-type]
    reports.report(report("early"))
    reports.register(2, beat(1), report("registration"))
    reports.report(report("meanwhile"))
    assert brokers.taken == [(HEARTBEATS, "n:i1:beat:1")]
    brokers.ack()
    reports.report(report("late"))
    assert brokers.taken[1:] == [(CONTROL, name) for name in ("registration", "early", "meanwhile", "late")]
    reports.register(2, beat(2, incarnation="i2"), report("again"), report("notice"))
    reports.report(report("under the new name"))
    assert brokers.taken[5:] == [(HEARTBEATS, "n:i2:beat:2")]
    brokers.ack()
    assert brokers.taken[6:] == [(CONTROL, name) for name in ("again", "notice", "under the new name")]

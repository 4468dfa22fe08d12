"""The store's clock as an agent knows it, while the machine's own wall clock is set, right or wrong."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from trainhouse.checkpointing.errors import ObjectStoreUnavailableError
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.workers.agent.launch.lease_grants import CLOCK_AGAIN_S, StoreClock

HOUR_S = 3600.0
BEGIN_S = 1_800_000_000.0


@dataclass
class Machine:
    """Time as it passes (the store's clock is right), and the clock of the agent's machine, which is off by so much."""

    passed_s: float = 0.0
    off_s: float = 0.0
    slept_s: float = 0.0
    asked: int = 0

    @property
    def true_s(self) -> float:
        return BEGIN_S + self.passed_s

    def wall_s(self) -> float:
        return self.true_s + self.off_s

    def steady_s(self) -> float:
        return 50.0 + self.passed_s - self.slept_s


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def clock(machine: Machine) -> Iterator[StoreClock]:
    """It asks a server that says the true time in its answers' headers."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            machine.asked += 1
            self.send_response_only(403)
            self.send_header("Date", formatdate(machine.true_s, usegmt=True))
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    settings = StoreSettings(bucket="b", endpoint=f"http://127.0.0.1:{server.server_port}")
    yield StoreClock(settings, machine.wall_s, machine.steady_s)
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("first_s", [0.0, HOUR_S, -HOUR_S, 5.0])
@pytest.mark.parametrize("then_s", [0.0, HOUR_S, -HOUR_S, 24 * HOUR_S, -40.0])
def test_a_clock_that_is_set_changes_no_signature(machine: Machine, clock: StoreClock, first_s: float, then_s: float) -> None:
    machine.off_s = first_s
    clock.look()
    machine.passed_s, machine.off_s = 8.0, then_s
    assert abs(clock.now_s() - machine.true_s) < 2, "as it is used by who was ready before"
    clock.look()
    assert abs(clock.now_s() - machine.true_s) < 2
    machine.passed_s, machine.off_s = 16.0, first_s
    assert abs(clock.now_s() - machine.true_s) < 2


def test_a_clock_that_was_set_is_looked_at_at_once(machine: Machine, clock: StoreClock) -> None:
    clock.look()
    machine.passed_s = 100.0
    assert not clock.due()
    machine.off_s = HOUR_S
    assert clock.due()
    clock.look()
    assert not clock.due()
    assert machine.asked == 2


def test_a_machine_that_slept_looks_again_before_it_signs(machine: Machine, clock: StoreClock) -> None:
    clock.look()
    machine.passed_s, machine.slept_s = HOUR_S, HOUR_S - 1
    assert clock.due()
    clock.look()
    assert abs(clock.now_s() - machine.true_s) < 2


def test_a_clock_that_is_slowed_a_little_is_looked_at_in_its_turn(machine: Machine, clock: StoreClock) -> None:
    clock.look()
    machine.passed_s, machine.off_s = CLOCK_AGAIN_S - 1, 0.5
    assert not clock.due()
    machine.passed_s = CLOCK_AGAIN_S + 1
    assert clock.due()


def test_a_store_that_is_away_leaves_what_is_known(machine: Machine) -> None:
    clock = StoreClock(StoreSettings(bucket="b", endpoint="http://127.0.0.1:9"), machine.wall_s, machine.steady_s)
    with pytest.raises(ObjectStoreUnavailableError):
        clock.look()
    assert clock.now_s() == machine.wall_s() and clock.due()

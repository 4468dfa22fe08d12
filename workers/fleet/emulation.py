"""Runs an emulated fleet over real brokers until it is stopped: one thread, one reader, one producer of each kind.

Holds: the loop sleeps only in the reader, never beyond what is due next. Memory is bounded by the fleet, not by the time that it runs.
"""

import contextlib
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from confluent_kafka import Producer
from pydantic import Field
from pydantic_settings import SettingsConfigDict

from trainhouse.events import GangAllocated
from trainhouse.events.bus.kafka import EventProducer, producer_config
from trainhouse.events.bus.outage import ProducerWatch
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.security.key_files import kept_key
from trainhouse.events.security.signing import SigningKey
from trainhouse.events.settings import KafkaSettings, TomlSection
from trainhouse.workers.agent.ship.outbox import Outbox
from trainhouse.workers.fleet.broker_io import Commands, pool_partition
from trainhouse.workers.fleet.fleet import Fleet, Plan
from trainhouse.workers.fleet.fleet_summary import Summary, Watch
from trainhouse.workers.fleet.job_load import Load, LoadPlan

MAX_SLEEP_S = 0.1
ACKS_SLEEP_S = 0.01
STATUS_EVERY_S = 5.0
HEARTBEAT_TIMEOUT_MS = 5_000
SHUTDOWN_GRACE_MS = 2_000
SHUTDOWN_PATIENCE_S = 30.0
FLUSH_S = 10.0
PULSE_FLUSH_S = 1.0

Say = Callable[[str], None]


class FleetSettings(TomlSection):
    """`[fleet]`, `TRAINHOUSE_FLEET_*`: the file of the key that emulated nodes sign with; made where there is none."""

    section = "fleet"
    model_config = SettingsConfigDict(env_prefix="TRAINHOUSE_FLEET_", extra="ignore")

    key: Path | None = Field(None, description="file of the key that emulated nodes sign with; made where there is none")

    def signing(self) -> SigningKey | None:
        """Raises InvalidKeyError."""
        return None if self.key is None else kept_key(self.key)


@dataclass(frozen=True)
class Options:
    """Run time of an emulation. `for_s` None: until it is stopped, or until the load is over where `until_done`."""

    for_s: float | None = None
    until_done: bool = False


def now_ms() -> int:
    """The clock, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def run_fleet(kafka: KafkaSettings, plan: Plan, load: LoadPlan | None, options: Options, say: Say) -> Summary:
    """Blocks until SIGINT or SIGTERM (or as the options say), then stops every rank and tells the brokers. Raises BusUnavailableError."""
    pool_partition(kafka, plan.hardware.pool, say)
    signing = FleetSettings().signing()
    if signing is not None:
        plan = replace(plan, hardware=replace(plan.hardware, public_key=signing.public_key))
    watch = ProducerWatch(kafka)
    delivery = {"message.timeout.ms": 0, "client.id": "trainhouse-fleet", "linger.ms": 5, "error_cb": watch.on_error}
    config = producer_config(kafka, **delivery)
    outbox = Outbox(lambda: Producer(config), signing=signing, watch=watch)
    pulse = EventProducer(
        kafka, **{"message.timeout.ms": HEARTBEAT_TIMEOUT_MS, "enable.idempotence": False, "linger.ms": 20, "client.id": "trainhouse-fleet"}
    )
    pulse.signing = signing
    commands = Commands(kafka, plan.hardware.pool)
    fleet = Fleet(plan, commands.partition, uuid.uuid4().hex[:12], outbox, pulse)
    loading = Load(load, EventProducer(kafka, **{"linger.ms": 0})) if load is not None else None
    with _stop_requested() as stopping:
        shell = Shell(fleet, outbox, commands, loading, options, say)
        try:
            shell.run(stopping)
        finally:
            commands.close()
            with contextlib.suppress(BusUnavailableError):
                pulse.flush(PULSE_FLUSH_S)
    return shell.watch.summary()


class Shell:
    """The loop."""

    def __init__(self, fleet: Fleet, outbox: Outbox, commands: Commands, load: Load | None, options: Options, say: Say) -> None:
        self.watch = Watch(fleet, load)
        self._fleet = fleet
        self._outbox = outbox
        self._commands = commands
        self._load = load
        self._options = options
        self._say = say
        self._began_s = time.monotonic()
        self._status_s = self._began_s + STATUS_EVERY_S

    def run(self, stopping: Callable[[], bool]) -> None:
        """Serves until `stopping`, then shuts the fleet down. Blocks."""
        fleet = self._fleet
        self._say(f"registering {len(fleet.nodes)} nodes of {fleet.plan.hardware.gpus_per_node} devices in pool {fleet.pool!r}")
        fleet.start(now_ms())
        while not (stopping() or self._over()):
            self._turn()
            if self.watch.registered_s is None:
                self._look_at_answers()
        self._say("stopping: every rank ends, every agent says so")
        fleet.shut_down(SHUTDOWN_GRACE_MS, now_ms())
        deadline_s = time.monotonic() + SHUTDOWN_PATIENCE_S
        while not fleet.empty() and time.monotonic() < deadline_s:
            self._turn(loading=False)
        if not self._outbox.flush(FLUSH_S):
            self._say(f"{len(self._outbox)} reports are not with the brokers")

    def _turn(self, loading: bool = True) -> None:
        fleet = self._fleet
        for event, order in self._commands.take(self._sleep_s(loading)):
            if self._load is not None and isinstance(event, GangAllocated):
                self._load.on_allocated(event, time.time_ns() / 1e6)
            fleet.on_event(event, order, now_ms())
        fleet.advance(now_ms())
        self._outbox.poll()
        fleet.take_acks(now_ms())
        if loading and self._load is not None and self.watch.registered_s is not None:
            self._load.pump(time.time_ns() / 1e6)
        self.watch.records = self._outbox.taken
        if time.monotonic() >= self._status_s:
            self._status_s = time.monotonic() + STATUS_EVERY_S
            self._say(self.watch.line())

    def _sleep_s(self, loading: bool) -> float:
        due = [self._fleet.timers.next_ms(), self._load.next_ms() if self._load is not None and loading else None]
        until_s = min((d - time.time_ns() / 1e6 for d in due if d is not None), default=1e9) / 1000
        return max(0.0, min(until_s, ACKS_SLEEP_S if len(self._outbox) else MAX_SLEEP_S))

    def _look_at_answers(self) -> None:
        answered = self._fleet.answered()
        if answered >= self._fleet.up():
            self.watch.registered_s = time.monotonic() - self._began_s
            self._say(f"the scheduler has answered {answered} nodes after {self.watch.registered_s:.1f} s")

    def _over(self) -> bool:
        if self._options.for_s is not None and time.monotonic() - self._began_s >= self._options.for_s:
            return True
        return self._options.until_done and self._load is not None and self._load.over and self._fleet.empty()


@contextlib.contextmanager
def _stop_requested() -> Iterator[Callable[[], bool]]:
    """Returns whether SIGINT or SIGTERM came. A second SIGINT ends the process at once."""
    signals: list[int] = []

    def on_signal(number: int, _: object) -> None:
        if signals and number == signal.SIGINT:
            raise KeyboardInterrupt
        signals.append(number)

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(signals)
    finally:
        for number, old in before.items():
            signal.signal(number, old)

"""The shell of the failure detector: heartbeats in, verdicts out, one soft state for each partition of heartbeats.

Holds: a tick counts as listened only if, for every partition, everything that the brokers held at the tick before has been read and the
brokers answered; a new partition is read back a little first, and what was said of its nodes before is known, so that nothing is said
twice and what is over is lifted; a verdict is kept until it is acked; a heartbeat that cannot be judged is passed over.
Never: judges silence while it was itself not reading.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterable

import structlog

from trainhouse.events import DeadLetter, InvalidEvent, NodeHeartbeat, envelope_of
from trainhouse.events.runtime.logs import ids_of
from trainhouse.events.security.signing import signature_of
from trainhouse.events.security.vetting import Known, VettingRules, refusal
from trainhouse.events.wire.codec import HEADERS, decode, encode
from trainhouse.events.wire.topics import HEARTBEATS, VERDICTS
from trainhouse.scheduler.core.detector import DetectorMachine, DetectorState, IssuedVerdict, still_standing
from trainhouse.scheduler.core.errors import LogUnavailableError
from trainhouse.scheduler.core.protocol.publication import Outgoing, set_aside, signature_refused
from trainhouse.scheduler.core.protocol.refusal_limits import PublishedRefusals, alike_of, key_of
from trainhouse.scheduler.stream.cancellation import still_wanted
from trainhouse.scheduler.stream.detection.detector_history import LEAST_HEARTBEATS, last_heartbeats, published_verdicts
from trainhouse.scheduler.stream.detection.pool_limits import SOURCE, DetectorPools
from trainhouse.scheduler.stream.interfaces import Clock, Entry, Log, Publisher
from trainhouse.scheduler.stream.metrics import DetectorMeters

TICK_S = 0.5
MAX_WAITING_VERDICTS = 10_000
log_ = structlog.get_logger(__name__)


class Detecting:
    """All partitions of heartbeats that the group gives to this process."""

    def __init__(
        self, log: Log, clock: Clock, machine: DetectorMachine, meters: DetectorMeters | None = None, rules: VettingRules | None = None
    ) -> None:
        self._rules = rules or VettingRules()
        self._published_refusals = PublishedRefusals()
        self._log = log
        self._clock = clock
        self._machine = machine
        self._meters = meters or DetectorMeters()
        self._pools = DetectorPools(log, machine)
        self._states: dict[int, DetectorState] = {}
        self._early: dict[int, deque[Entry]] = {}
        self._read_up_to: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._waiting: deque[Outgoing] = deque(maxlen=MAX_WAITING_VERDICTS)
        self._publisher: Publisher | None = None
        self._woken = asyncio.Event()

    async def take(self, by_partition: dict[int, list[Entry]]) -> None:
        """A batch of heartbeats; never raises. What comes before a partition was read back waits for that."""
        for partition, entries in by_partition.items():
            if partition in self._states:
                self._say(self._take_heartbeats(partition, entries), partition)
            elif partition in self._early:
                self._early[partition].extend(entries)

    def on_assigned(self, partitions: set[int]) -> None:
        """The group changed what is this process's to watch; what is new is read back before it is judged."""
        for partition in (set(self._states) | set(self._early)) - partitions:
            for known in (self._states, self._early, self._read_up_to, self._ends):
                known.pop(partition, None)
        for partition in partitions - set(self._states):
            self._early.setdefault(partition, deque(maxlen=LEAST_HEARTBEATS))

    async def run(self) -> None:
        """Ticks, and sends what was found at once, until cancelled."""
        due_s = self._clock.steady_s()
        while True:
            still_wanted()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), max(0.0, due_s - self._clock.steady_s()))
            self._woken.clear()
            try:
                if self._clock.steady_s() >= due_s:
                    due_s = self._clock.steady_s() + TICK_S
                    self._waiting.extend(await self._pools.follow())
                    await self._read_back_what_is_new()
                    await self._tick()
                await self._publish()
                self._meters.waiting.set(len(self._waiting))
            except LogUnavailableError as error:
                self._ends.clear()
                log_.warning("brokers away; nobody is judged", error=str(error))
                await self._drop_clients()
                await asyncio.sleep(TICK_S)

    async def _tick(self) -> None:
        ends = await self._log.ends(HEARTBEATS, tuple(self._states))
        now_ms = self._clock.now_ms()
        with self._meters.tick.time():
            for partition, state in list(self._states.items()):
                due = self._ends.get(partition)
                reading = due is not None and self._read_up_to.get(partition, -1) >= due
                self._say(self._machine.tick(state, now_ms, reading), partition)
        self._ends = {p: e for p, e in ends.items() if p in self._states}
        self._meters.nodes.set(sum(len(state.nodes) for state in self._states.values()))
        for partition, end in self._ends.items():
            self._meters.lag.labels(partition).set(max(0, end - self._read_up_to.get(partition, 0)))

    async def _read_back_what_is_new(self) -> None:
        if not self._early:
            return
        before = await published_verdicts(self._log)
        for partition in list(self._early):
            entries, end = await last_heartbeats(self._log, HEARTBEATS, partition)
            early = self._early.pop(partition, None)
            if early is None:
                continue  # the group took it away meanwhile
            state = self._states[partition] = self._machine.begin(before)
            issued = self._take_heartbeats(partition, entries) + self._take_heartbeats(partition, early)
            self._say(still_standing(state, issued), partition)
            self._read_up_to[partition] = max(end, self._read_up_to.get(partition, 0))

    def _take_heartbeats(self, partition: int, entries: Iterable[Entry]) -> list[IssuedVerdict]:
        state, issued, now_ms = self._states[partition], list[IssuedVerdict](), self._clock.now_ms()
        for entry in entries:
            # The group goes on where it was, maybe long before what was read back: of nodes seen only then it is read, all else is old.
            self._read_up_to[partition] = max(self._read_up_to.get(partition, 0), entry.offset + 1)
            try:
                beat = decode(entry.value, entry.headers).event
            except InvalidEvent as error:
                self._meters.unreadable.inc()
                log_.warning("no heartbeat", partition=partition, offset=entry.offset, error=str(error))
                continue
            if isinstance(beat, NodeHeartbeat):
                why = self._why_not_theirs(beat, entry)
                if why:
                    self._refuse(partition, entry, beat, why, now_ms)
                    continue
                self._meters.heartbeats.inc()
                issued += self._judged(state, beat, now_ms, entry)
        return issued

    def _why_not_theirs(self, beat: NodeHeartbeat, entry: Entry) -> str:
        signature = signature_of(entry.headers)
        known = Known({beat.node_id: self._pools.key_of(beat, signature.public_key if signature else "")}, {})
        return refusal(self._rules, known, HEARTBEATS, entry.value or b"", signature, beat)

    def _refuse(self, partition: int, entry: Entry, beat: NodeHeartbeat, why: str, now_ms: int) -> None:
        """Sets a heartbeat in another's name aside; says so as the scheduler does, so that a flood stays small."""
        self._meters.unreadable.inc()
        claimed = f"node {beat.node_id}"
        if not self._published_refusals.next(alike_of(claimed, why), self._clock.steady_s()):
            return
        log_.warning("a heartbeat is not its node's", node_id=beat.node_id, partition=partition, offset=entry.offset, reason=why)
        letter = DeadLetter(HEARTBEATS, partition, entry.offset, why)
        event = signature_refused(claimed, why, HEARTBEATS, partition, entry.offset, now_ms)
        name = f"signature-refused:{HEARTBEATS}-{partition}-{entry.offset}"
        value = encode(envelope_of(event, id=name, source=SOURCE, now_ms=now_ms))
        self._waiting.append(set_aside(letter, entry.value))
        self._waiting.append(Outgoing(VERDICTS, key_of(claimed).encode(), value, HEADERS))
        self._woken.set()

    def _judged(self, state: DetectorState, beat: NodeHeartbeat, now_ms: int, entry: Entry) -> list[IssuedVerdict]:
        try:
            return self._machine.on_heartbeat(state, beat, now_ms)
        except Exception:  # agents write heartbeats, of what programs of strangers tell: one that nobody thought of must stop nothing
            self._meters.unreadable.inc()
            log_.exception("a heartbeat cannot be judged; passing over it", partition=entry.partition, offset=entry.offset)
            return []

    def _say(self, issued: list[IssuedVerdict], partition: int) -> None:
        for one in issued:
            evidence = str(getattr(one.event, "evidence", ""))
            ids = {"node_id": str(one.node_id), **ids_of(one.event)}
            log_.warning("verdict", type=one.event.event_type, id=one.name, partition=partition, evidence=evidence, **ids)
            self._meters.verdicts.labels(one.event.event_type).inc()
            self._waiting.extend(self._pools.outgoing(one, self._clock.now_ms()))
        if issued:
            self._woken.set()

    async def _publish(self) -> None:
        if not self._waiting:
            return
        if self._publisher is None:
            self._publisher = await self._log.open_publisher(None)
        batch = list(self._waiting)
        await self._publisher.send(batch)
        for sent in batch:
            if self._waiting and self._waiting[0] is sent:  # else it made room for a newer one meanwhile
                self._waiting.popleft()

    async def _drop_clients(self) -> None:
        publisher, self._publisher = self._publisher, None
        if publisher is not None:
            await publisher.close()

"""Nodes that each attempt was given, from the table of placements.

Holds: what is asked for waits until the table has all that the scheduler's journal held when it was asked; an agent starts an attempt after
the scheduler allocated it, so an attempt that is missing then was never allocated. Memory is bounded.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from threading import Event

import structlog

from trainhouse.events.bus.kafka import partitions_of, watermarks
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.topics import DECISIONS
from trainhouse.projections.ingest.reader import PATIENCE, projector_consumer
from trainhouse.projections.rows.placements import TABLE
from trainhouse.projections.store.clickhouse import ClickHouse

MOST_JOBS = 20_000
LOOK_S = 0.02
MOST_PAUSE_S = 0.5
ANSWER_S = 30.0
LANE = "decisions"

Offsets = Mapping[tuple[str, int], int]
log = structlog.get_logger(__name__)


@dataclass(frozen=True, order=True, slots=True)
class Attempt:
    """One attempt of a job."""

    job_id: str
    epoch: int
    number: int


Found = Iterable[tuple[Attempt, str]]


class Placements:
    """The nodes of attempts. May be shared by threads.

    `rows`: pairs of attempt and node, for all attempts of some jobs. `ends`: where the journal ends now. `passed`: how far the table has
    the journal, None while it lacks some of the older one.
    """

    def __init__(
        self,
        rows: Callable[[Collection[str]], Found],
        ends: Callable[[], Offsets] = dict,
        passed: Callable[[], Offsets | None] = dict,
    ) -> None:
        self._rows = rows
        self._ends = ends
        self._passed = passed
        self._jobs: OrderedDict[str, dict[Attempt, frozenset[str]]] = OrderedDict()
        self._lock = threading.Lock()

    def known(self, attempts: Collection[Attempt], stop: Event, later: bool = False) -> bool:
        """Waits until it is known which nodes these were given, if any; with `later` also all later attempts of their jobs.

        False where `stop` was set before. Blocks, also as long as the brokers are away.
        """
        missing = set(attempts) if later else self._look(attempts)
        if not missing:
            return True
        ends = self._ends_known(stop)
        pause_s = LOOK_S
        while not stop.is_set():
            passed = self._passed()  # before the look: what it says is in the table then
            if passed is not None and all(passed.get(place, 0) >= end for place, end in ends.items()):
                with self._lock:
                    self._read({a.job_id for a in missing})
                return True
            if not later and not (missing := self._look(missing)):
                return True
            stop.wait(pause_s)
            pause_s = min(1.5 * pause_s, MOST_PAUSE_S)
        return False

    def _ends_known(self, stop: Event) -> Offsets:
        """Waits for the journal's end offsets until the brokers answer; nothing depends on them meanwhile. Empty after `stop`."""
        while not stop.is_set():
            try:
                return self._ends()
            except BusUnavailableError as error:
                log.warning("where the journal ends is not known now; what ranks tell waits", error=str(error))
                stop.wait(MOST_PAUSE_S)
        return {}

    def nodes(self, attempt: Attempt) -> frozenset[str]:
        """The nodes of one attempt, as far as `known` found them; none for an attempt that was never allocated."""
        return self._of(attempt.job_id).get(attempt, frozenset())

    def nodes_since(self, attempt: Attempt) -> frozenset[str]:
        """The nodes of that attempt and of all later ones of its job; none where it was never allocated."""
        if attempt not in self._of(attempt.job_id):
            return frozenset()
        return frozenset().union(*(nodes for later, nodes in self._of(attempt.job_id).items() if later.epoch >= attempt.epoch))

    def _of(self, job_id: str) -> dict[Attempt, frozenset[str]]:
        with self._lock:
            if job_id not in self._jobs:
                self._read([job_id])
            self._jobs.move_to_end(job_id)
            return self._jobs[job_id]

    def _look(self, attempts: Iterable[Attempt]) -> set[Attempt]:
        """Returns the attempts that the table does not have."""
        with self._lock:
            missing = {a for a in attempts if a not in self._jobs.get(a.job_id, {})}
            if missing:
                self._read({a.job_id for a in missing})
            return {a for a in missing if a not in self._jobs[a.job_id]}

    def _read(self, jobs: Collection[str]) -> None:
        found: dict[str, dict[Attempt, set[str]]] = {job_id: {} for job_id in jobs}
        for attempt, node_id in self._rows(sorted(jobs)):
            found[attempt.job_id].setdefault(attempt, set()).add(sys.intern(node_id))
        for job_id, attempts in found.items():
            self._jobs[job_id] = {attempt: frozenset(nodes) for attempt, nodes in attempts.items()}
            self._jobs.move_to_end(job_id)
        while len(self._jobs) > max(MOST_JOBS, len(found)):
            self._jobs.popitem(last=False)


class KafkaPlacements(Placements):
    """The table, and the journal on the brokers.

    `position`: how far the lane of decisions is, by topic and partition. `ends`: where that lane ends, if it does not go on for ever.
    """

    def __init__(
        self, kafka: KafkaSettings, clickhouse: ClickHouse, position: Callable[[], Offsets], ends: Callable[[], Offsets] | None = None
    ) -> None:
        self._clickhouse = clickhouse
        self._consumer = projector_consumer(kafka, **PATIENCE)
        self._asking = threading.Lock()
        self._whole = False

        def rows(jobs: Collection[str]) -> Found:
            found = clickhouse.rows(_ROWS, {"jobs": list(jobs)})
            return [(Attempt(str(job_id), int(epoch), int(attempt)), str(node_id)) for job_id, epoch, attempt, node_id in found]

        def passed() -> Offsets | None:
            with self._lock:  # one question at a time
                # A table that is new to the lane reads the older journal first (catchup.py).
                self._whole = self._whole or bool(clickhouse.rows(_WHOLE, {"lane": LANE, "name": TABLE}))
            return position() if self._whole else None

        super().__init__(rows, ends or self._journal_ends, passed)

    def close(self) -> None:
        """Leaves the brokers and the table."""
        self._consumer.close()
        self._clickhouse.close()

    def _journal_ends(self) -> Offsets:
        with self._asking:
            partitions = partitions_of(self._consumer, DECISIONS, ANSWER_S)
            return {(DECISIONS, n): watermarks(self._consumer, DECISIONS, n, ANSWER_S)[1] for n in partitions}


_ROWS = f"SELECT job_id, epoch, attempt, node_id FROM {TABLE} FINAL WHERE job_id IN {{jobs:Array(String)}}"
_WHOLE = "SELECT 1 FROM lane_tables FINAL WHERE lane = {lane:String} AND table_name = {name:String}"

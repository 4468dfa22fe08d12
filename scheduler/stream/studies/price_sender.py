"""Sender of the prices of trials' devices: reads the policies of pools, and gives the tuner a price that it does not have as an input.

Holds: only the process that decides sends; a study is looked at by policies as they are once it is there, so one that was applied before it
counts. While no study is open nothing is read. What was sent and is not in the state yet is sent again after a while, and counts once.
Never: decides.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import structlog

from trainhouse.events import EventId, InvalidEvent, StudyPriceObserved, StudyState, decode
from trainhouse.events.model.pool import PolicyApplied
from trainhouse.events.wire.codec import encode
from trainhouse.events.wire.envelope import envelope_of
from trainhouse.events.wire.topics import POLICIES, STUDY_REQUESTS
from trainhouse.scheduler.core.errors import LogUnavailableError
from trainhouse.scheduler.core.studies.study_state import StudyEntry, TunerState
from trainhouse.scheduler.core.studies.trial_costs import price_per_hour
from trainhouse.scheduler.core.studies.trial_jobs import trial_job_id
from trainhouse.scheduler.stream.cancellation import still_wanted
from trainhouse.scheduler.stream.detection.detector_history import read_back
from trainhouse.scheduler.stream.interfaces import Clock, Log
from trainhouse.scheduler.stream.journal.follower import Follower

SOURCE: Final = "trainhouse/prices"
LOOK_S: Final = 10.0
ALL: Final = 2**62
log_ = structlog.get_logger(__name__)


@dataclass(slots=True)
class PriceSender:
    """Prices of one process. `state`: the tuner's where this process decides. `_read_to`: end of the topic of policies as it was read last;
    `_sent`: what was sent of each study, and when; `_known`: studies that there were at the last look."""

    log: Log
    clock: Clock
    state: Callable[[], TunerState | None]
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _read_to: int = -1
    _policies: dict[str, PolicyApplied] = field(default_factory=dict)
    _sent: dict[str, tuple[StudyPriceObserved, float]] = field(default_factory=dict)
    _known: frozenset[str] = frozenset()

    async def after_record(self, _: Follower[TunerState]) -> None:
        """Looks at once where there is another study."""
        state = self.state()
        if state is not None and not state.studies.keys() <= self._known:
            self._changed.set()

    async def run(self) -> None:
        """Looks at each new study, and now and then, until cancelled."""
        while True:
            still_wanted()
            self._changed.clear()
            try:
                await self.send_news()
            except LogUnavailableError as error:
                log_.warning("brokers away", error=str(error))
                self._known = frozenset()
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def send_news(self) -> None:
        """Sends the price of each open study that has another one, or none, in the tuner's state. Raises LogUnavailableError."""
        state = self.state()
        entries = [] if state is None else list(state.studies.values())
        self._known = frozenset(() if state is None else state.studies)
        self._sent = {key: sent for key, sent in self._sent.items() if key in self._known}
        if not entries:
            return
        await self._read()
        now_s = self.clock.steady_s()
        for entry in entries:
            event = self._observed(entry)
            before, at_s = self._sent.get(entry.key, (None, float("-inf")))
            if _has_news(entry, event) and (event != before or now_s - at_s >= LOOK_S):
                job_id = trial_job_id(entry.project, entry.study, 0)
                event_id = EventId.parse(f"{job_id}:price:{event.policy_version}")
                envelope = envelope_of(event, id=event_id, source=SOURCE, now_ms=self.clock.now_ms())
                await self.log.send(STUDY_REQUESTS, event.subject().encode(), encode(envelope))
                self._sent[entry.key] = (event, now_s)

    async def _read(self) -> None:
        """Reads the topic again where there is more in it: it is compacted, and small."""
        _, end = await self.log.bounds(POLICIES, 0)
        if end == self._read_to:
            return
        entries, self._read_to = await read_back(self.log, POLICIES, 0, ALL)
        for entry in entries:
            if entry.value is None:
                continue
            try:
                event = decode(entry.value, entry.headers).event
            except InvalidEvent:
                continue  # what was known of its pool still counts
            if isinstance(event, PolicyApplied):
                self._policies[event.pool] = event

    def _observed(self, entry: StudyEntry) -> StudyPriceObserved:
        job = entry.spec.job
        applied = self._policies.get(job.pool)
        prices = None if applied is None else applied.policy.prices
        price = None if prices is None else price_per_hour(prices, job)
        return StudyPriceObserved(
            project=entry.project,
            study=entry.study,
            pool=job.pool,
            policy_version=0 if applied is None else applied.version,
            price=price,
            currency="" if prices is None or price is None else prices.currency,
        )


def _has_news(entry: StudyEntry, event: StudyPriceObserved) -> bool:
    """Whether the tuner may decide something by it."""
    known = entry.price
    # A study that ends already cannot end for the lack of a price; a new one still counts for what runs.
    in_money = entry.spec.budget.cost is not None and entry.state is not StudyState.DRAINING
    if event.price is None:
        return known is None and in_money
    if known is None or event.policy_version <= known.version:
        return known is None
    return in_money if event.currency != known.currency else event.price != known.per_hour

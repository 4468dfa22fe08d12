"""One log as this gateway has it: appended to and read in turns, its finished trials published as tracked runs.

Holds: a turn looks at the store after it began, so what waits for it sees all that was appended before; all that waits together costs one
request to the store. An append is answered once it is in the store and, where it ends a trial, once the brokers have that trial's run: a
gateway that reads the log for the first time publishes those of all segments that are in no bundle, and bundles only what it published.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Final

import structlog

from trainhouse.checkpointing.errors import CheckpointError
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.gateway.optuna.journal_log import BUNDLED, Append, JournalLog, Place
from trainhouse.gateway.optuna.stored_segments import Segment, StoredSegments
from trainhouse.gateway.optuna.trial_fold import EndedTrial, TrialFold

log = structlog.get_logger(__name__)
MOST_SEGMENT_BYTES: Final = 4 * 1024 * 1024
MOST_APPENDS: Final = 1000
"""Of one segment, together with its bytes: what more waits goes into the next."""
_UNFIT: Final = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What a line raises that is no operation, however it got into the store; what comes of its surroundings, such as MemoryError, is none."""
Publish = Callable[[EndedTrial], Awaitable[None]]


@dataclass
class OpenLog:
    """A log, which is read at its first use. For one event loop."""

    stored: StoredSegments
    publish: Publish
    """Returns when the brokers have the trial's run. Raises BusUnavailableError."""
    alone: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
    """Held while the log is read whole."""
    state: JournalLog = field(default_factory=JournalLog)
    _fold: TrialFold = field(default_factory=TrialFold)
    _loaded: bool = False
    _bundles: int = 0
    _appends: list[tuple[Append, asyncio.Future[None]]] = field(default_factory=list)
    _readers: list[asyncio.Future[None]] = field(default_factory=list)
    _unpublished: list[EndedTrial] = field(default_factory=list)
    _publishing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _is_turning: bool = False

    @property
    def idle(self) -> bool:
        """Whether nothing would be lost to a request if it were forgotten."""
        return not (self._is_turning or self._tasks or self._unpublished or self._publishing.locked())

    async def append(self, append: Append) -> Place:
        """Puts an append into the log, unless it is there; returns its lines' place. Raises CheckpointError, BusUnavailableError: then it
        may be there, and the same one may be sent again."""
        done = asyncio.get_running_loop().create_future()
        self._appends.append((append, done))
        self._turn()
        await done
        await self._publish()
        return self.state.places[append.append_id]

    async def load(self) -> None:
        """Reads the log, unless that was done. Raises CheckpointError."""
        if not self._loaded:
            await self.refresh()

    async def refresh(self) -> None:
        """Reads what others appended before. Raises CheckpointError."""
        done = asyncio.get_running_loop().create_future()
        self._readers.append(done)
        self._turn()
        await done

    def _turn(self) -> None:
        if not self._is_turning:
            self._is_turning = True
            self._keep(self._turns())

    def _keep(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _turns(self) -> None:
        while self._appends or self._readers:
            appends, waiting = self._next_appends(), self._readers
            self._readers = []
            waiting = [*waiting, *(done for _, done in appends)]
            error: BaseException | None = None
            try:
                await self._settle([append for append, _ in appends])
            except Exception as raised:
                error = raised
            for done in waiting:
                if not done.done():
                    done.set_exception(error) if error is not None else done.set_result(None)
        self._is_turning = False
        if self._unpublished or self.state.segments >= (self._bundles + 1) * BUNDLED:
            self._keep(self._publish_and_bundle())

    def _next_appends(self) -> list[tuple[Append, asyncio.Future[None]]]:
        count, size_bytes = 0, 0
        for append, _ in self._appends[:MOST_APPENDS]:
            size_bytes += append.size_bytes
            if count and size_bytes > MOST_SEGMENT_BYTES:
                break
            count += 1
        taken, self._appends = self._appends[:count], self._appends[count:]
        return taken

    async def _settle(self, appends: list[Append]) -> None:
        """Makes the log hold these, and all that others appended before."""
        if not self._loaded:
            async with self.alone():
                await self._load()
        elif not self._lacking(appends):
            self._take(await asyncio.to_thread(self.stored.after, self.state.segments))
        while lacking := self._lacking(appends):
            if await asyncio.to_thread(self.stored.put, self.state.segments, lacking):
                self._take([lacking])
            else:
                self._take(await asyncio.to_thread(self.stored.after, self.state.segments))

    async def _load(self) -> None:
        segments, bundled = await asyncio.to_thread(self.stored.load)
        self._bundles = bundled // BUNDLED
        try:
            # A long log takes a while; nothing else looks at the state before it is loaded.
            await asyncio.to_thread(self._take, segments, bundled)
        except Exception:
            # The next try begins anew: on top of half a log it would count segments twice, and leave a hole in the chain.
            self.state, self._fold, self._unpublished = JournalLog(), TrialFold(), []
            raise
        self._loaded = True

    def _lacking(self, appends: list[Append]) -> list[Append]:
        return list({each.append_id: each for each in appends if each.append_id not in self.state.places}.values())

    def _take(self, segments: list[Segment], published: int = 0) -> None:
        """Folds segments, of whose first ones the trials' runs are published."""
        for number, segment in enumerate(segments):
            for append, _ in self.state.take(segment):
                ended = self._ended_by(append)
                if number >= published:
                    self._unpublished += ended

    def _ended_by(self, append: Append) -> list[EndedTrial]:
        """Folds an append. A line that cannot be folded counts for nothing here: the log with it has to stay readable for all."""
        ended, odd = list[EndedTrial](), list[str]()
        for line in append.lines:
            try:
                found = self._fold.fold(json.loads(line), append)
            except _UNFIT as error:
                odd.append(f"{type(error).__name__}: {error}"[:200])
            else:
                ended += [] if found is None else [found]
        if odd:
            log.warning(
                "an append has lines that are passed over", log=self.stored.name, append=append.append_id, lines=len(odd), error=odd[0]
            )
        return ended

    async def _publish(self) -> None:
        """Publishes the runs of all trials that ended, the oldest first."""
        if not self._unpublished:
            return
        async with self._publishing:
            ended = list(self._unpublished)
            await asyncio.gather(*map(self.publish, ended))
            del self._unpublished[: len(ended)]

    async def _publish_and_bundle(self) -> None:
        try:
            await self._publish()
            while not self._unpublished and self.state.segments >= (self._bundles + 1) * BUNDLED:
                await asyncio.to_thread(self.stored.put_bundle, self._bundles, self.state.bundle(self._bundles))
                self._bundles += 1
        except (BusUnavailableError, CheckpointError) as error:
            log.warning("runs of trials, or a bundle of a log, wait for the next append", log=self.stored.name, error=str(error))

"""The client for programs that run on an event loop.

client = AsyncClient.connect()
job = await client.submit(command=["python", "train.py"])
print((await job.wait()).state)

Holds: over the gateway nothing blocks the loop: the same flows as the blocking client's, over httpx's asynchronous one. Over Kafka, whose
library blocks, calls run in threads.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeVar

import httpx

from trainhouse.client.backend_protocol import Happening, Row, Submitted
from trainhouse.client.client import TrainhouseClient
from trainhouse.client.errors import NotReachableError, UnknownJobError
from trainhouse.client.filters import JobFilter
from trainhouse.client.gateway import reads as flows
from trainhouse.client.gateway import transport, writes
from trainhouse.client.gateway.backend import ByGateway
from trainhouse.client.gateway.exchange import Flow, GatewayAnswer, NotFoundError, away, error_of
from trainhouse.client.gateway.sse import EventParser
from trainhouse.client.gateway.streaming import AGAIN_S, GIVE_UP_S, SILENCE_S, document
from trainhouse.client.gateway.watch import answering_status
from trainhouse.client.job import ended
from trainhouse.client.metrics_table import table_of
from trainhouse.events import JobId, JobSpec, JobStatus
from trainhouse.events.model.explanation import JobExplained

if TYPE_CHECKING:
    import pyarrow

T = TypeVar("T")


class AsyncClient:
    """One user's access. `connect` chooses the way as the blocking client does; `aclose`, or `async with`, lets connections go."""

    def __init__(self, blocking: TrainhouseClient) -> None:
        self._blocking = blocking
        way = blocking.way
        self._gateway = way if isinstance(way, ByGateway) else None
        self._http = None if self._gateway is None else httpx.AsyncClient(**transport.settings(self._gateway.url, self._gateway.token))

    @classmethod
    def connect(cls, **named: Any) -> "AsyncClient":
        """As `trainhouse.client.connect`. Does not connect."""
        from trainhouse.client import connect

        return cls(connect(**named))

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Lets connections go."""
        if self._http is not None:
            await self._http.aclose()

    async def submit(
        self, spec: JobSpec | None = None, *, job_id: str | None = None, event_id: str | None = None, **fields: Any
    ) -> "AsyncJob":
        """As the blocking client's. Packing a folder of code runs in a thread."""
        if self._gateway is None or "code" in fields:
            job = await self.threaded(lambda: self._blocking.submit(spec, job_id=job_id, event_id=event_id, **fields))
            return AsyncJob(self, job.submitted)
        written = await self.run(writes.submit(self._blocking.spec_from(spec, fields), job_id, event_id))
        self._gateway.remember(written)
        return AsyncJob(self, written.submitted())

    def job(self, job_id: str) -> "AsyncJob":
        """A handle of a job that was submitted before."""
        return AsyncJob(self, Submitted(JobId.parse(job_id), "", None))

    async def status(self, job_id: str) -> JobStatus:
        """The newest status. Raises UnknownJobError."""
        return await self._either(lambda: flows.status(job_id, self._after(job_id)), lambda c: c.status(job_id))

    async def jobs(self, keep: JobFilter | None = None, limit: int = 100) -> list[Row]:
        """Rows of jobs, newest first."""
        return await self._either(lambda: flows.jobs(keep or JobFilter(), limit), lambda c: c.jobs(keep, limit))

    async def cancel(self, job_id: str, reason: str = "cancelled by its user") -> str:
        """Asks that a job end; gives the request's event id."""
        if self._gateway is None:
            return await self.threaded(lambda: self._blocking.cancel(job_id, reason))
        written = await self.run(writes.cancel(job_id, reason, self._after(job_id)))
        self._gateway.remember(written)
        return written.event_id

    async def events(self, job_id: str, kind: str | None = None) -> list[Happening]:
        """A job's story, oldest first."""
        return await self._either(lambda: flows.events(job_id, kind, self._after(job_id)), lambda c: c.events(job_id, kind=kind))

    async def metrics(self, job_id: str, *names: str) -> "pyarrow.Table":
        """Every point of these metrics, or of all."""
        if self._gateway is None:
            return await self.threaded(lambda: self._blocking.metrics(job_id, names))
        return table_of(await self.run(flows.points(job_id, names, self._after(job_id))))

    async def why(self, job_id: str) -> JobExplained | None:
        """Returns the reason that a job waits, or None if it does not wait."""
        return await self._either(lambda: flows.why(job_id, None, self._after(job_id)), lambda c: c.why(job_id))

    async def follow(self, job: Submitted) -> AsyncIterator[JobStatus]:
        """Yields each new status until a final one. Raises UnknownJobError, NotReachableError."""
        # Closed here: what nobody closes goes on in the background until the loop gets to it.
        async with aclosing(self._stream(job) if self._gateway is not None else self._polled(job)) as statuses:
            async for status in statuses:
                yield status
                if status.state.final:
                    return

    async def run(self, flow: Flow[T]) -> T:
        """Runs a flow to its end. Raises NotReachableError, and what the flow raises."""
        assert self._http is not None and self._gateway is not None, "flows go over the gateway"
        try:
            request = next(flow)
            while True:
                await asyncio.sleep(request.pause_s)
                try:
                    answer = transport.answered(await self._http.request(**transport.arguments(request)))
                except httpx.HTTPError as error:
                    raise away(self._gateway.url, error) from error
                request = flow.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    async def threaded(self, call: Callable[[], T]) -> T:
        """A blocking call beside the loop."""
        return await asyncio.to_thread(call)

    def _either(self, flow: Callable[[], Flow[T]], call: Callable[[TrainhouseClient], T]) -> Awaitable[T]:
        return self.threaded(lambda: call(self._blocking)) if self._gateway is None else self.run(flow())

    def _after(self, job_id: str) -> str | None:
        return None if self._gateway is None else self._gateway.after(job_id)

    async def _polled(self, job: Submitted) -> AsyncGenerator[JobStatus, None]:
        """Kafka's reader in a thread, one step at a time."""
        statuses = self._blocking.watch(job)
        while True:
            step = asyncio.ensure_future(self.threaded(lambda: next(statuses, _END)))
            try:
                status = await asyncio.shield(step)
                if status is _END:
                    return
                if status is not None:
                    yield status
            except BaseException:
                # A thread cannot be cancelled: the reader is closed when the step that it is at has ended.
                await asyncio.wait([step])
                await self.threaded(statuses.close)  # type: ignore[attr-defined]
                raise

    async def _stream(self, job: Submitted) -> AsyncGenerator[JobStatus, None]:
        """The gateway's live stream, taken up again where it broke."""
        assert self._gateway is not None
        parser, received_s, failures, seen = EventParser(), time.monotonic(), 0, -1
        while True:
            try:
                async with aclosing(self._once(job, parser)) as statuses:
                    async for status in statuses:
                        received_s, failures = time.monotonic(), 0
                        if status.status_seq > seen:
                            mine = await self.run(answering_status(status, job, self._after(job.job_id)))
                            seen = status.status_seq
                            if mine is not None:
                                yield mine
            except NotFoundError as error:
                raise UnknownJobError(job.job_id) from error
            except (httpx.HTTPError, ValueError, NotReachableError) as error:
                if time.monotonic() > received_s + GIVE_UP_S:
                    raise away(self._gateway.url, error) from error
            parser.broken()
            await asyncio.sleep(AGAIN_S[min(failures, len(AGAIN_S) - 1)])
            failures += 1

    async def _once(self, job: Submitted, parser: EventParser) -> AsyncGenerator[JobStatus, None]:
        assert self._http is not None
        after = self._after(job.job_id)
        params = {"include": "status"} | ({"after": after} if after else {})
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": parser.last_id} if parser.last_id else {})
        timeout = httpx.Timeout(SILENCE_S, connect=10.0)
        path = flows.job_path(job.job_id, "stream")
        async with self._http.stream("GET", path, params=params, headers=headers, timeout=timeout) as response:
            if response.status_code != 200:
                raise error_of(GatewayAnswer(response.status_code, await response.aread(), {}))
            async for chunk in response.aiter_bytes():
                events = list(parser.take(chunk))
                for event in events:
                    if event.kind == "status":
                        yield flows.status_of(document(event))
                if not events and chunk.startswith(b":"):
                    # A sign of life: a status that was told just before this stream began may be missing in it.
                    yield await self.status(job.job_id)


_END: Any = object()


class AsyncJob:
    """One job. Made by `await client.submit(...)` or `client.job(id)`."""

    def __init__(self, client: AsyncClient, submitted: Submitted) -> None:
        self._client = client
        self.submitted = submitted

    @property
    def job_id(self) -> JobId:
        """Its id."""
        return self.submitted.job_id

    async def status(self) -> JobStatus:
        """As it is now."""
        return await self._client.status(self.job_id)

    def follow(self) -> AsyncIterator[JobStatus]:
        """Yields each new status until a final one."""
        return self._client.follow(self.submitted)

    async def wait(self, timeout_s: float | None = None) -> JobStatus:
        """Until it has ended. Raises TimeoutError, naming the last state."""
        last: JobStatus | None = None
        try:
            async with asyncio.timeout(timeout_s):
                async for status in self.follow():
                    last = status
        except TimeoutError:
            pass
        return ended(self.job_id, last, timeout_s)

    async def events(self, kind: str | None = None) -> list[Happening]:
        """Its story, oldest first."""
        return await self._client.events(self.job_id, kind)

    async def metrics(self, *names: str) -> "pyarrow.Table":
        """Every point of these metrics, or of all."""
        return await self._client.metrics(self.job_id, *names)

    async def why(self) -> JobExplained | None:
        """Returns the reason that the job waits, or None if it does not wait."""
        return await self._client.why(self.job_id)

    async def cancel(self, reason: str = "cancelled by its user") -> None:
        """Asks that it end."""
        await self._client.cancel(self.job_id, reason)

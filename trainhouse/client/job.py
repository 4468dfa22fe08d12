"""A job as an object: everything that one asks of it, without its id.

Holds: nothing but the id and the way there; each call asks anew.  Never: ends a job because its handle goes away.
"""

from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from trainhouse.client.backend_protocol import Happening, Line, LineReader, Retuned, Row, Submitted, batches
from trainhouse.events import JobId, JobStatus
from trainhouse.events.model.explanation import JobExplained

if TYPE_CHECKING:
    import pyarrow

    from trainhouse.client.client import TrainhouseClient


class Job:
    """One job. Made by `client.submit(...)` or `client.job(id)`; every method blocks."""

    def __init__(self, client: "TrainhouseClient", submitted: Submitted) -> None:
        self._client = client
        self.submitted = submitted
        self._shown: JobStatus | None = None

    @property
    def job_id(self) -> JobId:
        """Its id."""
        return self.submitted.job_id

    @property
    def event_id(self) -> str:
        """The id of its submission; empty of a job that was found, not submitted."""
        return self.submitted.event_id

    def status(self) -> JobStatus:
        """As it is now. Raises UnknownJobError: a job that was just submitted may need a moment; `wait` and `follow` take care of that."""
        return self._client.status(self.job_id)

    def follow(self, timeout_s: float | None = None) -> Generator[JobStatus, None, None]:
        """Yields each new status until a final one. Ends early after `timeout_s`."""
        yield from (s for s in self._client.watch(self.submitted, timeout_s=timeout_s) if s is not None)

    def wait(self, timeout_s: float | None = None, *, progress: bool = False) -> JobStatus:
        """Until it has ended; with `progress`, shown live in a notebook or a terminal. Raises TimeoutError, naming the last state."""
        if progress:
            return ended(self.job_id, self.watch(timeout_s), timeout_s)
        return self._client.wait(self.submitted, timeout_s)

    def watch(self, timeout_s: float | None = None) -> JobStatus | None:
        """Shows it live until it has ended or time is over; gives the last status. Ctrl-C ends the watching, never the job."""
        from trainhouse.client.notebook import show_live

        self._shown = show_live(self.job_id, self.follow(timeout_s)) or self._shown
        return self._shown

    def metrics(self, *names: str) -> "pyarrow.Table":
        """Every point of these metrics, or of all: metric, step, rank, attempt, epoch, time, value. `.to_pandas()` makes a data frame."""
        return self._client.metrics(self.job_id, names)

    def logs(
        self,
        *,
        rank: int | None = None,
        stream: str | None = None,
        attempt: int | None = None,
        tail: int | None = None,
        follow: bool = False,
    ) -> Iterator[Line]:
        """Yields what its ranks wrote; with `follow`, what they write until it has ended, too."""
        reader = self._client.lines(self.job_id, rank=rank, stream=stream, attempt=attempt, tail=tail)
        for batch in followed(self._client.watch(self.submitted), reader) if follow else batches(reader):
            yield from batch

    def events(self, kind: str | None = None) -> list[Happening]:
        """Its story, oldest first. `kind`: only types that contain it."""
        return self._client.events(self.job_id, kind=kind)

    def checkpoints(self) -> list[Row]:
        """Its checkpoints, oldest first."""
        return self._client.checkpoints(self.job_id)

    def why(self, at_ms: int | None = None) -> JobExplained | None:
        """Returns the reason that the job waits, or waited at `at_ms`; None if it does not wait."""
        return self._client.why(self.job_id, at_ms)

    def cancel(self, reason: str = "cancelled by its user") -> None:
        """Asks that it end; returns when that is durable."""
        self._client.cancel(self.job_id, reason)

    def change(self, *, priority: int | None = None, **limits: Any) -> Retuned | None:
        """Changes its priority or limits, and waits until they count; None: all was so."""
        return self._client.change(self.job_id, priority=priority, **limits)

    def __repr__(self) -> str:
        return f"Job({str(self.job_id)!r})"

    def _repr_html_(self) -> str:
        """As a notebook shows it: the newest status, asked for once."""
        from trainhouse.client.errors import ClientError
        from trainhouse.client.notebook import card

        try:
            self._shown = self.status()
        except ClientError as error:
            return card(str(self.job_id), self._shown, note=str(error))
        return card(str(self.job_id), self._shown)


def ended(job_id: str, last: JobStatus | None, timeout_s: float | None) -> JobStatus:
    """The last status if it is final. Raises TimeoutError, naming the state."""
    if last is None or not last.state.final:
        after = "" if timeout_s is None else f" after {timeout_s:.0f} s"
        raise TimeoutError(f"job {job_id} is {last.state if last else 'without a status'}{after}")
    return last


def followed(statuses: Iterable[JobStatus | None], reader: LineReader) -> Iterator[list[Line]]:
    """Yields lines in batches while a job goes on, and those that arrive when it has just ended. Blocks as long as the statuses do."""
    has_ended = False
    for status in statuses:
        yield from batches(reader)
        has_ended = has_ended or (status is not None and status.state.final)
    if has_ended:
        reader.catch_up()
        yield from batches(reader)

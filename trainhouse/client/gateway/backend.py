"""The way in of a laptop: everything over the gateway's HTTP API, with an address and a token.

Holds: what was written by this client is seen by its next reads of the same job (the gateway's `after`).
Never: needs Kafka, the object store or ClickHouse.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import httpx

from trainhouse.client.backend_protocol import Happening, Retuned, Row, Submitted
from trainhouse.client.code_archive import PackedCode
from trainhouse.client.filters import JobFilter
from trainhouse.client.gateway import reads as flows
from trainhouse.client.gateway import transport, writes
from trainhouse.client.gateway.exchange import Flow, away
from trainhouse.client.gateway.lines import GatewayLines
from trainhouse.client.gateway.sql import GatewaySql
from trainhouse.client.gateway.watch import Watch
from trainhouse.client.metrics_table import table_of
from trainhouse.events import CodeArchive, JobId, JobSpec, JobStatus, ReviewAction
from trainhouse.events.model.explanation import JobExplained
from trainhouse.url_accounts import without_account

if TYPE_CHECKING:
    import pyarrow

T = TypeVar("T")
MAX_REMEMBERED = 1000
AT_ONCE = 16
"""Streams that one client opens at a time for the first statuses of many jobs."""


@dataclass
class ByGateway:
    """One user's access by the gateway. Connects when first used; may be used by several threads."""

    url: str
    token: str = field(repr=False)
    _http: httpx.Client = field(init=False, repr=False)
    _after: "OrderedDict[str, str]" = field(default_factory=OrderedDict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
        self._http = httpx.Client(**transport.settings(self.url, self.token))

    @property
    def place(self) -> str:
        """For people."""
        return f"the gateway at {without_account(self.url)}"

    @property
    def sql(self) -> GatewaySql:
        """Any question, within the limits that the gateway sets."""
        return GatewaySql(self)

    def run(self, flow: Flow[T]) -> T:
        """Runs a flow to its end. Blocks. Raises NotReachableError, and what the flow raises."""
        try:
            request = next(flow)
            while True:
                time.sleep(request.pause_s)
                try:
                    answer = transport.answered(self._http.request(**transport.arguments(request)))
                except httpx.HTTPError as error:
                    raise away(self.url, error) from error
                request = flow.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    def after(self, job_id: str) -> str | None:
        """Returns the token that makes a read of this job wait for the last write here; None where there was none. Does not block."""
        return self._after.get(job_id)

    def remember(self, written: writes.Written) -> None:
        """Later reads of this job wait for this write. Does not block."""
        with self._lock:
            self._after[written.job_id] = written.after
            while len(self._after) > MAX_REMEMBERED:
                self._after.popitem(last=False)

    @property
    def user(self) -> str:
        """Left to the gateway: whom the token names."""
        return "unknown"

    def submit(self, spec: JobSpec, job_id: JobId | None, event_id: str | None) -> Submitted:
        """Returns when the gateway has the submission on Kafka. `event_id` becomes the Idempotency-Key."""
        written = self.run(writes.submit(spec, job_id, event_id))
        self.remember(written)
        return written.submitted()

    def rerun(self, job_id: str) -> Submitted:
        """The gateway knows the whole spec. Returns when it has the submission on Kafka."""
        written = self.run(writes.rerun(job_id, self.after(job_id)))
        self.remember(written)
        return written.submitted()

    def cancel(self, job_id: JobId, reason: str) -> str:
        """Returns when the gateway has the request on Kafka."""
        written = self.run(writes.cancel(job_id, reason, self.after(job_id)))
        self.remember(written)
        return written.event_id

    def change(self, job_id: JobId, priority: int | None, limits: Mapping[str, Any], timeout_s: float) -> Retuned | None:
        """Waits until the change counts."""
        return self.run(writes.change(job_id, priority, limits, timeout_s, self.after(job_id)))

    def review(self, job_id: JobId, action: ReviewAction, reason: str, max_bad: float | None, timeout_s: float) -> None:
        """Waits until the job's story tells that it counts."""
        self.run(writes.review(job_id, action, reason, max_bad, timeout_s, self.after(job_id)))

    def change_tags(self, job_id: JobId, tags: Mapping[str, str], remove: Sequence[str]) -> None:
        """Returns when the gateway has the event on Kafka."""
        self.remember(self.run(writes.change_tags(job_id, tags, remove, self.after(job_id))))

    def job_tags(self, job_id: str) -> dict[str, str]:
        """From the projections."""
        return {row["key"]: row["value"] for row in self.run(flows.of_job_listing(job_id, "tags", self.after(job_id)))}

    def put_code(self, code: PackedCode) -> CodeArchive:
        """Sends an archive to the gateway, unless it has it."""
        return self.run(writes.put_code(code))

    def status(self, job_id: str) -> JobStatus:
        """From the projections."""
        return self.run(flows.status(job_id, self.after(job_id)))

    def statuses(self) -> dict[str, JobStatus]:
        """Every job's, page by page."""
        found = self.run(flows.all_statuses())
        return {str(s.job_id or s.submission_id): s for s in found}

    def watch(self, job: Submitted, timeout_s: float | None) -> Iterator[JobStatus | None]:
        """From the live stream, which is taken up again where it broke."""
        return self._watching().one(job, self.after(job.job_id), timeout_s)

    def first_statuses(self, jobs: Sequence[Submitted], timeout_s: float) -> dict[str, JobStatus | None]:
        """From the live streams of the jobs, AT_ONCE of them open at a time."""
        deadline = time.monotonic() + timeout_s

        def first(job: Submitted) -> tuple[bool, JobStatus | None]:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False, None
            return True, next((status for status in self.watch(job, left_s) if status is not None), None)

        with ThreadPoolExecutor(min(AT_ONCE, max(1, len(jobs))), thread_name_prefix="trainhouse-first-status") as pool:
            answers = list(pool.map(first, jobs))
        return {str(job.job_id): status for job, (was_asked, status) in zip(jobs, answers, strict=True) if was_asked}

    def watch_all(self) -> Iterator[JobStatus | None]:
        """From the live stream of the fleet; where it breaks, NotReachableError says so."""
        return self._watching().all()

    def jobs(self, keep: JobFilter, limit: int) -> list[Row]:
        """From the projections."""
        return self.run(flows.jobs(keep, limit))

    def spec(self, job_id: str) -> JobSpec | None:
        """From the projections."""
        return self.run(flows.spec(job_id, self.after(job_id)))

    def events(self, job_id: str, kind: str | None, since_ms: int | None, until_ms: int | None) -> list[Happening]:
        """From the projections."""
        happenings = self.run(flows.events(job_id, kind, self.after(job_id)))
        return [h for h in happenings if (since_ms or 0) <= h.at_ms < (until_ms or 2**62)]

    def lines(self, job_id: str, rank: int | None, stream: str | None, attempt: int | None, tail: int | None) -> GatewayLines:
        """From the projections."""
        return GatewayLines(self.run, job_id, {"rank": rank, "stream": stream, "attempt": attempt}, tail, self.after(job_id))

    def checkpoints(self, job_id: str) -> list[Row]:
        """From the projections."""
        return self.run(flows.checkpoints(job_id, self.after(job_id)))

    def checkpoint_tags(self, job_id: str) -> list[Row]:
        """From the object store, by the gateway."""
        return self.run(flows.of_job_listing(job_id, "checkpoint-tags"))

    def artifacts(self, job_id: str) -> list[Row]:
        """From the projections."""
        return self.run(flows.of_job_listing(job_id, "artifacts", self.after(job_id)))

    def metrics(self, job_id: str, names: Sequence[str]) -> "pyarrow.Table":
        """From the projections."""
        return table_of(self.run(flows.points(job_id, names, self.after(job_id))))

    def last_metrics(self, job_id: str, names: Sequence[str]) -> list[Row]:
        """From the projections."""
        return self.run(flows.of_job_listing(job_id, "metrics", self.after(job_id), metric=list(names), limit=flows.PAGE))

    def curve(self, job_id: str, metric: str, points: int) -> list[Row]:
        """From the projections."""
        return self.run(flows.curve(job_id, metric, points))

    def why(self, job_id: str, at_ms: int | None) -> JobExplained | None:
        """As the scheduler told it last, or by that moment."""
        return self.run(flows.why(job_id, at_ms, self.after(job_id)))

    def nodes(self) -> list[Row]:
        """From the projections."""
        return self.run(flows.nodes())

    def pools(self) -> list[Row]:
        """From the projections."""
        return self.run(flows.listing("/v1/pools", limit=flows.PAGE))

    def pools_in_full(self, pool: str | None) -> list[Row]:
        """From the projections."""
        return self.run(flows.pools_in_full(pool))

    def alerts(self) -> list[Row]:
        """From the projections."""
        return self.run(flows.open_alerts())

    def alert_causes(self) -> list[Row]:
        """From the projections."""
        return self.run(flows.alert_causes())

    def _watching(self) -> Watch:
        return Watch(self.url, self.token, self.run)

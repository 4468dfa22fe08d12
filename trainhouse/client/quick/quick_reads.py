"""Reads of a command without models, brokers and HTTP libraries: from the tables, or from the gateway where settings name that alone.

Holds: rows are those that the whole client gives; what it makes a model of, these give as that model's JSON. None means: the whole client
has to be asked, which has more ways and says what is wrong. What the tables do not know yet, it reads from Kafka.
"""

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from trainhouse.client import rows
from trainhouse.client.errors import ClientError, NotReachableError, UnknownJobError
from trainhouse.client.quick.quick_sql import CONFIG_VARIABLE, endpoint_of, knows_kafka, settings_file

if TYPE_CHECKING:
    from trainhouse.client.backend_protocol import Happening, LineReader, Row, Sql
    from trainhouse.client.client import TrainhouseClient
    from trainhouse.client.filters import JobFilter
    from trainhouse.client.quick.quick_gateway import QuickGateway
    from trainhouse.client.quick.quick_store import QuickStore
    from trainhouse.client.quick.quick_topics import QuickTopics
    from trainhouse.client.sql import SqlEndpoint

T = TypeVar("T")
U = TypeVar("U")
W = TypeVar("W")
FRESH_MS = 10_000
"""Nodes send a heartbeat a second; tables without one for so long may be behind."""


class QuickReads(Protocol):
    """Questions of commands. Each blocks."""

    @property
    def sql(self) -> "Sql":
        """Any question, read-only."""
        ...

    def jobs(self, keep: "JobFilter", limit: int) -> "list[Row]":
        """Rows of jobs, newest first."""
        ...

    def status(self, job_id: str) -> "Row | None":
        """A job's status as JSON. None: not known here. Raises UnknownJobError where it is known that there is none."""
        ...

    def events(self, job_id: str, kind: str | None, since_ms: int | None, until_ms: int | None) -> "list[Happening]":
        """A job's events, oldest first."""
        ...

    def lines(self, job_id: str, rank: int | None, stream: str | None, attempt: int | None, tail: int | None) -> "LineReader":
        """A reader of log lines."""
        ...

    def checkpoints(self, job_id: str) -> "list[Row]":
        """Checkpoints, oldest first."""
        ...

    def checkpoint_tags(self, job_id: str) -> "list[Row] | None":
        """Commit and name of what keeps checkpoints. None: not known here."""
        ...

    def tags(self, job_id: str) -> dict[str, str]:
        """A job's tags, its note among them."""
        ...

    def known_tags(self, job_id: str) -> dict[str, str] | None:
        """The same; None where it is not known here that there is such a job."""
        ...

    def artifacts(self, job_id: str) -> "list[Row]":
        """Versions of artifacts that a job stored or used."""
        ...

    def last_metrics(self, job_id: str, names: Sequence[str]) -> "list[Row]":
        """The newest value of each of these metrics."""
        ...

    def why(self, job_id: str) -> "Row | None":
        """The newest explanation of a job as JSON, whether it waits or not. None: not known here."""
        ...

    def nodes(self) -> "list[Row]":
        """Machines as they are now."""
        ...

    def pools_in_full(self, pool: str | None) -> "list[Row] | None":
        """Pools with their devices and jobs, or one of them. None: their schedulers' journals have to be read."""
        ...

    def pools(self) -> "list[Row]":
        """All pools by name."""
        ...

    def alert_causes(self) -> "list[Row]":
        """Open alerts by cause, the gravest first."""
        ...


@dataclass(frozen=True)
class TableReads:
    """Reads of the tables. `ways`: of the same deployment, for what no table has, or has not yet."""

    sql: "SqlEndpoint"
    ways: "QuickWays | None" = None

    def jobs(self, keep: "JobFilter", limit: int) -> "list[Row]":
        return self._rows(rows.jobs_query(keep, limit))

    def status(self, job_id: str) -> "Row | None":
        found = self._rows(rows.aged_job_query(job_id))
        if not found:
            topics = None if self.ways is None else self.ways.topics
            if topics is not None and topics.lacks(rows.STATUSES, job_id):
                raise UnknownJobError(job_id)
            return None
        (row,) = found
        if row["status_seq"] < 0:
            return None  # refused before it was a job: the topic of statuses may have more of it
        if row["state"] not in rows.FINAL and min(abs(row["status_age_ms"]), abs(row["tables_age_ms"])) > FRESH_MS:
            return None  # the job may have ended while no projector ran, or one is behind
        if row["state"] not in rows.FINAL and self.ways is not None:
            from trainhouse.client.quick.quick_topics import NotQuickError

            try:
                newer = _newer(row, self.ways.topics)
            except NotQuickError:
                return None
            if newer is not None:
                return rows.published_status_json(newer)
        return rows.status_json(row | self._checkpoint(row), self._allocation(row))

    def _checkpoint(self, row: "Row") -> "Row":
        commit = row["last_checkpoint_commit"]
        found = [] if commit is None else self._rows(rows.checkpoint_time_query(row["job_id"], commit))
        return found[0] if found else {}

    def _allocation(self, row: "Row") -> "list[Row]":
        import orjson

        found = self._rows(rows.allocation_query(row["job_id"], row["epoch"])) if row["node_ids"] else []
        return [placement for each in found for placement in orjson.loads(each["placements"] or "[]")]

    def events(self, job_id: str, kind: str | None, since_ms: int | None, until_ms: int | None) -> "list[Happening]":
        from trainhouse.client.backend_protocol import Happening

        return [Happening(**row) for row in self._rows(rows.events_query(job_id, kind, since_ms, until_ms))]

    def lines(self, job_id: str, rank: int | None, stream: str | None, attempt: int | None, tail: int | None) -> "LineReader":
        from trainhouse.client.log_lines import LogReader

        reader = LogReader(self.sql, job_id, rank, stream, attempt)
        if tail is not None:
            reader.skip_to_last(tail)
        return reader

    def checkpoints(self, job_id: str) -> "list[Row]":
        return self._rows(rows.checkpoints_query(job_id))

    def checkpoint_tags(self, job_id: str) -> "list[Row] | None":
        gateway = None if self.ways is None else self.ways.gateway
        if gateway is None:
            return None
        try:
            return GatewayReads(gateway).checkpoint_tags(job_id)
        except ClientError:
            return None

    def tags(self, job_id: str) -> dict[str, str]:
        return {row["key"]: row["value"] for row in self.sql.table(rows.TAGS_QUERY, {"job_id": job_id}).dicts()}

    def known_tags(self, job_id: str) -> dict[str, str] | None:
        found = self.tags(job_id)
        return found if found or self.sql.table(rows.EXISTS_QUERY, {"job_id": job_id}).rows else None

    def artifacts(self, job_id: str) -> "list[Row]":
        return self.sql.table(rows.ARTIFACTS_QUERY, {"job_id": job_id}).dicts()

    def last_metrics(self, job_id: str, names: Sequence[str]) -> "list[Row]":
        return self._rows(rows.last_metrics_query(job_id, names))

    def why(self, job_id: str) -> "Row | None":
        import orjson

        found = self._rows(rows.explanation_query(job_id))
        return rows.explanation_json(orjson.loads(found[0]["json"])) if found else None

    def nodes(self) -> "list[Row]":
        return self._rows(rows.NODES_QUERY)

    def pools_in_full(self, pool: str | None) -> "list[Row] | None":
        return None

    def pools(self) -> "list[Row]":
        return self._rows(rows.POOLS_QUERY)

    def alert_causes(self) -> "list[Row]":
        from trainhouse.projections.alerts.causes import open_causes

        return open_causes(self._rows(rows.alerts_query()), self._rows)

    def _rows(self, query: str) -> "list[Row]":
        return self.sql.table(query).dicts()


def _newer(row: "Row", topics: "QuickTopics | None") -> "Row | None":
    """A job's status as the topic has it, which tables are behind by a moment; None where its row is the newest. Blocks. Raises
    NotQuickError."""
    from trainhouse.client.quick.quick_topics import NotQuickError

    partition, offset = row["source_partition"], row["source_offset"]
    held = dict(row["held"]).get(partition)
    if topics is None or held is None or row["source_topic"] != rows.STATUSES:
        raise NotQuickError("it is not known from where to read")
    found = topics.later(rows.STATUSES, row["job_id"], (partition, offset), held)
    if found is None:
        return None
    if found.get("type") != rows.STATUS_TYPE:
        raise NotQuickError(f"a status of {row['job_id']} is in another form")
    status: Row = found["data"]
    return status if status["status_seq"] > row["status_seq"] else None


@dataclass(frozen=True)
class GatewayReads:
    """Reads over the gateway."""

    gateway: "QuickGateway"

    @property
    def sql(self) -> "Sql":
        from trainhouse.client.gateway.sql import GatewaySql

        return GatewaySql(self.gateway)

    def jobs(self, keep: "JobFilter", limit: int) -> "list[Row]":
        from trainhouse.client.gateway import reads

        return self.gateway.run(reads.jobs(keep, limit))

    def status(self, job_id: str) -> "Row | None":
        from trainhouse.client.gateway import reads

        return rows.status_json(self.gateway.run(reads.job(job_id)))

    def events(self, job_id: str, kind: str | None, since_ms: int | None, until_ms: int | None) -> "list[Happening]":
        from trainhouse.client.gateway import reads

        found = self.gateway.run(reads.events(job_id, kind))
        return [each for each in found if (since_ms or 0) <= each.at_ms < (until_ms or 2**62)]

    def lines(self, job_id: str, rank: int | None, stream: str | None, attempt: int | None, tail: int | None) -> "LineReader":
        from trainhouse.client.gateway.lines import GatewayLines

        return GatewayLines(self.gateway.run, job_id, {"rank": rank, "stream": stream, "attempt": attempt}, tail)

    def checkpoints(self, job_id: str) -> "list[Row]":
        from trainhouse.client.gateway import reads

        return self.gateway.run(reads.checkpoints(job_id))

    def checkpoint_tags(self, job_id: str) -> "list[Row] | None":
        from trainhouse.client.gateway import reads

        return self.gateway.run(reads.of_job_listing(job_id, "checkpoint-tags"))

    def tags(self, job_id: str) -> dict[str, str]:
        from trainhouse.client.gateway import reads

        return {row["key"]: row["value"] for row in self.gateway.run(reads.of_job_listing(job_id, "tags"))}

    def known_tags(self, job_id: str) -> dict[str, str] | None:
        try:
            return self.tags(job_id)
        except UnknownJobError:
            return None

    def artifacts(self, job_id: str) -> "list[Row]":
        from trainhouse.client.gateway import reads

        return self.gateway.run(reads.of_job_listing(job_id, "artifacts"))

    def last_metrics(self, job_id: str, names: Sequence[str]) -> "list[Row]":
        from trainhouse.client.gateway import reads

        return self.gateway.run(reads.of_job_listing(job_id, "metrics", metric=list(names), limit=reads.PAGE))

    def why(self, job_id: str) -> "Row | None":
        from trainhouse.client.gateway import reads

        found = self.gateway.run(reads.explanation(job_id, None))
        return None if found is None else rows.explanation_json(found)

    def nodes(self) -> "list[Row]":
        from trainhouse.client.gateway import reads

        return self.gateway.run(reads.nodes())

    def pools_in_full(self, pool: str | None) -> "list[Row] | None":
        from trainhouse.client.gateway import reads

        return self.gateway.run(reads.pools_in_full(pool))

    def pools(self) -> "list[Row]":
        from trainhouse.client.gateway import reads

        return self.gateway.run(reads.listing("/v1/pools", limit=reads.PAGE))

    def alert_causes(self) -> "list[Row]":
        from trainhouse.client.gateway import reads

        return self.gateway.run(reads.alert_causes())


class QuickWays:
    """Ways in that a settings file and the environment name, without the settings models. `file` None: it cannot be read."""

    def __init__(self, file: "Mapping[str, Any] | None", environment: Mapping[str, str]) -> None:
        self._file, self._environment = file, environment

    @property
    def names_kafka(self) -> bool:
        """Whether an address of Kafka is set; else the gateway is the way, where it is known."""
        return self._file is not None and knows_kafka(self._file, self._environment)

    @cached_property
    def topics(self) -> "QuickTopics | None":
        """Topics of the brokers; None where the whole client has to decide."""
        if self._file is None or not knows_kafka(self._file, self._environment):
            return None
        from trainhouse.client.quick.quick_topics import topics_of

        return topics_of(self._file, self._environment)

    @cached_property
    def store(self) -> "QuickStore | None":
        """The object store; None where the whole one has to be asked."""
        if self._file is None:
            return None
        from trainhouse.client.quick.quick_store import store_of

        return store_of(self._file, self._environment)

    @cached_property
    def gateway(self) -> "QuickGateway | None":
        """The gateway, beside the brokers too: with the token of a stack on this machine; None where the whole client has to decide."""
        if self._file is None:
            return None
        from trainhouse.client.quick.quick_gateway import gateway_of

        return gateway_of(self._file, self._environment, own=knows_kafka(self._file, self._environment))

    @cached_property
    def reads(self) -> QuickReads | None:
        """Reads of the tables, or of the gateway where settings name that alone; None where the whole client has to decide."""
        if self._file is None:
            return None
        if knows_kafka(self._file, self._environment):
            endpoint = endpoint_of(self._file, self._environment)
            return None if endpoint is None else TableReads(endpoint, self)
        return None if self.gateway is None else GatewayReads(self.gateway)


_known: dict[Hashable, QuickWays] = {}


def quick_ways() -> QuickWays:
    """The ways of the settings as they are now, the same object as long as those do not change: all questions of a command read the file
    once, and share a connection to the gateway. Blocks on the file alone."""
    asked = _fingerprint()
    if asked not in _known:
        _known.clear()
        _known[asked] = QuickWays(settings_file(), dict(os.environ))
    return _known[asked]


def _fingerprint() -> Hashable:
    path, stamp = os.environ.get(CONFIG_VARIABLE), None
    if path:
        try:
            found = os.stat(path)
            stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
        except OSError:
            stamp = None
    return frozenset(os.environ.items()), stamp


def quick_reads() -> QuickReads | None:
    """The reads that environment and settings file name; None where the whole client has to decide. Blocks on the file alone."""
    return quick_ways().reads


def quickly(ask: Callable[[QuickReads], T]) -> T | None:
    """Answers a question, or None where the whole client has to be asked: settings need it, or tables are away. Blocks. Raises what `ask`
    raises, QueryError and UnknownJobError among it."""
    reads = quick_reads()
    if reads is None:
        return None
    try:
        return ask(reads)
    except NotReachableError:
        if isinstance(reads, TableReads):
            return None
        raise


def asked(quick: Callable[[QuickReads], T | None], whole: "Callable[[TrainhouseClient], W]") -> T | W:
    """Answers a question by quick reads; by the whole client where they may not be asked, or do not know. Blocks. Raises what the two
    raise."""
    found = quickly(quick)
    if found is not None:
        return found
    from trainhouse.client import TrainhouseClient

    return whole(TrainhouseClient.from_settings())


def sql_of_settings() -> "Sql":
    """Any question in SQL, read-only, where environment and settings file name it: the tables, or the gateway. Raises ClientError."""
    reads = quick_reads()
    if reads is not None:
        return reads.sql
    from trainhouse.client import TrainhouseClient

    return TrainhouseClient.from_settings().sql


def from_topics(quick: "Callable[[QuickTopics], T]", whole: "Callable[[TrainhouseClient], W]") -> T | W:
    """Answers a question by whole topics; by the whole client where those are not plainly readable. Blocks. Raises what the two raise."""

    def by_client() -> W:
        from trainhouse.client import TrainhouseClient

        return whole(TrainhouseClient.from_settings())

    return by_topics_or(quick, by_client)


def by_topics_or(quick: "Callable[[QuickTopics], T]", instead: Callable[[], W]) -> T | W:
    """Answers a question by whole topics; in the other way where those are not plainly readable. Blocks. Raises what the two raise."""
    return _by_or(quick_ways().topics, quick, instead)


def by_store_or(quick: "Callable[[QuickStore], T]", instead: Callable[[], W]) -> T | W:
    """Answers a question by the object store; in the other way where that does not answer plainly. Blocks. Raises what the two raise."""
    return _by_or(quick_ways().store, quick, instead)


def _by_or(way: U | None, quick: Callable[[U], T], instead: Callable[[], W]) -> T | W:
    if way is not None:
        from trainhouse.client.quick.quick_topics import NotQuickError

        try:
            return quick(way)
        except NotQuickError:
            pass  # the other way has the words for it
    return instead()

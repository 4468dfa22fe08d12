"""Checks of a deployment: Kafka with its topics and versions, ClickHouse, the object store, the gateway; and of a spec beside its fleet.

Holds: each server is asked for itself, so that one that is away hides no other.
"""

import http.client
import ssl
import time
import urllib.parse
from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from trainhouse.cli.doctor import findings
from trainhouse.cli.doctor.findings import Finding, fault, ok
from trainhouse.cli.shared.exit_codes import Exit

if TYPE_CHECKING:
    from trainhouse.client.quick.quick_store import QuickStore
    from trainhouse.client.quick.quick_topics import QuickTopics
    from trainhouse.events.wire.partition_counts import Topology
    from trainhouse.scheduler.upgrades import JournalUpgrade

ANSWER_S: Final = 5.0


def deployment() -> Iterator[Finding]:
    """Yields the findings on what the settings name. Blocks for some seconds at most where something does not answer."""
    url, by_gateway = _ways()
    if by_gateway:
        yield from _by_gateway_alone(url)
    else:
        yield from _tried("kafka", _kafka)
        yield from _tried("store", _store)
        yield from _tried("clickhouse", _tables)
        if url:
            yield from _tried("gateway", lambda: _gateway(url))
        else:
            yield findings.warning("deployment", "gateway", "no gateway is set: pages need one, TRAINHOUSE_GATEWAY_URL names it")


def _ways() -> tuple[str, bool]:
    """Address of the gateway, "" for none, and whether the way leads by it alone."""
    from trainhouse.client.quick.quick_reads import quick_ways

    ways = quick_ways()
    if ways.gateway is not None:
        return ways.gateway.url, not ways.names_kafka
    from trainhouse.client.backend_choice import by_gateway, known

    url, kafka_known = known()
    return url, by_gateway(None, url, kafka_known)


def _by_gateway_alone(url: str) -> Iterator[Finding]:
    """The gateway with its settings; ClickHouse behind it only if nothing is wrong with the gateway itself."""
    # Wrong settings are found by both checks, in the same words.
    found = list(dict.fromkeys([*_tried("gateway", _access), *_tried("gateway", lambda: _gateway(url))]))
    yield from found
    if findings.exit_of(found) is Exit.OK:
        yield from _tried("clickhouse", _tables_by_gateway)


def _access() -> Iterator[Finding]:
    """Nothing, or the error of an address or a token that cannot be right."""
    from trainhouse.client.quick.quick_reads import quick_ways

    if quick_ways().gateway is None:
        from trainhouse.client import TrainhouseClient

        TrainhouseClient.from_settings()
    return iter(())


def _tables_by_gateway() -> Iterator[Finding]:
    from trainhouse.client.errors import AccessDeniedError

    try:
        yield from _tables()
    except AccessDeniedError as error:
        yield fault("deployment", "gateway", str(error))


def spec(path: Path, user: str) -> Iterator[Finding]:
    """Yields the findings on a spec's file and whether the fleet can run it. Blocks."""
    from trainhouse.cli.jobs.spec_build import Typed
    from trainhouse.cli.jobs.submit import check_script, read_specs
    from trainhouse.cli.shared.exit_codes import CliError
    from trainhouse.client import ClientError, TrainhouseClient

    try:
        [found] = read_specs(Typed(), path, user)
    except CliError as error:
        yield fault("spec", "fields", str(error))
        return
    yield ok("spec", "fields", f"{path} is valid: {found.name}, {found.gang.ranks} ranks in pool {found.pool}")
    try:
        check_script(found, path.resolve().parent)
    except CliError as error:
        yield fault("spec", "script", str(error))
    try:
        yield findings.room_of(found, TrainhouseClient.from_settings().way.pools_in_full(None))
    except ClientError as error:
        yield fault("spec", "fleet", f"whether the fleet can run it is not known: {error}")


def _tried(subject: str, check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """The findings of a check, and its expected error as one of them."""
    from trainhouse.cli.shared.exit_codes import explain

    try:
        yield from check()
    except Exception as error:
        expected = explain(error)
        if expected is None:
            raise
        yield fault("deployment", subject, str(expected))


def _kafka() -> Iterator[Finding]:
    from trainhouse.client.quick.quick_reads import by_topics_or
    from trainhouse.events.wire.partition_counts import why_refused
    from trainhouse.events.wire.topics import TOPICS

    bootstrap, topology, counts, setting = by_topics_or(_quick_topology, _topology)
    yield ok("deployment", "kafka", f"Kafka at {bootstrap} answers")
    yield from findings.topics([topic.name for topic in TOPICS], counts, why_refused(topology, counts, setting), bootstrap)
    releases: dict[str, list[str]] = {}
    for journal in by_topics_or(_quick_upgrades, _upgrades):
        for program in journal.programs:
            releases.setdefault(program.release, []).append(program.process)
    yield findings.versions(releases)


def _quick_topology(topics: "QuickTopics") -> "tuple[str, Topology, dict[str, int], int | None]":
    from trainhouse.client.quick.quick_topology import quick_topology

    return str(topics.config["bootstrap.servers"]), *quick_topology(topics)


def _topology() -> "tuple[str, Topology, dict[str, int], int | None]":
    from trainhouse.events.bus.topology_log import read_topology, setting_of
    from trainhouse.events.settings import KafkaSettings

    kafka = KafkaSettings()
    topology, counts = read_topology(kafka, timeout_s=ANSWER_S)
    return kafka.bootstrap, topology, counts, setting_of(kafka)


def _quick_upgrades(topics: "QuickTopics") -> "list[JournalUpgrade]":
    from trainhouse.client.quick.quick_upgrades import upgrades_of

    return upgrades_of(topics)


def _upgrades() -> "list[JournalUpgrade]":
    from trainhouse.cli.shared.output import logs_aside
    from trainhouse.events.settings import KafkaSettings
    from trainhouse.scheduler.stream.history.journal_replay import machines
    from trainhouse.scheduler.stream.history.upgrade_reading import upgrades_of

    logs_aside()
    kafka = KafkaSettings()
    return upgrades_of(kafka, machines(kafka))


def _store() -> Iterator[Finding]:
    from trainhouse.client.quick.quick_reads import by_store_or

    endpoint, bucket = by_store_or(_quick_store_place, _store_place)
    yield ok("deployment", "store", f"the object store at {endpoint} answers, bucket {bucket}")


def _quick_store_place(store: "QuickStore") -> tuple[str, str]:
    """Endpoint and bucket of a store that answers. Raises NotQuickError."""
    store.below("trainhouse-doctor/")
    return store.endpoint, store.bucket


def _store_place() -> tuple[str, str]:
    from botocore.exceptions import BotoCoreError

    from trainhouse.checkpointing.settings import StoreSettings
    from trainhouse.checkpointing.stores.s3 import S3ObjectStore
    from trainhouse.client.errors import InvalidSettingsError

    settings = StoreSettings()
    try:
        S3ObjectStore(settings.within(ANSWER_S)).stat("trainhouse-doctor/absent")
    except (ValueError, BotoCoreError) as error:
        # For an address that botocore cannot use.
        raise InvalidSettingsError(f"the object store's settings are wrong, see TRAINHOUSE_S3_ENDPOINT: {error}") from error
    return settings.endpoint or "Amazon", settings.bucket


def _tables() -> Iterator[Finding]:
    from trainhouse.client.quick.quick_reads import sql_of_settings

    rows = sql_of_settings().table("SELECT count() FROM jobs").rows
    yield ok("deployment", "clickhouse", f"SQL answers, the tables have {rows[0][0]} jobs")


def _gateway(url: str) -> Iterator[Finding]:
    from trainhouse.client.errors import NotReachableError
    from trainhouse.client.quick.quick_gateway import is_plain

    where = urllib.parse.urlsplit(url) if is_plain(url) else _refused_or_parts(url)
    host, port = where.hostname or "127.0.0.1", where.port
    connection: http.client.HTTPConnection
    if where.scheme == "https":
        from trainhouse.client.gateway import transport

        found = transport.trusted(where.scheme)
        context = found if isinstance(found, ssl.SSLContext) else None
        connection = http.client.HTTPSConnection(host, port, timeout=ANSWER_S, context=context)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=ANSWER_S)
    try:
        connection.request("GET", where.path.rstrip("/") + "/healthz")
        answer = connection.getresponse()
        answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise NotReachableError(f"the gateway at {url} does not answer ({error}): is it up? `trainhouse ps` shows it") from error
    finally:
        connection.close()
    if answer.status != 200:
        yield fault("deployment", "gateway", f"{url}/healthz answers {answer.status}: another program may listen there")
        return
    yield ok("deployment", "gateway", f"the gateway at {url} answers")
    if date := answer.getheader("date"):
        yield _clock(date, url)


def _refused_or_parts(url: str) -> urllib.parse.SplitResult:
    from trainhouse.client.gateway import transport

    return transport.parts_of(url)


def _clock(date: str, url: str) -> Finding:
    """The difference of clocks by the header `Date`."""
    try:
        there_s = parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError):
        text = f"{url} answers with the date {date[:60]!r}, which is none: clocks are not compared; another program may listen there"
        return findings.warning("deployment", "clock", text)
    return findings.clock_difference(time.time() - there_s, url)

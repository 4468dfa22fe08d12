"""Every cell of the table of grants, tried on one broker: each principal reads, writes and joins what the table says, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from tests.security.kafka_support import describes, joins, reads, transacts, writes
from tests.support.waiting import until
from trainhouse.deploy.local.servers.kafka_broker import KafkaServer
from trainhouse.deploy.local.servers.kafka_sasl import BROKER, Account, client_section
from trainhouse.events import JobState, JobStatus, envelope_of
from trainhouse.events.bus.accounts import _bindings, grant_all, secure
from trainhouse.events.bus.admin import create_project_topics, create_topics
from trainhouse.events.bus.kafka import EventProducer
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.security.grants import DESCRIBE, GROUP, OPERATOR, PRINCIPALS, READ, TOPIC, TRANSACTIONAL_ID, WRITE, allowed, grants
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.tombstones.compacted_topics import KafkaTopics
from trainhouse.events.tombstones.one_pass import EVER, bury, look
from trainhouse.events.wire.project_topics import status_topic
from trainhouse.events.wire.topics import STATUS, TOPICS

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]
NAMES = tuple(topic.name for topic in TOPICS)
GROUPS = tuple(sorted({group.replace("*", "0") for needs in PRINCIPALS.values() for group in needs.groups} | {"a-strangers"}))
TRANSACTIONS = tuple(sorted({name.replace("*", "0") for needs in PRINCIPALS.values() for name in needs.transactions} | {"a-strangers"}))


@dataclass(frozen=True)
class Secured:
    """One broker that asks everybody who they are."""

    server: KafkaServer
    passwords: dict[str, str]

    def of(self, principal: str, **more: str) -> KafkaSettings:
        told = client_section(Account(principal, self.passwords[principal])) | more
        return KafkaSettings.model_validate({"bootstrap": self.server.bootstrap, "partitions": 2} | told)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    passwords = {name: f"password-of-{name}" for name in (*PRINCIPALS, OPERATOR)}
    with KafkaServer(tmp_path_factory.mktemp("kafka"), account=Account(BROKER, "password-of-broker")) as server:
        found = Secured(server, passwords)
        secure(server.own_client, passwords)
        create_topics(found.of(OPERATOR))
        yield found


@pytest.mark.parametrize("principal", sorted(PRINCIPALS))
def test_a_principal_may_do_what_the_table_says_and_nothing_else(kafka: Secured, principal: str) -> None:
    settings = kafka.of(principal)
    tried = (
        (TOPIC, WRITE, writes, NAMES),
        (TOPIC, READ, reads, NAMES),
        (TOPIC, DESCRIBE, describes, NAMES),
        (GROUP, READ, joins, GROUPS),
        (TRANSACTIONAL_ID, WRITE, transacts, TRANSACTIONS),
    )
    for kind, operation, attempt, names in tried:
        let = {name for name in names if allowed(principal, kind, name, operation)}
        assert attempt(settings, names) == let, f"{principal}: {operation} of {kind}"


@pytest.mark.parametrize("principal", sorted(PRINCIPALS))
def test_no_principal_but_the_operator_changes_topics_accounts_or_grants(kafka: Secured, principal: str) -> None:
    settings = kafka.of(principal)
    for attempt in (lambda: create_topics(settings, timeout_s=10), lambda: grant_all(settings), lambda: secure(settings, {"mallory": "x"})):
        with pytest.raises((BusUnavailableError, KafkaException)):
            attempt()
    admin = AdminClient(settings.client_config(log_level=0))
    with pytest.raises(KafkaException):
        admin.delete_topics(["trainhouse.decisions"], request_timeout=10)["trainhouse.decisions"].result(20)
    own = {group for group in GROUPS if allowed(principal, GROUP, group, READ)}
    assert set(_groups(admin)) <= own


def test_the_account_that_expires_makes_a_whole_pass_and_what_ended_is_gone(kafka: Secured) -> None:
    ended = JobStatus(job_id="ended", status_seq=9, state=JobState.SUCCEEDED, reason="", project="default")
    producer = EventProducer(kafka.of("scheduler"))
    create_project_topics(kafka.of(OPERATOR), "vision")
    for topic in (STATUS, status_topic("vision")):
        producer.send(topic, envelope_of(ended, id="ended-9", source="test", now_ms=1), key="ended", partition=0)
    producer.flush()
    with closing(KafkaTopics(kafka.of("expire"))) as topics:
        for name in (STATUS, status_topic("vision")):
            until(lambda name=name: "ended" in newest(topics, name), f"the status on {name}")  # type: ignore[misc]

        def passed() -> bool:
            """Two records are needed for one to be old by the brokers' clock: each look sends one more."""
            for topic in (STATUS, status_topic("vision")):
                producer.send(topic, envelope_of(ended, id="later", source="test", now_ms=1), key="later", partition=0)
            producer.flush()
            bury(topics, look(topics, round(time.time() * 1000), 1, lambda topic, partition: EVER))
            return not any("ended" in newest(topics, name) for name in (STATUS, status_topic("vision")))

        until(passed, "a pass deleted what ended")


def newest(topics: KafkaTopics, name: str) -> set[str]:
    """The keys that have a value."""
    found = {record.key: record.value for record in topics.records(name, 0)}
    return {(key or b"").decode() for key, value in found.items() if value}


def _groups(admin: AdminClient) -> list[str]:
    return [group.group_id for group in admin.list_consumer_groups(request_timeout=60).result(90).valid]


def test_the_operator_may_do_everything(kafka: Secured) -> None:
    settings = kafka.of(OPERATOR)
    assert writes(settings, NAMES) == reads(settings, NAMES) == describes(settings, NAMES) == set(NAMES)


REFUSED = [
    {"security_protocol": "PLAINTEXT", "sasl_mechanism": None},
    {"sasl_password": "wrong"},  # pragma: allowlist secret
    {"sasl_password": " "},
    {"sasl_username": "mallory"},
    {"sasl_mechanism": "PLAIN"},
    {"sasl_username": BROKER},
    {"sasl_username": BROKER, "sasl_mechanism": "PLAIN"},
    {"sasl_mechanism": "SCRAM-SHA-256"},
]


@pytest.fixture(scope="module")
def refusals(kafka: Secured) -> Iterator[dict[tuple[str, int], Future[object]]]:
    """What brokers answer to each, at both of their ports; asked at once, since a client that is refused asks until its time is over."""

    def ask(settings: KafkaSettings, port: int) -> object:
        at = settings.model_copy(update={"bootstrap": f"127.0.0.1:{port}"})
        return AdminClient(at.client_config(log_level=0)).list_topics(timeout=3)

    server, operator = kafka.server, kafka.of(OPERATOR)
    asked = {
        (str(changed), port): operator.model_copy(update=changed) for changed in REFUSED for port in (server.port, server.controller_port)
    }
    asked |= {(principal, server.controller_port): kafka.of(principal) for principal in (OPERATOR, "scheduler")}
    with ThreadPoolExecutor(len(asked)) as pool:
        yield {key: pool.submit(ask, settings, key[1]) for key, settings in asked.items()}


@pytest.mark.parametrize("changed", REFUSED, ids=str)
def test_without_the_password_no_broker_answers(
    kafka: Secured, refusals: dict[tuple[str, int], Future[object]], changed: dict[str, str]
) -> None:
    for port in (kafka.server.port, kafka.server.controller_port):
        with pytest.raises(KafkaException):
            refusals[str(changed), port].result(60)


def test_the_controller_answers_no_account_but_the_brokers_own(kafka: Secured, refusals: dict[tuple[str, int], Future[object]]) -> None:
    for principal in (OPERATOR, "scheduler"):
        with pytest.raises(KafkaException):
            refusals[principal, kafka.server.controller_port].result(60)


def test_what_the_table_no_longer_has_is_taken_away(kafka: Secured) -> None:
    own = kafka.server.own_client
    admin = AdminClient(own.client_config(log_level=0))

    def row(principal: str) -> AclBinding:
        kind, pattern, operation = ResourceType.TOPIC, ResourcePatternType.LITERAL, AclOperation.WRITE
        return AclBinding(kind, "trainhouse.decisions", pattern, f"User:{principal}", "*", operation, AclPermissionType.ALLOW)

    def writers() -> set[str]:
        return {b.principal for b in _bindings(admin) if b.name == "trainhouse.decisions" and b.operation == AclOperation.WRITE}

    for future in admin.create_acls([row("agent"), row("a-persons-own")], request_timeout=20).values():
        future.result(20)
    until(lambda: len(writers()) == 3, "the brokers' own view of it")
    grant_all(own)
    until(lambda: writers() == {"User:scheduler", "User:a-persons-own"}, lambda: str(writers()))


def test_passwords_are_in_files_of_their_owner_alone_and_in_no_argument(kafka: Secured) -> None:
    assert kafka.server.config_file.stat().st_mode & 0o777 == 0o600
    assert "password-of-broker" in kafka.server.config_file.read_text()
    assert not any("password-of" in word for word in kafka.server.command())
    assert "password-of" not in kafka.server.log_file.read_text()


def test_the_table_is_about_topics_that_there_are() -> None:
    assert {row.name for row in grants() if row.kind == TOPIC and not row.prefixed} <= set(NAMES)

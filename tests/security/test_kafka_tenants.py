"""A project's own account on the brokers: what its people try who hold its password, and what is left when it is taken away."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.security.kafka_support import describes, joins, outcome, reads, transacts, writes
from tests.support.waiting import until
from trainhouse.deploy.local import client_config
from trainhouse.deploy.local.layout import Choices, StackFolder, StackPorts
from trainhouse.deploy.local.servers.kafka_sasl import client_section
from trainhouse.deploy.local.supervision.stack_parts import kafka_server
from trainhouse.events.bus.accounts import grant_all, lets_in, secure
from trainhouse.events.bus.admin import create_topics
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.security.grants import DESCRIBE, GROUP, OPERATOR, PRINCIPALS, READ, TOPIC, TRANSACTIONAL_ID, WRITE, allowed
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire import topics
from trainhouse.events.wire.project_topics import jobs_topic, status_topic

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]
# Names of which one begins as another, and as the platform's own topics and groups do.
PROJECTS = ("a", "a-b", "trainhouse")
NAMES = (*(t.name for t in topics.TOPICS), *(name(p) for p in PROJECTS for name in (jobs_topic, status_topic)))
GROUPS = (
    *sorted({group.replace("*", "0") for needs in PRINCIPALS.values() for group in needs.groups}),
    *(f"{begin}{p}{end}" for p in PROJECTS for begin in ("", "project-") for end in ("", ".x", "-x")),
)
TRANSACTIONS = ("trainhouse.decisions-0", "trainhouse-alerts", "project-a", "project-a.x", "a.x")


@dataclass(frozen=True)
class Stack:
    """A folder as `up` leaves it, and its broker."""

    folder: StackFolder
    ports: StackPorts
    tenants: dict[str, KafkaSettings]

    @property
    def operator(self) -> KafkaSettings:
        told = client_section(client_config.account(self.folder, OPERATOR))
        return KafkaSettings.model_validate({"bootstrap": f"127.0.0.1:{self.ports.kafka}", "partitions": 2} | told)

    def run(self, *words: str, code: int = 0) -> str:
        """A command in this folder."""
        return trainhouse(*words, "--data-dir", str(self.folder.root), code=code)

    def account(self, project: str, *more: str) -> KafkaSettings:
        """What its people export."""
        return settings_of(self.run("project", "account", "create", project, *more))


def trainhouse(*words: str, code: int = 0, cwd: Path | None = None, **env: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TRAINHOUSE_")}
    ran = subprocess.run(
        [sys.executable, "-m", "trainhouse.cli.main", *words], env=clean | env, cwd=cwd, capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == code, ran.stdout + ran.stderr
    return ran.stdout if code == 0 else ran.stderr


def settings_of(exports: str) -> KafkaSettings:
    pairs = (shlex.split(line)[1].partition("=") for line in exports.splitlines())
    found = {name: value for name, _, value in pairs}
    assert all(name.startswith("TRAINHOUSE_KAFKA_") for name in found)
    return KafkaSettings.model_validate({name.removeprefix("TRAINHOUSE_KAFKA_").lower(): value for name, value in found.items()})


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder, ports = StackFolder(tmp_path_factory.mktemp("stack")), StackPorts.free()
    folder.make()
    choices = Choices(ports.numbers, 1)
    client_config.write(folder, choices, client_config.keys_of(folder))
    folder.write_choices(choices)
    with kafka_server(folder, ports) as server:
        secure(server.own_client, client_config.passwords(folder))
        found = Stack(folder, ports, {})
        create_topics(found.operator)
        for project in PROJECTS:
            found.tenants[project] = found.account(project)
        yield found


@pytest.mark.parametrize("project", PROJECTS)
def test_a_project_writes_its_requests_and_reads_its_statuses_and_nothing_else(stack: Stack, project: str) -> None:
    settings, principal = stack.tenants[project], f"project-{project}"
    assert settings.sasl_username == principal
    tried = (
        (TOPIC, WRITE, writes, NAMES, {jobs_topic(project)}),
        (TOPIC, READ, reads, NAMES, {status_topic(project)}),
        (TOPIC, DESCRIBE, describes, NAMES, {jobs_topic(project), status_topic(project)}),
        (GROUP, READ, joins, GROUPS, {f"project-{project}.x"}),
        (TRANSACTIONAL_ID, WRITE, transacts, TRANSACTIONS, set()),
    )
    for kind, operation, attempt, names, let in tried:
        assert {name for name in names if allowed(principal, kind, name, operation)} == let
        assert attempt(settings, names) == let, f"{principal}: {operation} of {kind}"


def test_a_project_changes_no_topics_accounts_or_grants_and_ends_no_records(stack: Stack) -> None:
    settings = stack.tenants["a"]
    for attempt in (
        lambda: create_topics(settings, timeout_s=10),
        lambda: grant_all(settings),
        lambda: secure(settings, {"project-a": "x", "mallory": "x"}),
    ):
        with pytest.raises((BusUnavailableError, KafkaException)):
            attempt()
    admin = AdminClient(settings.client_config(log_level=0))
    for name in (status_topic("a"), jobs_topic("a"), status_topic("a-b")):
        with pytest.raises(KafkaException):
            admin.delete_topics([name], request_timeout=10)[name].result(20)
        (deletion,) = admin.delete_records([TopicPartition(name, 0, -1)], request_timeout=10).values()
        with pytest.raises(KafkaException):
            deletion.result(20)


def test_what_projects_hold_is_listed_without_it_and_kept_by_the_next_start(stack: Stack) -> None:
    listed = stack.run("credentials", "list", "--json")
    assert all(f'"project-{project}"' in listed for project in PROJECTS)
    assert not any(str(settings.sasl_password) in listed for settings in stack.tenants.values())
    secure(kafka_server(stack.folder, stack.ports).own_client, client_config.passwords(stack.folder))
    assert writes(stack.tenants["a"], NAMES) == {jobs_topic("a")}
    assert stack.account("a") == stack.tenants["a"], "a repeat prints the same"


def test_a_new_password_ends_the_old_one_and_a_removal_ends_open_connections_too(stack: Stack) -> None:
    before = stack.account("gone")
    after = stack.account("gone", "--new-password")
    until(lambda: not lets_in(before), "the old password is refused")
    topic, took = jobs_topic("gone"), list[bool]()

    def sent(producer: Producer) -> bool:
        producer.produce(topic, b"", on_delivery=lambda error, _: took.append(outcome(error)))
        assert producer.flush(20) == 0
        return took[-1]

    producer = Producer(after.client_config(**{"log_level": 0, "linger.ms": 0}))
    assert sent(producer)
    assert "no account any more" in stack.run("project", "account", "remove", "gone")
    until(lambda: not sent(producer), "the open connection may write no more")
    until(lambda: not lets_in(after), "the account is gone")
    assert "had no account" in stack.run("project", "account", "remove", "gone")
    assert "project-gone" not in stack.run("credentials", "list", "--json")
    assert writes(stack.tenants["a"], NAMES) == {jobs_topic("a")}, "others go on"


def test_on_a_cluster_of_ones_own_nobody_keeps_the_password(stack: Stack, tmp_path: Path) -> None:
    operator = {f"TRAINHOUSE_KAFKA_{n.upper()}": str(v) for n, v in stack.operator.model_dump(exclude_none=True).items()}
    create = ("project", "account", "create", "far")
    first = settings_of(trainhouse(*create, cwd=tmp_path, **operator))
    assert writes(first, (*NAMES, jobs_topic("far"))) == {jobs_topic("far")}
    assert "--new-password" in trainhouse(*create, cwd=tmp_path, code=3, **operator)
    second = settings_of(trainhouse(*create, "--new-password", cwd=tmp_path, **operator))
    assert lets_in(second) and until(lambda: not lets_in(first))
    assert "project-far" not in stack.run("credentials", "list")
    trainhouse("project", "account", "remove", "far", cwd=tmp_path, **operator)
    until(lambda: not lets_in(second))


def test_a_name_that_could_be_read_as_anothers_has_no_account(stack: Stack) -> None:
    for name in ("a.b", "*", "a b"):
        assert "cannot have topics" in stack.run("project", "account", "create", name, code=2)


def test_the_grants_are_printed_for_brokers_whose_accounts_are_made_elsewhere() -> None:
    told = trainhouse("project", "account", "acls", "a", "--principal", "User:CN=a b")
    lines = [shlex.split(line) for line in told.splitlines()]
    assert {tuple(line[6:]) for line in lines} == {
        ("--operation", "Read", "--topic", status_topic("a"), "--resource-pattern-type", "literal"),
        ("--operation", "Write", "--topic", jobs_topic("a"), "--resource-pattern-type", "literal"),
        ("--operation", "Read", "--group", "project-a.", "--resource-pattern-type", "prefixed"),
    }
    assert all(line[4:6] == ["--allow-principal", "User:CN=a b"] for line in lines)

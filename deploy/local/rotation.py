"""New passwords and keys for a stack, also while it runs: `trainhouse credentials rotate`.

Holds: parts are started again with their new passwords at once, the agent without its ranks noticing. What was cut short is put right by
the next `rotate` of the same servers, or by `down` and `up`: the own password of the broker that runs is kept until its restart. The store
takes its old key beside the new one until that is retired: ranks hold it.
Never: prints a password; ends a job.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from trainhouse.deploy.local import client_config, credentials, kafka_sasl, parts, supervisor_client
from trainhouse.deploy.local.folders import alone, started
from trainhouse.deploy.local.kafka_sasl import Account
from trainhouse.deploy.local.layout import Choices, StackFolder, StackPorts, endpoint
from trainhouse.deploy.local.startup import Startup
from trainhouse.deploy.local.store import StoreKeys
from trainhouse.events.grants import PRINCIPALS
from trainhouse.events.securing import lets_in, set_passwords
from trainhouse.events.settings import KafkaSettings

KAFKA, STORE, SQL, GATEWAY = "kafka", "store", "sql", "gateway"
SERVERS = (KAFKA, STORE, SQL, GATEWAY)
# Not the gateway's: every token that was given out ends with its key.
BY_DEFAULT = (KAFKA, STORE, SQL)
OF_STORE = ("projector", "intake", "scheduler", "gateway", parts.AGENT)
OF_SQL = ("projector", "alerts", "gateway")

Say = Callable[[str], None]


@dataclass(frozen=True)
class Credential:
    """One password or key, without it."""

    server: str
    name: str
    made_at: datetime | None
    note: str = ""


class Rotation:
    """One rotation in one folder."""

    def __init__(self, folder: StackFolder, choices: Choices, say: Say) -> None:
        self._folder = folder
        self._choices = choices
        self._say = say
        self._runs = supervisor_client.supervisor_pid(folder) is not None

    def rotate(self, servers: tuple[str, ...]) -> None:
        """Blocks, for about as long as a start takes. Raises a StackError."""
        steps = {KAFKA: self._kafka, STORE: self._store, SQL: self._sql, GATEWAY: self._gateway}
        changed: set[str] = set()
        for server in servers:
            changed |= steps[server]()
        if self._runs:
            self._startup().restart(tuple(name for name in parts.NAMES if name in changed))
        self._say("done" if self._runs else "done; the next `trainhouse up` goes by them")

    def retire(self) -> None:
        """Takes the store's old key away: what still holds it is refused from then on."""
        credentials.forget(self._folder, STORE, client_config.OLD_KEY)
        self._tell_store()
        self._say("store      takes its newest key alone")

    def _kafka(self) -> set[str]:
        own = self._broker_as_it_runs()
        new = {name: credentials.renew(self._folder, KAFKA, name) for name in client_config.passwords(self._folder)}
        self._rewrite()
        if self._runs:
            set_passwords(self._as(own), new)
            client_config.keep_old_broker(self._folder, own.password)
        # The broker reads its own password at a start; connections of the others go on over that.
        credentials.renew(self._folder, KAFKA, kafka_sasl.BROKER)
        server = parts.kafka_server(self._folder, self._ports)
        server.prepare()
        self._say(f"kafka      {len(new) + 1} accounts have new passwords")
        for project in client_config.projects_with_accounts(self._folder):
            self._say(f"           tell project {project} its new one: `trainhouse project account create {project}` prints it")
        return {"kafka", *PRINCIPALS}

    def _broker_as_it_runs(self) -> Account:
        """Its own account: that of before, if a rotation was cut short between the change of its password and its restart."""
        newest, old = client_config.account(self._folder, kafka_sasl.BROKER), client_config.old_broker(self._folder)
        return newest if not self._runs or old is None or lets_in(self._as(newest)) else old

    def _as(self, account: Account) -> KafkaSettings:
        return kafka_sasl.own_settings(endpoint(self._ports.kafka), account)

    def _store(self) -> set[str]:
        old, new = client_config.keys_of(self._folder), StoreKeys.new()
        client_config.keep_old_key(self._folder, old)
        credentials.note(self._folder, STORE, client_config.KEY)
        client_config.write(self._folder, self._choices, new)
        self._tell_store()
        self._say("store      has a new key; the old one is taken too until `trainhouse credentials retire`, for ranks that run")
        return set(OF_STORE)

    def _tell_store(self) -> None:
        server = parts.store_server(self._folder, self._ports, client_config.keys_of(self._folder))
        server.write_keys()
        if self._runs:
            supervisor_client.signal(self._folder, "servers", "store", "HUP")
            _until_taken(server.answers)

    def _sql(self) -> set[str]:
        names = [each.name for each in credentials.known(self._folder) if each.server == SQL]
        for name in names:
            credentials.renew(self._folder, SQL, name)
        self._rewrite()
        return set(OF_SQL) if names else set()

    def _gateway(self) -> set[str]:
        client_config.gateway_key(self._folder).unlink()
        client_config.gateway_key(self._folder)
        client_config.local_token(self._folder).unlink(missing_ok=True)
        self._say("gateway    signs with a new key: every token that was given out has ended; yours is new")
        return {"gateway"}

    def _rewrite(self) -> None:
        client_config.write(self._folder, self._choices, client_config.keys_of(self._folder))

    def _startup(self) -> Startup:
        return Startup(self._folder, self._ports, client_config.keys_of(self._folder), self._say)

    @property
    def _ports(self) -> StackPorts:
        return StackPorts(self._choices.ports)


def rotate(root: Path, servers: tuple[str, ...] = BY_DEFAULT, say: Say = print) -> None:
    """New credentials for these servers; NotRunning where no stack was ever started."""
    with alone(started(root)) as (folder, choices):
        Rotation(folder, choices, say).rotate(servers)


def retire(root: Path, say: Say = print) -> None:
    """Ends what a rotation left valid; NotRunning where no stack was ever started."""
    with alone(started(root)) as (folder, choices):
        Rotation(folder, choices, say).retire()


def listing(root: Path) -> list[Credential]:
    """Every credential of a stack and when it was made."""
    folder = started(root)
    others = [each for each in credentials.known(folder) if each.server != STORE]
    notes = {client_config.OLD_BROKER: "a rotation was cut short: rotate again"}
    found = [Credential(each.server, each.name, each.made_at, notes.get(each.name, "")) for each in others]
    older = [each for each in credentials.known(folder) if each.server == STORE]
    found.append(Credential(STORE, client_config.KEY, credentials.noted(folder, STORE, client_config.KEY)))
    found += [Credential(STORE, each.name, each.made_at, "until `trainhouse credentials retire`") for each in older]
    key = client_config.gateway_key(folder)
    found.append(Credential(GATEWAY, "signing key", datetime.fromtimestamp(key.stat().st_mtime, UTC)))
    return found


def _until_taken(answers: Callable[[], bool], timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not answers() and time.monotonic() < deadline:
        time.sleep(0.1)

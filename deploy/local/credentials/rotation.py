"""New passwords and keys for a stack, also while it runs: `trainhouse credentials rotate`.

Holds: parts are started again with their new passwords at once, the agent without its ranks noticing; the gateway reads its tokens' keys
again by itself. The store, the gateway and who checks signatures take what was before until it is retired. What was cut short is put right
by the next `rotate`, of whatever, or by the next `up`: the own password of the broker that runs is kept until its restart.
Never: prints a password; ends a job.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from trainhouse.deploy.local import client_config
from trainhouse.deploy.local.change_folder import alone, started
from trainhouse.deploy.local.credentials import key_rotation, passwords, rotation_note, signing_keys, token_keys
from trainhouse.deploy.local.credentials.rotation_plan import (
    GATEWAY,
    KAFKA,
    RETIRED,
    SERVERS,
    SIGNING,
    SQL,
    STORE,
    Step,
    plan,
    started_again,
)
from trainhouse.deploy.local.errors import HalfRotatedError, NotReadyError, TooManyKeptError
from trainhouse.deploy.local.layout import Choices, StackFolder, StackPorts, endpoint
from trainhouse.deploy.local.servers import kafka_sasl
from trainhouse.deploy.local.servers.kafka_sasl import Account
from trainhouse.deploy.local.servers.seaweedfs import StoreKeys
from trainhouse.deploy.local.supervision import stack_parts, supervisor_client
from trainhouse.deploy.local.supervision.startup import Startup
from trainhouse.events.bus.accounts import lets_in, set_passwords
from trainhouse.events.settings import KafkaSettings

MAX_OF_BEFORE = 8
TAKEN_TIMEOUT_S = 30.0

Say = Callable[[str], None]


class Rotation:
    """One rotation in one folder."""

    def __init__(self, folder: StackFolder, choices: Choices, say: Say) -> None:
        self._folder = folder
        self._choices = choices
        self._say = say
        self._runs = supervisor_client.supervisor_pid(folder) is not None

    def rotate(self, servers: Sequence[str]) -> None:
        """Blocks, for about as long as a start takes. Raises a StackError."""
        if left := rotation_note.pending(self._folder):
            # However many keys are kept: only when it is finished can they be retired.
            self._say(f"a rotation of {', '.join(left)} was cut short; it is done anew with this one")
        else:
            self._refuse_too_many()
        whole = rotation_note.begin(self._folder, servers)
        for step in plan(whole, self._runs):
            self._do(step, whole)
        rotation_note.over(self._folder)
        self._say("done" if self._runs else "done; the next `trainhouse up` goes by them")

    def retire(self, servers: Sequence[str]) -> None:
        """Ends what a rotation left valid. Raises a StackError."""
        if left := rotation_note.pending(self._folder):
            raise HalfRotatedError(
                f"a rotation of {', '.join(left)} was cut short, so parts may still go by what was before: "
                "run `trainhouse credentials rotate` first, or `trainhouse down` and `trainhouse up`"
            )
        if STORE in servers:
            client_config.forget_old_keys(self._folder)
            self._update_store_keys(client_config.keys_of(self._folder))
            self._say("store      takes its newest key alone")
        if SIGNING in servers:
            for private, listed, _ in self._signing():
                key_rotation.retire(private, listed)
            self._say("signing    the newest keys count alone; lists on other machines are yours to change")
        if GATEWAY in servers:
            token_keys.retire(self._folder)
            self._say("gateway    takes tokens of its newest key alone: those from before have ended, and their streams end within seconds")

    def _do(self, step: Step, servers: Sequence[str]) -> None:
        match step:
            case Step.SIGNING_KEYS:
                self._renew_signing()
            case Step.TOKEN_KEY:
                token_keys.renew(self._folder)
                self._say("gateway    signs tokens with a new key; those that were given out count until `trainhouse credentials retire`")
            case Step.STORE_TAKES:
                self._store_takes()
            case Step.STORE_USED:
                self._store_used()
            case Step.SQL_PASSWORDS:
                self._renew_sql()
            case Step.KAFKA_PASSWORDS:
                self._renew_kafka()
            case Step.BROKER_PASSWORD:
                self._renew_broker()
            case Step.RESTART:
                self._startup().restart(started_again(servers))

    def _renew_signing(self) -> None:
        self._rewrite()  # a folder of an older version gets its lists
        for private, listed, prefix in self._signing():
            key_rotation.renew(private, listed, prefix)
        self._say("signing    has new keys; those of before count until `trainhouse credentials retire`")

    def _signing(self) -> tuple[tuple[Path, Path, str], ...]:
        """Private keys, the lists of their public halves, and what stands there before one."""
        folder = self._folder
        return (
            (signing_keys.platform_key(folder), signing_keys.platform_keys(folder), ""),
            (signing_keys.operations_key(folder), signing_keys.operations_keys(folder), signing_keys.persons_prefix()),
            (signing_keys.gateway_key(folder), signing_keys.operations_keys(folder), signing_keys.GATEWAY_PREFIX),
        )

    def _renew_kafka(self) -> None:
        new = {name: passwords.renew(self._folder, KAFKA, name) for name in client_config.passwords(self._folder)}
        self._rewrite()
        if self._runs:
            set_passwords(self._as(self._broker_as_it_runs()), new)
        self._say(f"kafka      {len(new) + 1} accounts have new passwords")
        for project in client_config.projects_with_accounts(self._folder):
            self._say(f"           tell project {project} its new one: `trainhouse project account create {project}` prints it")

    def _renew_broker(self) -> None:
        if self._runs:
            # The broker reads its own password at a start; connections of the others go on over that.
            client_config.keep_old_broker(self._folder, self._broker_as_it_runs().password)
        passwords.renew(self._folder, KAFKA, kafka_sasl.BROKER)
        stack_parts.kafka_server(self._folder, self._ports).prepare()

    def _broker_as_it_runs(self) -> Account:
        """Its own account: that of before, if a rotation was cut short between the change of its password and its restart."""
        newest, old = client_config.account(self._folder, kafka_sasl.BROKER), client_config.old_broker(self._folder)
        return newest if not self._runs or old is None or lets_in(self._as(newest)) else old

    def _as(self, account: Account) -> KafkaSettings:
        return kafka_sasl.own_settings(endpoint(self._ports.kafka), account)

    def _store_takes(self) -> None:
        new = client_config.next_key(self._folder)
        self._update_store_keys(client_config.keys_of(self._folder), new)

    def _store_used(self) -> None:
        new = client_config.next_key(self._folder)
        client_config.keep_old_key(self._folder, client_config.keys_of(self._folder))
        passwords.note(self._folder, STORE, client_config.KEY)
        client_config.write(self._folder, self._choices, new)
        client_config.forget_next_key(self._folder)
        self._say("store      has a new key; the old one is taken too until `trainhouse credentials retire`, for ranks that run")

    def _update_store_keys(self, keys: StoreKeys, new: StoreKeys | None = None) -> None:
        """Gives the store the keys that it takes: that of now, the new one, and those of before."""
        server = stack_parts.store_server(self._folder, self._ports, keys)
        server.write_keys()
        if not self._runs:
            return
        supervisor_client.signal(self._folder, "servers", "store", "HUP")
        shown = server if new is None else stack_parts.store_server(self._folder, self._ports, new)
        if not _came(shown.answers):
            raise NotReadyError(
                f"the store did not take its new key within {TAKEN_TIMEOUT_S:g} s; parts go on with the old one: rotate again"
            )

    def _renew_sql(self) -> None:
        for name in [each.name for each in passwords.known(self._folder) if each.server == SQL]:
            passwords.renew(self._folder, SQL, name)
        self._rewrite()

    def _refuse_too_many(self) -> None:
        kept = max(
            len(client_config.old_keys(self._folder)),
            len(token_keys.of_before(self._folder)),
            *(key_rotation.of_before(listed) for _, listed, _ in self._signing()),
        )
        if kept >= MAX_OF_BEFORE:
            raise TooManyKeptError(f"{kept} keys of before are still taken, no more are kept: run `trainhouse credentials retire` first")

    def _rewrite(self) -> None:
        client_config.write(self._folder, self._choices, client_config.keys_of(self._folder))

    def _startup(self) -> Startup:
        return Startup(self._folder, self._ports, client_config.keys_of(self._folder), self._say)

    @property
    def _ports(self) -> StackPorts:
        return StackPorts(self._choices.ports)


def rotate(root: Path, servers: Sequence[str] = SERVERS, say: Say = print) -> None:
    """New credentials for these servers; NotRunningError where no stack was ever started."""
    with alone(started(root)) as (folder, choices):
        Rotation(folder, choices, say).rotate(servers)


def retire(root: Path, servers: Sequence[str] = RETIRED, say: Say = print) -> None:
    """Ends what a rotation left valid; NotRunningError where no stack was ever started."""
    with alone(started(root)) as (folder, choices):
        Rotation(folder, choices, say).retire(servers)


def _came(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + TAKEN_TIMEOUT_S
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True

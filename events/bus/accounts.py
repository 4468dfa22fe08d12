"""Accounts and grants on the brokers: those of the table are made, those of its principals that it no longer has are taken away.

Holds: idempotent; a connection that is open stays open when its password changes.
Never: touches grants of principals that are not in the table; logs a password.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, cast

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.security.grants import PRINCIPALS, Grant, grants, project_account, project_grants, project_of_account
from trainhouse.events.settings import KafkaSettings

# What Kafka itself takes at least; generated passwords of 240 bits need no slow hash.
ITERATIONS = 4096
TIMEOUT_S = 30.0
LOOK_S = 2.0
POLL_S = 0.05
MECHANISM = "SCRAM-SHA-512"
ANYWHERE = "*"
PREFIX = "User:"


def secure(settings: KafkaSettings, passwords: Mapping[str, str]) -> None:
    """Gives every account its password and every principal its grants, as who may do everything. Blocks. Raises BusUnavailableError."""
    set_passwords(settings, passwords)
    grant_all(settings, [project for name in passwords if (project := project_of_account(name)) is not None])


def secure_project(settings: KafkaSettings, project: str, password: str) -> None:
    """Makes a project's account, or changes its password, and its grants what the table says. Blocks. Raises BusUnavailableError,
    ValueError."""
    wanted = set(project_grants(project))
    set_passwords(settings, {project_account(project): password})
    _make_so(settings, wanted, {project_account(project)})


def has_account(settings: KafkaSettings, name: str) -> bool:
    """Whether there is an account that logs in by SCRAM. Blocks. Raises BusUnavailableError."""
    admin = _admin(settings)  # its answers come as long as it is there
    try:
        found = cast(dict[str, Future[Any]], admin.describe_user_scram_credentials([name], request_timeout=TIMEOUT_S))
        _done(found.values())
    except KafkaException as error:
        if error.args[0].code() == KafkaError.RESOURCE_NOT_FOUND:
            return False
        raise _away(settings, "question for an account", error) from error
    return True


def remove_project(settings: KafkaSettings, project: str) -> bool:
    """Takes a project's account and its grants away; whether there was any. Blocks. Raises BusUnavailableError.

    Its grants go first: they end what an open connection may do, which the end of the account alone does not.
    """
    admin, name = _admin(settings), project_account(project)
    try:
        rows = [binding for binding in _bindings(admin) if binding.principal == f"{PREFIX}{name}"]
        if rows:
            _done(admin.delete_acls([_exactly(row) for row in rows], request_timeout=TIMEOUT_S).values())
            _until(lambda: not any(binding.principal == f"{PREFIX}{name}" for binding in _bindings(admin)))
        deletion: list[UserScramCredentialAlteration] = [UserScramCredentialDeletion(name, ScramMechanism.SCRAM_SHA_512)]
        _done(admin.alter_user_scram_credentials(deletion, request_timeout=TIMEOUT_S).values())
    except KafkaException as error:
        if error.args[0].code() == KafkaError.RESOURCE_NOT_FOUND:
            return bool(rows)
        raise _away(settings, "end of an account", error) from error
    return True


def set_passwords(settings: KafkaSettings, passwords: Mapping[str, str]) -> None:
    """Makes the accounts, or changes their passwords (SCRAM-SHA-512). Blocks. Raises BusUnavailableError."""
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, ITERATIONS)
    wanted: list[UserScramCredentialAlteration] = [
        UserScramCredentialUpsertion(name, info, password.encode()) for name, password in passwords.items()
    ]
    admin = _admin(settings)
    try:
        _done(admin.alter_user_scram_credentials(wanted, request_timeout=TIMEOUT_S).values())
    except KafkaException as error:
        raise _away(settings, "accounts", error) from error
    *_, (name, password) = passwords.items()
    _wait_for(settings.model_copy(update={"sasl_mechanism": MECHANISM, "sasl_username": name, "sasl_password": password}))


def grant_all(settings: KafkaSettings, projects: Iterable[str] = ()) -> None:
    """Makes the brokers' grants those of the table, and of these projects' accounts. Blocks. Raises BusUnavailableError, ValueError."""
    named = tuple(projects)
    _make_so(settings, set(grants(named)), {*PRINCIPALS, *map(project_account, named)})


def _make_so(settings: KafkaSettings, wanted: set[Grant], principals: set[str]) -> None:
    """Makes the grants of these principals what is wanted."""
    admin = _admin(settings)
    try:
        found = {b: g for b in _bindings(admin) if (g := _grant(b)) is not None and g.principal in principals}
        missing = sorted(wanted - set(found.values()))
        surplus = [binding for binding, grant in found.items() if grant not in wanted]
        if missing:
            _done(admin.create_acls([_binding(grant) for grant in missing], request_timeout=TIMEOUT_S).values())
            _until(lambda: wanted <= {g for b in _bindings(admin) if (g := _grant(b)) is not None})
        if surplus:
            _done(admin.delete_acls([_exactly(binding) for binding in surplus], request_timeout=TIMEOUT_S).values())
    except KafkaException as error:
        raise _away(settings, "grants", error) from error


def lets_in(settings: KafkaSettings) -> bool:
    """Whether a broker answers this account within LOOK_S."""
    try:
        return bool(_admin(settings).list_topics(timeout=LOOK_S).brokers)
    except KafkaException:
        return False


def _wait_for(settings: KafkaSettings) -> None:
    """Blocks until a broker lets the account in: it takes changes from the controller's log in their order, some moments later."""
    if not _until(lambda: lets_in(settings)):
        raise BusUnavailableError(f"the brokers at {settings.bootstrap} do not let {settings.sasl_username} in after {TIMEOUT_S:.0f} s")


def _until(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + TIMEOUT_S
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def _admin(settings: KafkaSettings) -> AdminClient:
    return AdminClient(settings.client_config(log_level=0))


def _away(settings: KafkaSettings, what: str, error: KafkaException) -> BusUnavailableError:
    return BusUnavailableError(f"the brokers at {settings.bootstrap} did not take the {what}: {error.args[0].str()}")


def _done(futures: Iterable[Future[Any]]) -> None:
    for future in futures:
        future.result(TIMEOUT_S)


def _bindings(admin: AdminClient) -> list[AclBinding]:
    everyone: Any = None
    everything = AclBindingFilter(
        ResourceType.ANY, everyone, ResourcePatternType.ANY, everyone, everyone, AclOperation.ANY, AclPermissionType.ANY
    )
    found: list[AclBinding] = admin.describe_acls(everything, request_timeout=TIMEOUT_S).result(TIMEOUT_S)
    return found


def _grant(binding: AclBinding) -> Grant | None:
    """A binding as a row of the table; None where it cannot be one."""
    principal = binding.principal.removeprefix(PREFIX)
    if binding.permission_type != AclPermissionType.ALLOW or binding.host != ANYWHERE:
        return None
    prefixed = binding.resource_pattern_type == ResourcePatternType.PREFIXED
    kind, operation = cast(ResourceType, binding.restype), cast(AclOperation, binding.operation)
    return Grant(principal, kind.name, binding.name, operation.name, prefixed)


def _binding(grant: Grant) -> AclBinding:
    pattern = ResourcePatternType.PREFIXED if grant.prefixed else ResourcePatternType.LITERAL
    kind, operation = ResourceType[grant.kind], AclOperation[grant.operation]
    return AclBinding(kind, grant.name, pattern, f"{PREFIX}{grant.principal}", ANYWHERE, operation, AclPermissionType.ALLOW)


def _exactly(binding: AclBinding) -> AclBindingFilter:
    return AclBindingFilter(
        binding.restype,
        binding.name,
        binding.resource_pattern_type,
        binding.principal,
        binding.host,
        binding.operation,
        binding.permission_type,
    )

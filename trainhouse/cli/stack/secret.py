"""`secrets set|grant|revoke|list|remove|rotate-key|declare`: values for the ranks of a project alone.

Holds: a value is read from standard input alone, and kept sealed in a file that only its owner reads; no command prints one. Each command
is in the audit. What the
control plane is told of a secret is its name, its grants and what kind of reference it is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Optional, TypeVar

import typer

from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import Json, KafkaDir
from trainhouse.cli.stack.secret_audit import CommandAudit, audited
from trainhouse.events.model.default_project import DEFAULT_PROJECT

if TYPE_CHECKING:
    from trainhouse.events.model.secret_names import SecretName
    from trainhouse.workers.secretstore.records import SecretRecord
    from trainhouse.workers.secretstore.store import SecretStore

T = TypeVar("T")
SOURCE = "trainhouse/cli"
FLUSH_S = 10.0
Named = Annotated[str, typer.Argument(metavar="[PROJECT/]NAME", help="As the environment variable; without a project: of `default`.")]
To = Annotated[list[str], typer.Option("--to", metavar="PROJECT", help="A project; repeatable.")]


def register(app: typer.Typer) -> None:
    """Adds the group."""
    group = typer.Typer(no_args_is_help=True, help="Keep secrets of this machine's agent: named by specs, seen by ranks alone.")
    group.command("set")(set_)
    group.command("grant")(grant)
    group.command("revoke")(revoke)
    group.command("list")(list_)
    group.command("remove")(remove)
    group.command("rm", hidden=True)(remove)
    group.command("rotate-key")(rotate_key)
    group.command("declare")(declare)
    app.add_typer(group, name="secrets")


def set_(
    name: Named,
    source: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--from", metavar="REFERENCE", help="Where it is instead: file:/PATH, env:NAME, vault:MOUNT/PATH#FIELD, aws:NAME."),
    ] = None,
    data_dir: KafkaDir = None,
) -> None:
    """Read a value from standard input (one final newline is dropped) and keep it sealed; or record where it is. Grants stay.

    \b
    echo "$TOKEN" | trainhouse secrets set HUB_TOKEN
    trainhouse secrets set vision/HUB_TOKEN --from vault:secret/vision/hub#token
    """
    from trainhouse.workers.secretstore.records import SecretRecord
    from trainhouse.workers.secretstore.references import parse_reference

    with audited("set") as audit:
        secret, store = audited_name(name, audit), kept()
        reference = None if source is None else checked(lambda: parse_reference(source))
        audit.named(str(secret), secret.project, "kept" if reference is None else str(reference))
        value = None if reference is not None else read_value(name)
        before = checked(lambda: store.get(secret))
        record = SecretRecord(secret, value, reference, before.grants if before else ())
        audit.granted()
        checked(lambda: store.put(record))
        inform([record])
    variable = secret.name if secret.project == DEFAULT_PROJECT else f"{secret.name}` of project {secret.project}, `{secret}"
    sys.stderr.write(f"kept {secret}; a spec names it by `secrets: [{variable}]`, `submit` by --secret {secret}\n")


def read_value(name: str) -> bytes:
    """The value on standard input. Raises CliError."""
    from trainhouse.workers.secretstore.store import MAX_SECRET_BYTES

    if sys.stdin.isatty():
        import getpass

        value = getpass.getpass(f"value of {name}: ").encode()
    else:
        value = sys.stdin.buffer.read(MAX_SECRET_BYTES + 2)
        value = value[:-1] if value.endswith(b"\n") else value
    if not value:
        raise CliError(f"the value of {name} is empty: send it on standard input", Exit.USAGE)
    if len(value) > MAX_SECRET_BYTES or b"\0" in value:
        raise CliError(
            f"the value of {name} has more than {MAX_SECRET_BYTES} bytes or a zero byte; an environment cannot hold it", Exit.USAGE
        )
    return value


def grant(name: Named, to: To, data_dir: KafkaDir = None) -> None:
    """Let jobs of other projects use a secret.

    \b
    trainhouse secrets grant vision/HUB_TOKEN --to speech
    """
    change("grant", name, to, lambda record: _each(record, to, "granted"))


def revoke(name: Named, to: To, data_dir: KafkaDir = None) -> None:
    """Take grants back. Ranks that run keep what they got until they end.

    \b
    trainhouse secrets revoke vision/HUB_TOKEN --to speech
    """
    change("revoke", name, to, lambda record: _each(record, to, "revoked"))


def _each(record: SecretRecord, projects: list[str], how: str) -> SecretRecord:
    for project in projects:
        record = getattr(record, how)(project)
    return record


def change(action: str, name: str, projects: list[str], how: Callable[[SecretRecord], SecretRecord]) -> None:
    """Replaces what is known of a secret, but for its value."""
    with audited(action) as audit:
        secret, store = audited_name(name, audit), kept()
        audit.named(str(secret), secret.project, f"projects {', '.join(projects)}")
        record = checked(lambda: store.get(secret))
        if record is None:
            raise unknown(secret)
        changed = how(record)
        audit.granted()
        checked(lambda: store.put(changed))
        inform([changed])
    sys.stderr.write(f"{secret} may be used by projects {', '.join([secret.project, *changed.grants])}\n")


def list_(json: Json = False, data_dir: KafkaDir = None) -> None:
    """List names of secrets, where each is, and whom it is granted to; never a value.

    \b
    trainhouse secrets list --json
    """
    from trainhouse.cli.shared.output import json_lines

    with audited("list") as audit:
        store = kept()
        rows = []
        for secret in store.names():
            record = checked(lambda secret=secret: store.get(secret))  # type: ignore[misc]
            where = "kept" if record is None or record.reference is None else str(record.reference)
            rows.append({"name": secret.name, "project": secret.project, "where": where, "grants": list(record.grants) if record else []})
        audit.named("*", "", f"{len(rows)} names")
        audit.granted()
    if json:
        json_lines(rows)
        return
    for secret, row in zip(store.names(), rows, strict=False):
        granted = f"  granted to {', '.join(row['grants'])}" if row["grants"] else ""
        sys.stdout.write(f"{secret}  {row['where']}{granted}\n")


def remove(name: Named, data_dir: KafkaDir = None) -> None:
    """Remove a secret. Ranks that run keep what they got.

    \b
    trainhouse secrets remove vision/HUB_TOKEN
    """
    with audited("remove") as audit:
        secret, store = audited_name(name, audit), kept()
        if secret not in store.names():
            raise unknown(secret)
        audit.granted()
        if not checked(lambda: store.remove(secret)):
            raise unknown(secret)
        inform([], [secret])


def rotate_key(data_dir: KafkaDir = None) -> None:
    """Make a new key and seal every secret with it; the old key opens nothing any more. Jobs run on.

    \b
    trainhouse secrets rotate-key
    """
    with audited("rotate-key") as audit:
        store = kept()
        audit.named("*", "", str(store.key.path))
        audit.granted()
        count = checked(store.rotate_key)
    sys.stderr.write(f"{count} secrets are sealed with a new key in {store.key.path}\n")


def declare(data_dir: KafkaDir = None) -> None:
    """Declare every secret on this machine to the control plane again: names, grants and kinds, so that it rejects jobs without a grant.

    \b
    trainhouse secrets declare
    """
    store = kept()
    records = [record for name in store.names() if (record := checked(lambda name=name: store.get(name))) is not None]  # type: ignore[misc]
    inform(records)
    sys.stderr.write(f"{len(records)} secrets are declared\n")


def inform(records: list[SecretRecord], removed: list[SecretName] | None = None) -> None:
    """Publishes declarations and removals to the control plane, if it is reachable. Agents refuse an undeclared secret in any case."""
    import secrets
    import time

    from trainhouse.events import Event, SecretDeclared, SecretRemoved, envelope_of
    from trainhouse.events.bus.kafka import ONE_SHOT, EventProducer
    from trainhouse.events.model.errors import BusUnavailableError
    from trainhouse.events.settings import KafkaSettings
    from trainhouse.events.wire.topics import JOBS

    events: list[Event] = [SecretDeclared(project=r.name.project, name=r.name.name, grants=r.grants, kind=r.kind) for r in records]
    events += [SecretRemoved(project=name.project, name=name.name) for name in removed or ()]
    try:
        producer = EventProducer(KafkaSettings(), **ONE_SHOT, log_level=0)
        for event in events:
            producer.send(JOBS, envelope_of(event, id=secrets.token_hex(16), source=SOURCE, now_ms=time.time_ns() // 1_000_000))
        producer.flush(FLUSH_S)
    except BusUnavailableError as error:
        sys.stderr.write(f"it counts here, but the control plane was not told ({error}): `trainhouse secrets declare` does that later\n")


def unknown(name: SecretName) -> CliError:
    """For a secret that is not set."""
    return CliError(f"there is no secret {name}; `trainhouse secrets list` names them", Exit.NOT_FOUND)


def named(text: str) -> SecretName:
    """Reads a name. Raises CliError."""
    from trainhouse.events.model.secret_names import SecretName, SecretNameError

    try:
        return SecretName.parse(text)
    except SecretNameError as error:
        raise CliError(str(error), Exit.USAGE) from error


def audited_name(text: str, audit: CommandAudit) -> SecretName:
    """Reads a name, and tells the audit of it as it was written. Raises CliError."""
    audit.named(text, "")
    secret = named(text)
    audit.named(str(secret), secret.project)
    return secret


def checked(work: Callable[[], T]) -> T:
    """Returns the result of the call; an error of a secret becomes a CliError."""
    from trainhouse.workers.secretstore.errors import SecretError

    try:
        return work()
    except SecretError as error:
        raise CliError(str(error), Exit.USAGE) from error


def kept() -> SecretStore:
    """This machine's secrets."""
    from trainhouse.workers.agent.settings import AgentSettings
    from trainhouse.workers.secretstore.store import SecretStore

    settings = AgentSettings().resolved()
    assert settings.secrets_dir is not None and settings.secrets_key_file is not None, "resolved() fills them in"
    return SecretStore(settings.secrets_dir, settings.secrets_key_file)

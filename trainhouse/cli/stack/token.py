"""`trainhouse token create|show|revoke`: tokens for the gateway.

Holds: a token is made where its key is, and printed once; that it was made, and that one was revoked, are events.
Never: prints the key, or keeps a token.
"""

import getpass
import secrets
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import Json, KafkaDir

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainhouse.client.quick.quick_topics import QuickTopics
    from trainhouse.events import Event
    from trainhouse.gateway.auth.keyring import Keys

FOR_EVER = "never"
ISSUED = "trainhouse.token.issued.v1"
REVOKED = "trainhouse.token.revoked.v1"
MAX_DAYS = 36_500


def register(app: typer.Typer) -> None:
    """Adds the group."""
    group = typer.Typer(no_args_is_help=True, help="Create, show and revoke tokens for the gateway: who may do what, in which projects.")
    for command in (create, show, revoke):
        group.command()(command)
    app.add_typer(group, name="token")


def create(
    sub: Annotated[str, typer.Argument(help="Whose it is: a person or a service.")],
    role: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="viewer reads; approver approves models; submitter writes jobs; operator and admin do more. Default: by membership."
        ),
    ] = None,
    project: Annotated[Optional[list[str]], typer.Option(help="For this project; may be repeated; * is all of them.")] = None,  # noqa: UP045
    expires: Annotated[str, typer.Option(metavar="TIME", help="How long it counts: 12h, 30d; or never.")] = "90d",
    data_dir: KafkaDir = None,
) -> None:
    """Print a new token. Run it where the gateway's key is.

    \b
    trainhouse token create ana --role submitter --project vision --expires 30d
    """
    from trainhouse.events import TokenIssued
    from trainhouse.gateway.auth import tokens
    from trainhouse.gateway.auth.roles import NAMES
    from trainhouse.gateway.errors import InvalidTokenError

    if role is not None and role not in NAMES:
        raise CliError(f"{role!r} is no role; there are {', '.join(NAMES)}", Exit.USAGE)
    if not project:
        raise CliError("name the projects: --project NAME for each, or --project '*' for all", Exit.USAGE)
    role = role_for(sub, project, role, _members())
    now_s, token_id = int(time.time()), tokens.new_token_id()
    until_s = None if expires == FOR_EVER else now_s + seconds_of(expires)
    try:
        made = tokens.issue(_keys().newest, sub, [role], project, now_s=now_s, expires_s=until_s, token_id=token_id)
    except InvalidTokenError as error:
        raise CliError(f"{error}", Exit.USAGE) from error
    _send(
        TokenIssued(
            token_id=token_id,
            sub=sub,
            roles=(role,),
            projects=tuple(project),
            at_ms=now_s * 1000,
            expires_at_ms=None if until_s is None else until_s * 1000,
            by=getpass.getuser(),
        )
    )
    sys.stdout.write(made + "\n")
    sys.stderr.write(f"token {token_id} of {sub}; `trainhouse token revoke {token_id}` ends it\n")


def show(
    token: Annotated[Optional[str], typer.Argument(help="A token; default: all that were made, by id.")] = None,  # noqa: UP045
    json: Json = False,
    data_dir: KafkaDir = None,
) -> None:
    """Show the claims of a token; without one, list all issued tokens and their state."""
    from trainhouse.cli.shared.output import json_lines, table

    rows = [_claims(token)] if token else _listed()
    if json:
        json_lines(rows)
        return
    columns = ("token_id", "sub", "roles", "projects", "expires_at", "state")
    table(columns, ([_cell(row[column]) for column in columns] for row in rows), drop=("projects", "expires_at", "roles"))


def revoke(
    token_id: Annotated[str, typer.Argument(help="The token's id, as `token show` has it; or the token itself.")],
    reason: Annotated[str, typer.Option(help="Why.")] = "",
    data_dir: KafkaDir = None,
) -> None:
    """Revoke a token: gateways refuse it within a second, and end its streams."""
    from trainhouse.events import TokenRevoked

    found = _claims(token_id)["token_id"] if token_id.count(".") == 2 else token_id
    _send(TokenRevoked(token_id=found, at_ms=int(time.time() * 1000), by=getpass.getuser(), reason=reason))
    sys.stderr.write(f"revoked {found}\n")


def role_for(sub: str, projects: list[str], wanted: str | None, members: "Mapping[str, Mapping[str, str]]") -> str:
    """The role of a token: what its holder's memberships allow in all of its projects, or less where less is wanted. Raises CliError.

    `members`: those of each project that has a list of them. Operators and admins look after all projects, so they need be no members.
    """
    if wanted in ("operator", "admin"):
        return wanted
    lists = {name: members[name] for name in projects if name in members}
    stranger = next((name for name, found in lists.items() if sub not in found), None)
    if stranger is not None:
        raise CliError(
            f"{sub} is no member of project {stranger}, so such a token would open nothing there: "
            f"`trainhouse project members add {stranger} {sub}` first, or leave the project out",
            Exit.USAGE,
        )
    reads = next((name for name, found in lists.items() if found[sub] == "viewer"), None)
    if reads is not None and wanted in ("submitter", "approver"):
        raise CliError(
            f"{sub} is a viewer of project {reads}: a token cannot be more. Use --role viewer, or "
            f"`trainhouse project members add {reads} {sub} --role submitter` first",
            Exit.USAGE,
        )
    return wanted or ("viewer" if reads is not None else "submitter")


def _members() -> "dict[str, dict[str, str]]":
    """The members of each project that has a list of them. Blocks on the brokers."""
    from trainhouse.client import TrainhouseClient

    found = TrainhouseClient.from_settings().fleet().projects()
    return {name: dict(a.project.members) for name, a in found.items() if a.project.members is not None}


def _cell(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value)


def _keys() -> "Keys":
    from trainhouse.gateway.auth.keyring import Keys
    from trainhouse.gateway.errors import KeyUnusableError
    from trainhouse.gateway.settings import GatewaySettings

    try:
        return Keys(GatewaySettings().signing_keys())
    except KeyUnusableError as error:
        raise CliError(str(error), Exit.CONFIG) from error


def _claims(token: str) -> dict[str, Any]:
    from trainhouse.gateway.auth import tokens
    from trainhouse.gateway.errors import InvalidTokenError

    try:
        found = _keys().read(lambda key: tokens.read(key, token))
    except InvalidTokenError as error:
        raise CliError(str(error), Exit.USAGE) from error
    revoked = any(row["token_id"] == found.token_id and row["state"] == "revoked" for row in _listed())
    return {
        "token_id": found.token_id,
        "sub": found.sub,
        "roles": [role.name.lower() for role in found.roles],
        "projects": list(found.projects),
        "expires_at": _time(None if found.expires_s is None else found.expires_s * 1000),
        "state": "revoked" if revoked else "counts",
    }


def _listed() -> list[dict[str, Any]]:
    """Returns the content of the topic of tokens: one row a token. Blocks on the brokers."""
    from trainhouse.client.quick.quick_reads import by_topics_or
    from trainhouse.events.wire.topics import TOKENS

    def quick(topics: "QuickTopics") -> list[Any]:
        return [event for _, event in topics.read(TOKENS, ISSUED, REVOKED) if event is not None]

    events = by_topics_or(quick, _events)
    found: dict[str, dict[str, Any]] = {}
    for event in events:
        if event.event_type == ISSUED:
            found[event.token_id] = {
                "token_id": event.token_id,
                "sub": event.sub,
                "roles": list(event.roles),
                "projects": list(event.projects),
                "expires_at": _time(event.expires_at_ms),
                "state": "counts" if (event.expires_at_ms or 2**62) > time.time() * 1000 else "expired",
            }
        elif event.event_type == REVOKED:
            # Compaction may have left of it nothing but this.
            unknown = {"token_id": event.token_id, "sub": "", "roles": [], "projects": [], "expires_at": ""}
            found[event.token_id] = found.get(event.token_id, unknown) | {"state": "revoked"}
    return list(found.values())


def _events() -> list[Any]:
    from trainhouse.events import decode
    from trainhouse.events.bus.kafka import TO_END, consumer, headers_of, read_to_end
    from trainhouse.events.settings import KafkaSettings
    from trainhouse.events.wire.topics import TOKENS

    reader = consumer(KafkaSettings(), log_level=0, **TO_END)
    try:
        return [decode(message.value(), headers_of(message)).event for message in read_to_end(reader, TOKENS, [0])]
    finally:
        reader.close()


def _send(event: "Event") -> None:
    from trainhouse.events import envelope_of
    from trainhouse.events.bus.kafka import ONE_SHOT, EventProducer
    from trainhouse.events.settings import KafkaSettings
    from trainhouse.events.wire.topics import TOKENS

    producer = EventProducer(KafkaSettings(), **ONE_SHOT, log_level=0)
    now_ms = int(time.time() * 1000)
    producer.send(TOKENS, envelope_of(event, id=secrets.token_hex(16), source="trainhouse/cli", now_ms=now_ms))
    producer.flush()


def seconds_of(text: str) -> int:
    """Returns the validity of a token in seconds, as it was typed. Raises CliError."""
    units = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
    if len(text) < 2 or text[-1] not in units or not text[:-1].isdecimal() or int(text[:-1]) < 1:
        raise CliError(f"--expires {text!r}: write a number and s, m, h or d, as 30d; or {FOR_EVER}", Exit.USAGE)
    seconds = int(text[:-1]) * units[text[-1]]
    if seconds > MAX_DAYS * units["d"]:
        raise CliError(f"--expires {text!r} is longer than {MAX_DAYS} days; write {FOR_EVER}", Exit.USAGE)
    return seconds


def _time(at_ms: int | None) -> str:
    from trainhouse.events.model.written_times import rfc3339

    return FOR_EVER if at_ms is None else rfc3339(at_ms)

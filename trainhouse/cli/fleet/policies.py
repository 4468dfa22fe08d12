"""`policy show|diff|apply`: the policy of a pool, as a file that is read, compared and sent.

Holds: a file is checked whole before anything is sent, with its line; what is printed as applied is what the scheduler said.
"""

import sys
from collections.abc import Mapping
from importlib import resources
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainhouse.cli.shared import complete
from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import Json, KafkaDir, Timeout

if TYPE_CHECKING:
    from trainhouse.client import TrainhouseClient
    from trainhouse.events import PolicyApplied, SchedulingPolicy

PoolArgument = Annotated[str, typer.Argument(metavar="POOL", help="Name of the pool.", show_default=False, autocompletion=complete.pools)]
FileArgument = Annotated[
    str,
    typer.Argument(metavar="POLICY.yaml", help="A file, or the name of a policy that comes with Trainhouse.", show_default=False),
]


def register(app: typer.Typer) -> None:
    """Adds the group."""
    group = typer.Typer(no_args_is_help=True, help="Show, compare and apply policies: who gets which devices of a pool.")
    group.command("show")(show)
    group.command("diff")(diff)
    group.command("apply")(apply)
    app.add_typer(group, name="policy")


def show(pool: PoolArgument, json: Json = False, data_dir: KafkaDir = None) -> None:
    """Show the policy that decides about a pool now: the file as it was applied; its version and who applied it, on standard error.

    \b
    trainhouse policy show default
    trainhouse policy show default > policy.yaml  a file to change and apply again
    """
    from trainhouse.cli.shared import output

    applied = _now(pool)
    policy = applied.policy.model_dump(mode="json") if applied else default_policy()
    if json:
        about = applied.model_dump(mode="json", exclude={"policy"}) if applied else {"pool": pool, "version": 0}
        output.json_lines([about | {"policy": policy}])
        return
    if applied is None:
        output.remark(f"pool {pool}: no policy was ever applied, the default decides")
        sys.stdout.write(as_yaml(policy))
        return
    why = f": {applied.reason}" if applied.reason else ""
    at = output.clock(applied.applied_at_ms)
    output.remark(f"pool {pool}: version {applied.version}, applied {at} UTC by {applied.user}{why}")
    sys.stdout.write(applied.text if applied.text.strip() else as_yaml(policy))


def diff(pool: PoolArgument, file: FileArgument, json: Json = False, data_dir: KafkaDir = None) -> None:
    """Show the changes that a file would make to a pool's policy: each field, its old and new value. The exit code is 1 on any difference.

    \b
    trainhouse policy diff default policy.yaml
    trainhouse policy diff default fair  one that comes with Trainhouse
    """
    from trainhouse.cli.shared import output
    from trainhouse.events import SchedulingPolicy
    from trainhouse.scheduler.policies import diff as differences

    new, _ = read(file)
    applied = _now(pool)
    changes = differences(SchedulingPolicy.model_validate(applied.policy.model_dump(mode="json")) if applied else SchedulingPolicy(), new)
    if json:
        output.json_lines({"field": c.field, "old": c.old, "new": c.new} for c in changes)
    elif changes:
        output.table(("field", "old", "new"), [(c.field, c.old, c.new) for c in changes])
    else:
        output.remark(f"{file} is the policy of pool {pool} already")
    if changes:
        raise typer.Exit(Exit.FAILED)


def apply(
    pool: PoolArgument,
    file: FileArgument,
    reason: Annotated[str, typer.Option(help="Kept with the policy.")] = "",
    timeout: Timeout = 30.0,
    json: Json = False,
    data_dir: KafkaDir = None,
) -> None:
    """Give a pool another policy, and wait until it counts. One that the scheduler refuses changes nothing: the old one stays.

    \b
    trainhouse policy apply default policy.yaml --reason "vision borrows at night"
    """
    import getpass

    from trainhouse.cli.shared import output
    from trainhouse.client import ChangeRefusedError, TrainhouseClient
    from trainhouse.events import PolicyChanged, PoolName, SchedulingPolicy
    from trainhouse.scheduler.policies import diff as differences

    policy, text = read(file)
    client = TrainhouseClient.from_settings()
    before = current(client, pool)
    asked = PolicyChanged(pool=PoolName(pool), policy=policy, text=text, user=getpass.getuser(), reason=reason)
    try:
        applied = client.fleet().apply(asked, timeout)
    except ChangeRefusedError as refused:
        stays = f"version {before.version} ({before.policy.name})" if before else "the default"
        raise CliError(f"{file} is refused for pool {pool}: {refused}. The old policy stays: {stays}", Exit.REJECTED) from refused
    if applied is None:
        output.remark(f"{file} is the policy of pool {pool} already: nothing changed")
        return
    if json:
        output.json_lines([applied.model_dump(mode="json", exclude={"policy", "text"})])
        return
    changed = len(differences(before.policy if before else SchedulingPolicy(), policy))
    fields = f"{changed} field{'' if changed == 1 else 's'} changed"
    sys.stdout.write(f"pool {pool}: policy {policy.name} is version {applied.version}, {fields}\n")


def read(file: str) -> "tuple[SchedulingPolicy, str]":
    """A valid policy and its text. Raises CliError with file, line and field."""
    from trainhouse.scheduler.policies import PolicyError, parse, read_text

    try:
        text, name = read_text(file)
        return parse(text, name), text
    except OSError as error:
        raise CliError(f"{file}: cannot be read ({error.strerror})", Exit.NOT_FOUND) from error
    except PolicyError as error:
        raise CliError(f"{error}\nnothing was sent", Exit.USAGE) from error


def _now(pool: str) -> "PolicyApplied | None":
    """The policy that a pool was given last; None where it never was given one. Blocks. Raises CliError for an unknown pool."""
    from trainhouse.cli.fleet.pools import unknown
    from trainhouse.client.quick.quick_reads import from_topics
    from trainhouse.client.quick.quick_topics import QuickTopics
    from trainhouse.events.wire.topics import POLICIES, POOLS

    def by_topics(topics: QuickTopics) -> "PolicyApplied | None":
        if not topics.has_key(POOLS, pool):
            raise unknown(pool, [str(created.pool) for created in topics.newest_of(POOLS, "trainhouse.pool.created.v1")])
        found: list[PolicyApplied] = topics.newest_of(POLICIES, "trainhouse.policy.applied.v1")
        return next((applied for applied in found if applied.pool == pool), None)

    return from_topics(by_topics, lambda client: current(client, pool))


def current(client: "TrainhouseClient", pool: str) -> "PolicyApplied | None":
    """The policy that a pool was given last; None where it never was given one. Raises CliError for an unknown pool."""
    from trainhouse.cli.fleet.pools import known

    known(client, pool)
    return client.fleet().policies().get(pool)


def default_policy() -> dict[str, Any]:
    """The policy of a pool that was never given one, as JSON."""
    import orjson

    found: dict[str, Any] = orjson.loads(resources.files("trainhouse.client.quick").joinpath("default_policy.json").read_bytes())
    return found


def as_yaml(policy: Mapping[str, Any]) -> str:
    """A policy, as JSON, as a file, every field written out."""
    import yaml

    return str(yaml.safe_dump(dict(policy), sort_keys=False, allow_unicode=True))

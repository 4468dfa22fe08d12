"""`pool create|move|show`: groups of nodes that are scheduled together.

Holds: `create` and `move` return when the scheduler of the pool's partition has the pool.
"""

import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from trainhouse.cli.shared import complete
from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import DataDir, Json, KafkaDir, Timeout

if TYPE_CHECKING:
    from trainhouse.client import TrainhouseClient


def register(app: typer.Typer) -> None:
    """Adds the group."""
    group = typer.Typer(no_args_is_help=True, help="Create, move and show pools: groups of nodes that are scheduled together.")
    group.command("create")(create)
    group.command("move")(move)
    group.command("show")(show)
    app.add_typer(group, name="pool")


def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new pool.", show_default=False)],
    partition: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=0, help="Partition of the control topic; default: the one with the fewest pools."),
    ] = None,
    timeout: Timeout = 30.0,
    json: Json = False,
    data_dir: KafkaDir = None,
) -> None:
    """Create a pool, and wait until its scheduler knows it. Repeating the command is harmless.

    \b
    trainhouse pool create vision
    TRAINHOUSE_AGENT_POOL=vision trainhouse run agent  a machine that joins it
    """
    from trainhouse.cli.shared import output
    from trainhouse.client import ChangeRefusedError, TrainhouseClient
    from trainhouse.events import PoolCreated, PoolName

    try:
        pool = PoolName.parse(name)
    except ValueError as error:
        raise CliError(str(error), Exit.USAGE) from error
    fleet = TrainhouseClient.from_settings().fleet()
    pools = fleet.pools()
    chosen = choose(pools, fleet.partitions(), name, partition)
    if name not in pools:
        try:
            fleet.create(PoolCreated(pool=pool, partition=chosen), timeout)
        except ChangeRefusedError as refused:
            raise CliError(str(refused), Exit.REJECTED) from refused
    if json:
        output.json_lines([{"pool": name, "partition": chosen, "created": name not in pools}])
        return
    sys.stdout.write(f"pool {name} {'is' if name not in pools else 'was there already'} on partition {chosen}\n")


def choose(pools: Mapping[str, int], partitions: int, name: str, wanted: int | None) -> int:
    """The partition of a pool: its own, the wanted one, or the lowest of those with the fewest pools. Raises CliError."""
    known = pools.get(name)
    if known is not None:
        if wanted not in (None, known):
            why = f"pool {name} is on partition {known} already; `trainhouse pool move {name} --to {wanted}` moves it to {wanted}"
            raise CliError(why, Exit.USAGE)
        return known
    if wanted is not None:
        if wanted >= partitions:
            raise CliError(f"there is no partition {wanted}: the control topic has 0 to {partitions - 1}", Exit.USAGE)
        return wanted
    loads = [list(pools.values()).count(p) for p in range(partitions)]
    return loads.index(min(loads))


def move(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The pool.", show_default=False, autocompletion=complete.pools)],
    to: Annotated[int, typer.Option("--to", min=0, max=1023, help="Partition of the control topic.", show_default=False)],
    reason: Annotated[str, typer.Option(help="Why, for the record.")] = "",
    timeout: Timeout = 30.0,
    json: Json = False,
    data_dir: KafkaDir = None,
) -> None:
    """Move a pool with its jobs and nodes to another partition, and wait until it is there. Its jobs go on meanwhile.

    \b
    trainhouse topics grow --partitions 8
    trainhouse pool move vision --to 7 --reason "partition 2 has too many jobs"
    """
    import getpass

    from trainhouse.cli.shared import output
    from trainhouse.client import ChangeRefusedError, TrainhouseClient
    from trainhouse.events import MovePool

    fleet = TrainhouseClient.from_settings().fleet()
    pools = fleet.pools()
    if name not in pools:
        raise unknown(name, pools)
    before = pools[name]
    if before != to:
        try:
            event = MovePool.model_validate({"pool": name, "to_partition": to, "reason": reason, "user": getpass.getuser()})
            fleet.move(event, timeout)
        except ChangeRefusedError as refused:
            raise CliError(str(refused), Exit.REJECTED) from refused
    if json:
        output.json_lines([{"pool": name, "partition": to, "from_partition": before, "moved": before != to}])
    elif before == to:
        sys.stdout.write(f"pool {name} is on partition {to} already\n")
    else:
        sys.stdout.write(f"pool {name} was moved from partition {before} to {to}\n")


def known(client: "TrainhouseClient", name: str) -> int:
    """The partition of a pool. Raises CliError with the pools there are."""
    pools = client.fleet().pools()
    if name not in pools:
        raise unknown(name, pools)
    return pools[name]


def unknown(name: str, pools: Iterable[str]) -> CliError:
    """The error for a pool that nobody created."""
    listed = sorted(pools)
    shown = ", ".join(listed[:20]) + (f" and {len(listed) - 20} more" if len(listed) > 20 else "")
    return CliError(f"there is no pool {name!r}; known: {shown or 'none'}. `trainhouse pool create {name}` makes it", Exit.NOT_FOUND)


def show(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Only this pool.", show_default=False, autocompletion=complete.pools)
    ] = None,
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Show pools as their schedulers see them now: nodes and devices, topology, policy, jobs, quotas and their use.

    \b
    trainhouse pool show
    trainhouse pool show default
    trainhouse pool show --json | jq .devices
    """
    from trainhouse.cli.fleet.pool_rows import print_pool
    from trainhouse.cli.shared import output
    from trainhouse.client.quick.quick_reads import asked

    rows = asked(lambda reads: reads.pools_in_full(name), lambda client: client.way.pools_in_full(name))
    if not rows and name is not None:
        raise unknown(name, [row["pool"] for row in asked(lambda reads: reads.pools(), lambda client: client.way.pools())])
    if json:
        output.json_lines(rows)
    elif not rows:
        output.remark("no pools; `trainhouse pool create NAME` makes one")
    else:
        for row in rows:
            print_pool(row)

"""`node cordon|uncordon|drain|quarantine`: closes a machine to new gangs, or opens it again.

Holds: a command returns when the scheduler of the node's pool has said that it counts; the pool of a node need not be known.
"""

import sys
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from trainhouse.cli.shared import complete
from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import Json, KafkaDir, Timeout

if TYPE_CHECKING:
    from trainhouse.client.backend_protocol import Sql
    from trainhouse.client.kafka.request_answer import NodeRequest
    from trainhouse.events import NodeRestricted

NodeArgument = Annotated[
    str,
    typer.Argument(
        metavar="NODE", help="Id of the node; `trainhouse nodes` lists them.", show_default=False, autocompletion=complete.nodes
    ),
]
Reason = Annotated[str, typer.Option("--reason", help="Why; people see it beside the node.")]
# Requests that end what runs on the node.
MOVES = ("DrainNode", "QuarantineNode")
OfPool = Annotated[Optional[str], typer.Option("--pool", help="Its pool; default: where it registered last.")]  # noqa: UP045


def register(app: typer.Typer) -> None:
    """Adds the group."""
    group = typer.Typer(no_args_is_help=True, help="Close a machine to new gangs, or open it again.")
    for command in (cordon, uncordon, drain, quarantine):
        group.command(command.__name__)(command)
    group.command("forget-key")(forget_key)
    app.add_typer(group, name="node")


def cordon(
    node: NodeArgument, reason: Reason = "", pool: OfPool = None, timeout: Timeout = 30.0, json: Json = False, data_dir: KafkaDir = None
) -> None:
    """Place nothing new on the node; what runs there goes on.

    \b
    trainhouse node cordon gpu-17 --reason "firmware update at noon"
    """
    from trainhouse.events import CordonNode

    _ask(CordonNode, node, pool, reason, timeout, json=json)


def uncordon(
    node: NodeArgument, reason: Reason = "", pool: OfPool = None, timeout: Timeout = 30.0, json: Json = False, data_dir: KafkaDir = None
) -> None:
    """Use the node again, whatever it was closed for.

    \b
    trainhouse node uncordon gpu-17
    """
    from trainhouse.events import UncordonNode

    _ask(UncordonNode, node, pool, reason, timeout, json=json)


def drain(
    node: NodeArgument,
    reason: Reason = "",
    deadline_s: Annotated[float, typer.Option("--deadline-s", min=0, max=86_400, help="Seconds that its gangs have to save.")] = 120.0,
    pool: OfPool = None,
    timeout: Timeout = 30.0,
    json: Json = False,
    data_dir: KafkaDir = None,
) -> None:
    """Empty the node: its gangs save, leave, and start elsewhere; nothing new comes. Print which gangs leave.

    \b
    trainhouse node drain gpu-17 --deadline-s 300 --reason "rack 4 goes down"
    """
    from trainhouse.events import DrainNode

    _ask(DrainNode, node, pool, reason, timeout, json=json, deadline_s=deadline_s)


def quarantine(
    node: NodeArgument, reason: Reason = "", pool: OfPool = None, timeout: Timeout = 30.0, json: Json = False, data_dir: KafkaDir = None
) -> None:
    """Close a faulty node: its gangs are stopped at once and start elsewhere, and nothing new comes.

    \b
    trainhouse node quarantine gpu-17 --reason "uncorrected ECC errors"
    """
    from trainhouse.events import QuarantineNode

    _ask(QuarantineNode, node, pool, reason, timeout, json=json)


def forget_key(
    node: NodeArgument, reason: Reason = "", pool: OfPool = None, timeout: Timeout = 30.0, json: Json = False, data_dir: KafkaDir = None
) -> None:
    """Forget the key of the node, so that the next one it registers with counts: its disk is new, or its key was stolen.

    \b
    trainhouse node forget-key gpu-17 --reason "new disk"
    """
    import getpass

    from trainhouse.cli.shared import output
    from trainhouse.client import ChangeRefusedError, TrainhouseClient
    from trainhouse.events import ForgetNodeKey

    client = TrainhouseClient.from_settings()
    fields = {"pool": pool or pool_of(client.sql, node), "node_id": node, "reason": reason, "user": getpass.getuser()}
    try:
        keyed = client.fleet().forget_key(ForgetNodeKey.model_validate(fields), timeout)
    except ChangeRefusedError as refused:
        raise CliError(f"node {node}: refused: {refused}", Exit.REJECTED) from refused
    if json:
        output.json_lines([] if keyed is None else [keyed.model_dump(mode="json")])
        return
    sys.stdout.write(f"node {node}: {'no key was known' if keyed is None else 'the next key that it registers with is its own'}\n")


def _ask(
    kind: "type[NodeRequest]", node: str, pool: str | None, reason: str, timeout_s: float, *, json: bool, deadline_s: float | None = None
) -> None:
    import getpass

    from trainhouse.cli.shared import output
    from trainhouse.client import ChangeRefusedError, TrainhouseClient
    from trainhouse.client.kafka.request_answer import RESTRICTIONS
    from trainhouse.events import UncordonNode

    client = TrainhouseClient.from_settings()
    leaving = gangs_on(client.sql, node) if kind.__name__ in MOVES else []
    fields = {"pool": pool or pool_of(client.sql, node), "node_id": node, "reason": reason, "user": getpass.getuser()}
    event = kind.model_validate(fields | ({} if deadline_s is None else {"deadline_s": deadline_s}))
    try:
        restricted = client.fleet().restrict(event, timeout_s)
    except ChangeRefusedError as refused:
        raise CliError(f"node {node}: refused: {refused}", Exit.REJECTED) from refused
    if restricted is None:
        output.remark(f"node {node} is {'open' if kind is UncordonNode else RESTRICTIONS[kind]} already: nothing changed")
        return
    if json:
        output.json_lines([restricted.model_dump(mode="json") | {"leaving": leaving}])
        return
    for line in lines_of(restricted, leaving):
        sys.stdout.write(line + "\n")


def lines_of(restricted: "NodeRestricted", leaving: list[dict[str, Any]]) -> list[str]:
    """Returns the lines about a restriction that counts, for a person."""
    from trainhouse.cli.shared.output import clock

    state = "is open again" if restricted.restriction == "NONE" else f"is {restricted.restriction}"
    first = f"node {restricted.node_id} of pool {restricted.pool} {state}" + (f": {restricted.reason}" if restricted.reason else "")
    by = f" by {clock(restricted.deadline_ms)} UTC" if restricted.deadline_ms else ""
    rest = [f"  {g['job_id']} leaves{by}: {g['ranks']} ranks of {g['user']}, team {g['team']}, now {g['state']}" for g in leaving]
    if restricted.restriction in ("DRAINING", "QUARANTINED") and not leaving:
        rest = ["  no gang runs there"]
    return [first, *rest]


def pool_of(sql: "Sql", node: str) -> str:
    """The pool where a node registered last. Raises CliError with the nearest names."""
    import difflib

    from trainhouse.client import NotReachableError
    from trainhouse.client.sql import literal

    try:
        rows = sql.table(f"SELECT pool FROM nodes WHERE node_id = {literal(node)}").rows
        if rows:
            return str(rows[0][0])
        names = [str(row[0]) for row in sql.table("SELECT node_id FROM nodes ORDER BY node_id LIMIT 100000").rows]
    except NotReachableError as error:
        raise CliError(f"the pool of node {node} is not known: {error}. Name it by --pool", Exit.UNAVAILABLE) from error
    near = difflib.get_close_matches(node, names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else "`trainhouse nodes` lists them"
    raise CliError(f"there is no node {node!r}; {hint}", Exit.NOT_FOUND)


def gangs_on(sql: "Sql", node: str) -> list[dict[str, Any]]:
    """The gangs that hold devices of a node; none where the tables do not answer."""
    from trainhouse.client import NotReachableError
    from trainhouse.client.sql import literal

    query = f"SELECT job_id, state, world_size AS ranks, user, team FROM jobs WHERE has(node_ids, {literal(node)}) ORDER BY job_id"
    try:
        return sql.table(query).dicts()
    except NotReachableError:
        return []

"""`trainhouse report list|show|save|history|delete`: reports of projects, as the pages have them, and links to one run.

Holds: a save names the version that it was made from, so that nothing that another person saved meanwhile is lost; all goes through the
gateway, with the rights of its token.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import DataDir, Json
from trainhouse.events.model.default_project import DEFAULT_PROJECT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainhouse.client.gateway.exchange import Request

GROUP = "report"
STDIN = "-"
MOST_BYTES = 1 << 20
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the report.", show_default=False)]
Project = Annotated[str, typer.Option(help="Project that it belongs to.")]


def register(app: typer.Typer) -> None:
    """Adds the commands to the group of reports."""
    group = next((g.typer_instance for g in app.registered_groups if g.name == GROUP), None)
    if group is None:
        group = typer.Typer(no_args_is_help=True, help="Reports.")
        app.add_typer(group, name=GROUP)
    for name, command in (("list", list_reports), ("show", show), ("save", save), ("history", history), ("delete", delete), ("link", link)):
        group.command(name)(command)


def list_reports(
    project: Annotated[Optional[str], typer.Option(help="Only of this project.")] = None,  # noqa: UP045
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """List the reports of projects, those saved last first.

    \b
    trainhouse report list --project vision
    """
    from trainhouse.cli.shared import output
    from trainhouse.client.gateway.exchange import everything

    rows = _gateway().run(everything("/v1/reports", {} if project is None else {"project": project}))
    if json:
        output.json_lines(rows)
        return
    columns = ("name", "project", "version", "saved_by", "at", "note")
    output.table(columns, ([row[column] for column in columns] for row in rows), right=("version",), drop=("note", "at", "saved_by"))


def show(
    name: Name,
    project: Project = DEFAULT_PROJECT,
    version: Annotated[Optional[int], typer.Option(min=1, help="An earlier version; default: the newest.")] = None,  # noqa: UP045
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Show a report: its Markdown on standard output, its version on standard error.

    \b
    trainhouse report show "Learning rates" --project vision > rates.md
    """
    from trainhouse.cli.shared import output

    found = _asked("GET", _path(project, name), params={} if version is None else {"version": version})
    if json:
        output.json_lines([found])
        return
    # As it was written: on a terminal without what would steer it.
    sys.stdout.write(output.printable(found["content"]) if sys.stdout.isatty() else found["content"])
    sys.stderr.write(f"version {found['version']} of {name}, saved by {found['saved_by']} at {found['at']}\n")


def save(
    name: Name,
    path: Annotated[Path, typer.Argument(metavar="FILE", help="Markdown; - reads standard input.", show_default=False)],
    project: Project = DEFAULT_PROJECT,
    replaces: Annotated[int, typer.Option(min=0, help="Version that it was made from; 0: it is new.")] = 0,
    note: Annotated[str, typer.Option(help="What changed.")] = "",
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Write a version of a report, unless another person saved one meanwhile.

    \b
    trainhouse report save "Learning rates" rates.md --project vision
    trainhouse report save "Learning rates" rates.md --project vision \\
        --replaces 3 --note "longer runs"

    Exit code 3 where another version than --replaces is current; the message says who saved it.
    """
    from trainhouse.cli.shared import output

    body = {"content": _text(path), "replaces": replaces, "note": note}
    found = _asked("PUT", _path(project, name), body=body)
    if json:
        output.json_lines([found])
        return
    sys.stdout.write(f"saved version {found['version']} of {name}: {_page(project, name)}\n")


def history(name: Name, project: Project = DEFAULT_PROJECT, json: Json = False, data_dir: DataDir = None) -> None:
    """List the versions of a report, the newest first; a deletion is one too.

    \b
    trainhouse report history "Learning rates" --project vision
    """
    from trainhouse.cli.shared import output
    from trainhouse.client.gateway.exchange import everything

    rows = _gateway().run(everything(f"{_path(project, name)}/history"))
    if json:
        output.json_lines(rows)
        return
    table = ([row["version"], "deleted" if row["deleted"] else "saved", row["saved_by"], row["at"], row["note"]] for row in rows)
    output.table(("version", "what", "by", "at", "note"), table, right=("version",))


def delete(
    name: Name,
    project: Project = DEFAULT_PROJECT,
    replaces: Annotated[Optional[int], typer.Option(min=1, help="Version that is deleted; default: the newest.")] = None,  # noqa: UP045
    data_dir: DataDir = None,
) -> None:
    """Delete a report; its history stays.

    \b
    trainhouse report delete "Learning rates" --project vision
    """
    version = replaces if replaces is not None else _asked("GET", _path(project, name))["version"]
    _asked("DELETE", _path(project, name), params={"replaces": version})
    sys.stdout.write(f"deleted {name} of project {project}; `trainhouse report history` has what it was\n")


def link(
    job: Annotated[str, typer.Argument(metavar="JOB", help="Id of the run.", show_default=False)],
    days: Annotated[int, typer.Option(min=1, max=365, help="Days after which it ends by itself.")] = 7,
    revoke: Annotated[Optional[str], typer.Option(metavar="LINK_ID", help="End this link instead of making one.")] = None,  # noqa: UP045
    data_dir: DataDir = None,
) -> None:
    """Print a link that opens one run's page to read, without an account.

    \b
    trainhouse report link JOB --days 2
    trainhouse report link JOB --revoke link-…

    For the run's user, a maintainer of its project, or an operator who is a member of it.
    """
    from urllib.parse import quote

    at = f"/v1/training-jobs/{quote(job, safe='')}/links"
    if revoke is not None:
        _asked("DELETE", f"{at}/{quote(revoke, safe='')}")
        sys.stderr.write(f"revoked {revoke}\n")
        return
    made = _asked("POST", at, body={"days": days})
    sys.stdout.write(made["url"] + "\n")
    sys.stderr.write(f"it ends after {days} days; `trainhouse report link {job} --revoke {made['link_id']}` ends it now\n")


def _path(project: str, name: str) -> str:
    from urllib.parse import quote

    return f"/v1/reports/{quote(project, safe='')}/{quote(name, safe='')}"


def _page(project: str, name: str) -> str:
    from trainhouse.client.settings import GatewaySettings

    return GatewaySettings().url.rstrip("/") + _path(project, name).removeprefix("/v1")


def _text(path: Path) -> str:
    try:
        content = sys.stdin.buffer.read(MOST_BYTES) if str(path) == STDIN else path.read_bytes()
        return content.decode()
    except OSError as error:
        raise CliError(f"{path} cannot be read: {error.strerror}", Exit.NOT_FOUND) from error
    except UnicodeDecodeError as error:
        raise CliError(f"{path} is no UTF-8 text: {error.reason} at byte {error.start}; save it as UTF-8", Exit.USAGE) from error


def _asked(method: str, path: str, *, params: "Mapping[str, Any] | None" = None, body: "Mapping[str, Any] | None" = None) -> Any:
    """The gateway's answer as JSON; None where it has none. Blocks. Raises CliError, ClientError."""
    from trainhouse.client.gateway.exchange import NotFoundError, Request

    try:
        return _gateway().run(_one(Request(method, path, params=dict(params or {}), body=body)))
    except NotFoundError as error:
        raise CliError(str(error), Exit.NOT_FOUND) from error


def _one(request: "Request") -> Any:
    from trainhouse.client.gateway.exchange import ask

    answer = yield from ask(request)
    return answer.json() if answer.content else None


def _gateway() -> Any:
    from trainhouse.client.quick.quick_reads import quick_ways

    if (quick := quick_ways().gateway) is not None:
        return quick
    from trainhouse.cli.stack.open import local_token
    from trainhouse.client.gateway.backend import ByGateway
    from trainhouse.client.settings import GatewaySettings

    settings = GatewaySettings()
    token = settings.token or local_token()
    if not settings.url or not token:
        needed = "set TRAINHOUSE_GATEWAY_URL and TRAINHOUSE_GATEWAY_TOKEN"
        raise CliError(f"reports are kept by the gateway, and none is known: `trainhouse up` starts one, or {needed}", Exit.CONFIG)
    return ByGateway(settings.url, token)

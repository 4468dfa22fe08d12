"""`trainhouse open`: the web pages in this machine's browser, signed in with the token that the settings hold.

Holds: the token travels in the address's fragment, which a browser sends to no server; the page takes it out at once.
Never: puts a token into a log, or into an address that a server sees.
"""

import sys
import webbrowser
from typing import Annotated, Optional
from urllib.parse import quote

import typer

from trainhouse.cli.exits import CliError, Exit
from trainhouse.cli.options import DataDir

PAGES = ("jobs", "compare", "nodes", "utilization", "sql")


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("open")(open_pages)


def open_pages(
    what: Annotated[Optional[str], typer.Argument(help=f"A page ({', '.join(PAGES)}) or a job's id; default: the overview.")] = None,  # noqa: UP045
    show: Annotated[bool, typer.Option("--print", help="Only print the address, which holds your token: give it to nobody.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Opens the web pages in a browser, or prints their address.

    \b
    trainhouse open                 the overview
    trainhouse open jobs            a page
    trainhouse open JOB             one job
    trainhouse open --print         for a browser on another machine
    """
    from trainhouse.client.settings import GatewaySettings

    settings = GatewaySettings()
    if not settings.url:
        raise CliError("no gateway is known: `trainhouse up` starts one, or set TRAINHOUSE_GATEWAY_URL", Exit.UNAVAILABLE)
    address = address_of(settings.url, what, settings.token or _local_token())
    if show or not webbrowser.open(address):
        sys.stdout.write(address + "\n")
        return
    sys.stdout.write(f"opened {address_of(settings.url, what, '')}\n")


def _local_token() -> str:
    """The token of whoever's stack this is; empty where this is none, or where it is not ours to read."""
    from trainhouse.gateway.settings import GatewaySettings

    path = GatewaySettings().token_file
    try:
        return path.read_text().strip() if path is not None else ""
    except OSError:
        return ""


def address_of(url: str, what: str | None, token: str) -> str:
    """Where a page is. Pure."""
    path = "" if what is None else what if what in PAGES else f"jobs/{quote(what, safe='')}"
    return f"{url.rstrip('/')}/{path}" + (f"#token={quote(token, safe='')}" if token else "")

"""`trainhouse open`: the web pages in this machine's browser, signed in as the holder of the token that the settings hold.

Holds: the browser gets a code that counts once, for a minute, for this machine alone; and not by its arguments, which other users of this
machine can read, but in a file that its owner alone can.
Never: gives the token to a browser, an address or a log.
"""

import html
import os
import sys
import tempfile
import webbrowser
from pathlib import Path
from typing import Annotated, Optional
from urllib.parse import quote, urlencode

import typer

from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import DataDir

PAGES = ("jobs", "compare", "studies", "nodes", "datasets", "models", "utilization", "sql", "reports")


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("open")(open_pages)


def open_pages(
    what: Annotated[Optional[str], typer.Argument(help=f"A page ({', '.join(PAGES)}) or a job's id; default: the overview.")] = None,  # noqa: UP045
    show: Annotated[bool, typer.Option("--print", help="Only print the address; it signs in once, within a minute.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Open the web pages in a browser, or print their address.

    \b
    trainhouse open                 the overview
    trainhouse open jobs            a page
    trainhouse open JOB             one job
    trainhouse open --print
        for a browser that reaches the gateway from this machine's address, as
        by a port that ssh forwards
    """
    page, (url, code) = path_of(what), _signed_in()
    address = login_address(url, page, code) if code else url.rstrip("/") + page
    if show or not webbrowser.open(private_page(address).as_uri() if code else address):
        sys.stdout.write(address + "\n")
        return
    sys.stdout.write(f"opened {url.rstrip('/')}{page}\n")


def _signed_in() -> tuple[str, str]:
    """The gateway's address, and a code of its own; without a token none. Blocks. Raises CliError, ClientError."""
    from trainhouse.client.gateway import reads
    from trainhouse.client.quick.quick_reads import quick_ways

    if (quick := quick_ways().gateway) is not None:
        return quick.url, str(quick.run(reads.login_code())["code"])
    from trainhouse.client.gateway.backend import ByGateway
    from trainhouse.client.settings import GatewaySettings

    settings = GatewaySettings()
    if not settings.url:
        raise CliError("no gateway is known: `trainhouse up` starts one, or set TRAINHOUSE_GATEWAY_URL", Exit.UNAVAILABLE)
    token = settings.token or local_token()
    return settings.url, str(ByGateway(settings.url, token).run(reads.login_code())["code"]) if token else ""


def local_token() -> str:
    """The token of whoever's stack this is; empty where this is none, or where it is not ours to read."""
    from trainhouse.gateway.settings import GatewaySettings

    path = GatewaySettings().token_file
    try:
        return path.read_text().strip() if path is not None else ""
    except OSError:
        return ""


def private_page(address: str) -> Path:
    """A page, readable by its owner alone, that leads to an address. It stays until the next one: a browser may be slow to start."""
    folder = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    for old in folder.glob(f"trainhouse-open-{os.getuid()}-*.html"):
        _remove(old)
    handle, name = tempfile.mkstemp(".html", f"trainhouse-open-{os.getuid()}-", folder)
    with open(handle, "w") as file:
        place = html.escape(address, quote=True)
        file.write(f'<!doctype html><meta charset="utf-8"><title>Trainhouse</title><meta http-equiv="refresh" content="0;url={place}">\n')
    return Path(name)


def _remove(path: Path) -> None:
    try:
        path.unlink()
    except OSError:
        return  # another user's


def path_of(what: str | None) -> str:
    """Returns the URL path of a page or of a job's page. Pure."""
    return "/" if what is None else f"/{what}" if what in PAGES else f"/jobs/{quote(what, safe='')}"


def login_address(url: str, page: str, code: str) -> str:
    """The address that takes a code and goes on to a page. Pure."""
    return f"{url.rstrip('/')}/login?{urlencode({'code': code, 'to': page})}"

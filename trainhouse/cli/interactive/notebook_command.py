"""`trainhouse notebook`: Jupyter in a job, at a port of this machine's loopback address."""

import re
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from trainhouse.cli.interactive.session_options import AttachTo, SessionOptions, with_session_options
from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import DataDir

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainhouse.client.gateway.backend import ByGateway
    from trainhouse.client.gateway.tunnels import TunnelStream

LOOPBACK: Final = "127.0.0.1"
# Browsers send cookies to a host whatever the port: a host that is not the gateway's, so that its cookies do not go to the job.
# They resolve names below localhost to this machine themselves, without DNS.
HOST: Final = "notebook.localhost"
PAGES: Final = ("/lab", "/tree", "/")
FIRST: Final = {"kind": "http"}
STARTING_S: Final = 120.0
LOOK_S: Final = 0.5
MAX_CONNECTIONS: Final = 48
PIECE_BYTES: Final = 32 * 1024
_TOKEN: Final = re.compile(r"\A[0-9a-f]{32,128}\Z")
AWAY: Final = b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("notebook")(notebook)


@with_session_options("notebook")
def notebook(
    session: SessionOptions,
    job: AttachTo = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of this machine; 0: a free one.")] = 0,
    show: Annotated[bool, typer.Option("--open/--no-open", help="Open it in a browser.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Open Jupyter in a job of its own, or in one that runs, at a port of this machine. Ctrl-C detaches, and the job goes on.

    \b
    trainhouse notebook --gpus 1 --interpreter /opt/envs/train/bin/python
    trainhouse notebook --job notebook-1k7x3m9qp2f8d                attach again
    trainhouse shell --job notebook-1k7x3m9qp2f8d  a terminal beside it

    The job's Python needs Jupyter (jupyterlab or notebook). Without use and work the job ends by itself.
    """
    from trainhouse.cli.interactive import sessions

    way = sessions.gateway()
    if job is None:
        job = sessions.submitted(way, session.wanted, session.code)
    serve(way, job, port, show=show)


def serve(way: "ByGateway", job: str, port: int, *, show: bool) -> None:
    """Listens at this machine's loopback address until Ctrl-C or the job's end. Blocks. Raises CliError, ClientError."""
    from trainhouse.cli.shared.output import remark

    about = _started(way, job)
    try:
        listener = socket.create_server((LOOPBACK, port))
    except OSError as error:
        raise CliError(f"port {port} of this machine cannot be used: {error.strerror}; name another by --port", Exit.USAGE) from error
    address = address_of(port=listener.getsockname()[1], job=job, about=about)
    sys.stdout.write(f"{address}\n")
    sys.stdout.flush()
    remark(f"Jupyter of {job}; Ctrl-C detaches, and `trainhouse cancel {job}` ends it")
    if show:
        import webbrowser

        from trainhouse.cli.stack.open import private_page

        webbrowser.open(private_page(address).as_uri())
    ended: list[Exception] = []
    room = threading.BoundedSemaphore(MAX_CONNECTIONS)
    try:
        with listener:
            listener.settimeout(1.0)
            while not ended:
                try:
                    connection, _ = listener.accept()
                except TimeoutError:
                    continue
                connection.settimeout(None)
                room.acquire()
                threading.Thread(target=_serve_one, args=(way, job, connection, room, ended), daemon=True).start()
    except KeyboardInterrupt:
        remark(f"detached; {job} goes on: attach again with `trainhouse notebook --job {job}`, end it with `trainhouse cancel {job}`")
        return
    raise ended[0]


def address_of(port: int, job: str, about: "Mapping[str, Any]") -> str:
    """The address for a browser, by what the job says of its Jupyter. Pure. Raises CliError: it is the job's code that says it."""
    page, token = about.get("page"), about.get("token")
    if page not in PAGES or not isinstance(token, str) or not _TOKEN.match(token):
        raise CliError(
            f"{job} names a page and token that no Jupyter of Trainhouse has, so its address is not opened: see `trainhouse logs {job}`, "
            f"and end it with `trainhouse cancel {job}` if that is not yours",
            Exit.FAILED,
        )
    return f"http://{HOST}:{port}{page}?token={token}"


def _started(way: "ByGateway", job: str) -> "dict[str, Any]":
    """Jupyter's token and page, when it answers. Blocks. Raises CliError, ClientError."""
    from trainhouse.client.gateway.tunnels import opened

    until_s = time.monotonic() + STARTING_S
    while time.monotonic() < until_s:
        stream = opened(way, job, FIRST)
        stream.close()
        if "token" in stream.answer:
            return dict(stream.answer)
        time.sleep(LOOK_S)
    raise CliError(f"Jupyter of {job} has not started for {STARTING_S:.0f} s: see `trainhouse logs {job}`", Exit.TIMEOUT)


def _serve_one(way: "ByGateway", job: str, connection: socket.socket, room: threading.BoundedSemaphore, ended: list[Exception]) -> None:
    """Joins one connection of a browser with a tunnel of its own. `ended` gets the reason where the job is over."""
    from trainhouse.client.errors import ChangeRefusedError, ClientError
    from trainhouse.client.gateway.tunnels import opened

    try:
        with connection:
            try:
                stream = opened(way, job, FIRST, patience_s=10.0)
            except ClientError as error:
                connection.sendall(AWAY + f"{error}\n".encode())
                if isinstance(error, ChangeRefusedError):
                    ended.append(error)
                return
            try:
                typing = threading.Thread(target=_sent, args=(connection, stream), daemon=True)
                typing.start()
                _received(connection, stream)
            finally:
                stream.close()
    except OSError:
        return
    finally:
        room.release()


def _sent(connection: socket.socket, stream: "TunnelStream") -> None:
    from trainhouse.client.gateway.tunnels import TunnelLostError

    try:
        while data := connection.recv(PIECE_BYTES):
            stream.send(data)
    except (OSError, TunnelLostError):
        pass
    stream.close()


def _received(connection: socket.socket, stream: "TunnelStream") -> None:
    from trainhouse.client.gateway.tunnels import TunnelLostError

    try:
        while data := stream.receive():
            connection.sendall(data)
        connection.shutdown(socket.SHUT_RDWR)
    except (OSError, TunnelLostError):
        return

"""`ssh-config` and `ssh-proxy`: OpenSSH's client, and so VS Code, in an interactive job, through the gateway.

Holds: the key of this machine's user is made once, without a passphrase, in a folder for its owner alone; a job's host key comes through
the tunnel, in the one form that counts, so ssh checks it. Nothing of ~/.ssh is written.
"""

import os
import shlex
import shutil
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import DataDir

if TYPE_CHECKING:
    from trainhouse.client.gateway.tunnels import TunnelStream

SUFFIX: Final = ".trainhouse"
USER: Final = "job"
MAX_HOSTS: Final = 500
MAX_USER_CHARS: Final = 64
PIECE_BYTES: Final = 32 * 1024


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("ssh-config")(ssh_config)
    app.command("ssh-proxy")(ssh_proxy)


def ssh_config(data_dir: DataDir = None) -> None:
    """Print the lines of ~/.ssh/config by which ssh and VS Code reach interactive jobs. They hold for all jobs.

    \b
    trainhouse ssh-config >> ~/.ssh/config
    ssh shell-1k7x3m9qp2f8d.trainhouse
        VS Code: Remote-SSH, Connect to Host, the same name
    """
    from trainhouse.cli.shared.settings_lookup import DATA_DIR_NAME, DATA_DIR_VARIABLE, find_data_dir, only_gateway

    folder = None
    if not only_gateway(data_dir, os.environ):
        found = find_data_dir(data_dir, os.environ, Path.cwd())
        folder = (
            found if data_dir is not None or os.environ.get(DATA_DIR_VARIABLE) or (found.name == DATA_DIR_NAME and found.is_dir()) else None
        )
    sys.stdout.write(host_block(_program(), folder, keys_folder(os.environ)))


def host_block(program: str, data_dir: Path | None, keys: Path) -> str:
    """The lines. `data_dir`: of a stack on this machine; None where the environment names the gateway. Pure."""
    command = shlex.join([program, "ssh-proxy", *(["--data-dir", str(data_dir)] if data_dir is not None else [])])
    return f"""Host *{SUFFIX}
    User {USER}
    ProxyCommand {command.replace("%", "%%")} %n %r
    IdentityFile {_quoted(keys / "id_ed25519")}
    IdentitiesOnly yes
    UserKnownHostsFile {_quoted(keys / "known_hosts")}
    StrictHostKeyChecking yes
"""


def _quoted(path: Path) -> str:
    text = str(path).replace("%", "%%")
    return f'"{text}"' if " " in text else text


def keys_folder(environment: "os._Environ[str] | dict[str, str]") -> Path:
    """Folder of the user's key and of known hosts. Pure."""
    base = environment.get("XDG_CONFIG_HOME") or str(Path(environment.get("HOME", "/")) / ".config")
    return Path(base) / "trainhouse" / "ssh"


def ssh_proxy(
    host: Annotated[str, typer.Argument(metavar="HOST", help="Job id, or JOB.trainhouse, as ssh was called with.", show_default=False)],
    user: Annotated[str, typer.Argument(metavar="[USER]", help="User that ssh logs in as.")] = USER,
    data_dir: DataDir = None,
) -> None:
    """Join ssh's stream with an interactive job; ssh runs it, by the lines of ssh-config.

    \b
    ssh -o ProxyCommand='trainhouse ssh-proxy %n %r' job@shell-1k7x3m9qp2f8d
    """
    from trainhouse.cli.interactive import sessions
    from trainhouse.cli.shared.output import one_line
    from trainhouse.client.gateway.tunnels import TunnelLostError, opened
    from trainhouse.events.tunnel.host_keys import HostKeyError, checked_host_key

    job = host.removesuffix(SUFFIX)
    folder = keys_folder(os.environ)
    key = _own_key(folder)
    stream = opened(sessions.gateway(), job, {"kind": "ssh", "key": key})
    try:
        wanted = str(stream.answer.get("user", USER))
        if wanted != user:
            raise CliError(f"log in as the job's user: ssh {one_line(wanted, MAX_USER_CHARS)}@{host}", Exit.USAGE)
        _note_host(folder / "known_hosts", host, checked_host_key(stream.answer.get("host_key")))
        threading.Thread(target=_typed, args=(stream,), daemon=True).start()
        while data := stream.receive():
            _write(data)
    except TunnelLostError as error:
        raise CliError(f"{job}: {error}", Exit.UNAVAILABLE) from error
    except HostKeyError as error:
        raise CliError(
            f"{job}: {error}. Nothing was connected: its program is not the one of `trainhouse shell`", Exit.UNAVAILABLE
        ) from error
    finally:
        stream.close()


def _typed(stream: "TunnelStream") -> None:
    from trainhouse.client.gateway.tunnels import TunnelLostError

    try:
        while data := os.read(sys.stdin.fileno(), PIECE_BYTES):
            stream.send(data)
    except (OSError, TunnelLostError):
        pass
    stream.close()


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(sys.stdout.fileno(), data) :]


def _own_key(folder: Path) -> str:
    """The user's public key for jobs; made where there is none. Raises CliError."""
    from trainhouse.private_files import write_private

    file = folder / "id_ed25519"
    if not file.exists():
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

        made = Ed25519PrivateKey.generate()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        public = made.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        write_private(file.with_suffix(".pub"), public + b"\n")
        write_private(file, made.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    try:
        return " ".join(file.with_suffix(".pub").read_text().split()[:2])
    except OSError as error:
        raise CliError(
            f"the key {file} has no {file.name}.pub beside it ({error.strerror}): remove it, and another is made", Exit.CONFIG
        ) from error


def _note_host(file: Path, host: str, key: str) -> None:
    """Notes the key of a job's host, the newest of MAX_HOSTS."""
    from trainhouse.private_files import write_private

    lines = [line for line in file.read_text().splitlines() if line.split(" ")[0] != host] if file.exists() else []
    write_private(file, "".join(f"{line}\n" for line in [*lines[1 - MAX_HOSTS :], f"{host} {key}"]).encode())


def _program() -> str:
    """Path of this command line, which ssh calls in whatever folder and environment."""
    found = shutil.which(sys.argv[0]) or shutil.which("trainhouse")
    return os.path.abspath(found) if found else "trainhouse"

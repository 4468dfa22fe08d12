"""Endpoint of ssh in a job: OpenSSH's `sshd -i`, one process a connection, as the job's user.

Holds: nothing listens; a connection is a tunnel. The host's key is made for this job, and goes to its users through the tunnel; of keys of
users those alone count that came that way. No password counts.
"""

import asyncio
import contextlib
import os
import pwd
import re
import shutil
import signal
import socket
import tempfile
from pathlib import Path
from typing import Any, Final

MAX_KEYS: Final = 64
_KEY: Final = re.compile(r"(?:ssh-ed25519|ecdsa-sha2-nistp(?:256|384|521)|ssh-rsa) [A-Za-z0-9+/=]{16,4096}")
_PLACES: Final = ("/usr/sbin/sshd", "/usr/local/sbin/sshd", "/usr/bin/sshd")
_SFTP: Final = ("/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server", "/usr/lib/ssh/sftp-server", "/usr/libexec/sftp-server")


class NoSshError(Exception):
    """ssh cannot be offered here; the reason is for its user."""


class SshEndpoint:
    """Endpoint of one job."""

    def __init__(self) -> None:
        # In memory: the variables of the job, which logins get, may be secrets.
        shared = "/dev/shm"  # nosec B108  # the folder made below it has a name of its own, for its owner alone
        self._folder = Path(tempfile.mkdtemp(prefix="ssh-", dir=shared if os.access(shared, os.W_OK) else None))
        self._keys: dict[str, None] = {}
        self._lock = asyncio.Lock()

    async def open(self, key: Any) -> tuple[asyncio.subprocess.Process, socket.socket, dict[str, Any]]:
        """Starts the daemon of one connection for who holds `key`; its process, our end of its stream, and what the user has to know.
        Raises NoSshError, OSError."""
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            raise NoSshError("the client's public key is none: it has to be `TYPE BASE64`, as in a .pub file")
        sshd = _found("sshd", _PLACES)
        async with self._lock:
            host_key = await self._prepared(key)
        ours, theirs = socket.socketpair()
        try:
            os.set_inheritable(theirs.fileno(), True)
            process = await asyncio.create_subprocess_exec(
                sshd,
                *("-i", "-e", "-f", str(self._folder / "sshd_config")),
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=_default_signals,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return process, ours, {"host_key": host_key, "user": _user()}

    def close(self) -> None:
        """Removes its files."""
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _prepared(self, key: str) -> str:
        """Writes keys and configuration; returns the host's public key."""
        host = self._folder / "host_key"
        if not host.exists():
            (self._folder / "sshd_config").write_text(_configuration(self._folder, _environment(os.environ)))
            keygen = _found("ssh-keygen", ("/usr/bin/ssh-keygen",))
            made = await asyncio.create_subprocess_exec(keygen, "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(host))
            if await made.wait():
                raise NoSshError(f"ssh-keygen could not make a host key: it exited with code {made.returncode}")
        if key not in self._keys and len(self._keys) >= MAX_KEYS:
            raise NoSshError(f"{MAX_KEYS} keys have been used for this job, and that is the most; submit another one")
        if key not in self._keys:
            self._keys[key] = None
            # At once: the daemon of an earlier connection may be reading it.
            draft = self._folder / "authorized_keys.draft"
            draft.write_text("".join(f"{known}\n" for known in self._keys))
            draft.chmod(0o600)
            draft.replace(self._folder / "authorized_keys")
        return " ".join((self._folder / "host_key.pub").read_text().split()[:2])


def _configuration(folder: Path, environment: str) -> str:
    sftp = next((path for path in _SFTP if os.path.exists(path)), "internal-sftp")
    return f"""HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
PubkeyAuthentication yes
PermitRootLogin prohibit-password
AllowUsers {_user()}
UsePAM no
UseDNS no
PrintMotd no
PrintLastLog no
X11Forwarding no
PermitTunnel no
AllowTcpForwarding yes
AllowStreamLocalForwarding yes
GatewayPorts no
Subsystem sftp {sftp}
{environment}"""


def _environment(environ: Any) -> str:
    """The job's variables for logins: `sshd` begins with an empty environment. What a line of its settings cannot hold is left out."""
    plain = {
        name: value
        for name, value in environ.items()
        if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) and value.isprintable() and '"' not in value and "\\" not in value
    }
    words = " ".join(
        f'"{name}={value}"' for name, value in plain.items() if name not in ("HOME", "USER", "LOGNAME", "SHELL", "MAIL", "TERM")
    )
    return f"SetEnv {words}\n" if words else ""


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError as error:
        raise NoSshError(f"the job's user {os.getuid()} has no name on this node, which sshd needs: a confined job has one") from error


def _found(name: str, places: tuple[str, ...]) -> str:
    found = next((path for path in places if os.access(path, os.X_OK)), None) or shutil.which(name)
    if found is None:
        raise NoSshError(f"there is no {name} on this job's node: its operator has to install OpenSSH's server (openssh-server)")
    return found


def _default_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)


def end(process: asyncio.subprocess.Process) -> None:
    """Ends the daemon of a connection that is over, with what it started in its own session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGHUP)
    with contextlib.suppress(ProcessLookupError):
        process.terminate()

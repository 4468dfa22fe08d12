"""The embedded stack as a whole: `up` and `down`.

Always: one stack on a data folder (a lock that the supervisor holds); an `up` that fails leaves nothing running; a
`down` leaves the data.  Never: a part that is said to be ready before it answered.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from os import environ
from pathlib import Path

from trainhouse.deploy.local import client_config
from trainhouse.deploy.local import free_ports as tcp
from trainhouse.deploy.local.change_folder import unchanged
from trainhouse.deploy.local.credentials import rotation_note
from trainhouse.deploy.local.errors import DiskFullError, NotReadyError, NotRunningError, PortBusyError, StackError
from trainhouse.deploy.local.layout import BASE_PORT, Choices, StackFolder, StackPorts
from trainhouse.deploy.local.servers import certificates, jars
from trainhouse.deploy.local.servers.server_process import die_with_parent, tail
from trainhouse.deploy.local.socket_folder import remove_runtime_dir
from trainhouse.deploy.local.stack_state import MIN_FREE_BYTES
from trainhouse.deploy.local.supervision import stack_parts, supervisor_client, supervisor_config
from trainhouse.deploy.local.supervision.startup import Startup
from trainhouse.private_files import write_private

DEFAULT_SLOTS = 2
STOP_TIMEOUT_S = 120.0
SUPERVISOR_TIMEOUT_S = 20.0
PORT_PATIENCE_S = 2.0
POLL_S = 0.05
# What `up` decides by its file; an old export in the caller's shell must not overrule it.
DECIDED_HERE = ("TRAINHOUSE_KAFKA_", "TRAINHOUSE_S3_", "TRAINHOUSE_CLICKHOUSE_", "TRAINHOUSE_PROJECTOR_", "TRAINHOUSE_GATEWAY_")

Say = Callable[[str], None]


def up(
    root: Path,
    *,
    slots: int | None = None,
    ports: StackPorts | None = None,
    tls: bool | None = None,
    min_free_bytes: int = MIN_FREE_BYTES,
    attached: bool = False,
    say: Say = print,
) -> subprocess.Popen[bytes]:
    """Start everything and block until everything answers; the supervisor's process.

    `slots`, `ports` and `tls` default to what this folder had before. With `attached` the stack ends when the caller does.
    Raises a StackError that says what to do; nothing is left running then.
    """
    folder = StackFolder(root.absolute())
    folder.make()
    with unchanged(folder):
        return _up(folder, slots, ports, tls, min_free_bytes, attached, say)


def _up(
    folder: StackFolder, slots: int | None, ports: StackPorts | None, tls: bool | None, min_free_bytes: int, attached: bool, say: Say
) -> subprocess.Popen[bytes]:
    with supervisor_client.locked(folder) as lock:
        refuse_full_disk(folder.root, min_free_bytes)
        choices = choose(folder, slots, ports, tls)
        wait_for_ports(StackPorts(choices.ports))
        jars.ensure(say=say)
        keys = client_config.keys_of(folder)
        client_config.forget_next_key(folder)  # of a rotation that was cut off before any part had it
        if choices.tls:
            certificates.ensure(folder)
        client_config.write(folder, choices, keys)
        folder.write_choices(choices)
        startup = Startup(folder, StackPorts(choices.ports), keys, say)
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda server: server.prepare(), startup.servers))
        supervisor = start_supervisor(folder, startup.parts, lock, attached)
    try:
        wait_for_supervisor(folder, supervisor)
        startup.run()
    except BaseException:
        supervisor_client.shut_down(folder, STOP_TIMEOUT_S)
        raise
    rotation_note.over(folder)  # each part was started with what the files say
    return supervisor


def down(root: Path) -> None:
    """Stop everything, the agent first, and block until all is stopped; NotRunningError if nothing runs. The data stays."""
    folder = StackFolder(root.absolute())
    pid = supervisor_client.supervisor_pid(folder) if folder.root.exists() else None
    if pid is None:
        raise NotRunningError(f"no stack runs on {folder.root}")
    if not supervisor_client.shut_down(folder, STOP_TIMEOUT_S):
        raise StackError(
            f"the stack on {folder.root} did not stop within {STOP_TIMEOUT_S:g} s: see {folder.logs}/supervisor.log; "
            f"`kill -9 {pid}` ends it with all its parts"
        )
    remove_runtime_dir(folder.root)
    remove_runtime_dir(folder.part("store"))


def choose(folder: StackFolder, slots: int | None, ports: StackPorts | None, tls: bool | None = None) -> Choices:
    """Merges the given options with those of the folder, else the defaults."""
    before = folder.read_choices() or Choices(StackPorts.from_base(BASE_PORT).numbers, DEFAULT_SLOTS)
    return replace(
        before,
        slots=before.slots if slots is None else slots,
        ports=(ports or StackPorts(before.ports).complete()).numbers,
        tls=before.tls if tls is None else tls,
    )


def refuse_full_disk(path: Path, min_free_bytes: int) -> None:
    """DiskFullError when there is less room than a stack needs to start with."""
    free = shutil.disk_usage(path).free
    if free < min_free_bytes:
        raise DiskFullError(
            f"the disk of {path} has {free / 1024**2:.0f} MiB free, a stack needs {min_free_bytes / 1024**2:.0f} MiB to start: "
            "make room, or name a folder on another disk by --data-dir"
        )


def wait_for_ports(ports: StackPorts) -> None:
    """PortBusyError if a port stays taken; the parts of a supervisor that was just killed get a moment to end."""
    deadline = time.monotonic() + PORT_PATIENCE_S
    while True:
        try:
            return tcp.refuse_busy("the stack", ports.numbers)
        except PortBusyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_S)


def start_supervisor(folder: StackFolder, listed: Iterable[stack_parts.Part], lock: int, attached: bool) -> subprocess.Popen[bytes]:
    """Start the supervisor, which inherits the folder's lock; it starts no part by itself."""
    write_private(folder.supervisor_config, supervisor_config.render(folder, listed).encode())
    folder.socket.unlink(missing_ok=True)  # of a supervisor that was killed: we hold its lock
    command = [sys.executable, "-m", "trainhouse.deploy.local.supervision.supervisor", "-n", "-c", str(folder.supervisor_config)]
    variables = {name: value for name, value in environ.items() if not name.startswith(DECIDED_HERE)}
    variables |= {
        "TRAINHOUSE_CONFIG": str(folder.client_config),
        "TRAINHOUSE_DATA_DIR": str(folder.root),
        "PYTHONUNBUFFERED": "1",
    }
    with (folder.logs / "supervisor.out").open("wb") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder.root,
            env=variables,
            pass_fds=(lock,),
            start_new_session=True,
            preexec_fn=die_with_parent(signal.SIGTERM) if attached else None,
        )


def wait_for_supervisor(folder: StackFolder, supervisor: subprocess.Popen[bytes]) -> None:
    """Block until the supervisor answers; NotReadyError with its words if it ends."""
    deadline = time.monotonic() + SUPERVISOR_TIMEOUT_S
    while supervisor_client.supervisor_pid(folder) is None:
        if supervisor.poll() is not None or time.monotonic() > deadline:
            raise NotReadyError(f"the supervisor did not start:\n{tail(folder.logs / 'supervisor.out')}")
        time.sleep(POLL_S)

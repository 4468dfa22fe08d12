"""The supervisor's configuration file, made from the parts.

Always: logs are rotated and bounded; the socket is its owner's alone; nothing starts by itself (the order is `up`'s).
Never: a secret; it has the parts' command lines and paths only.
"""

from __future__ import annotations

import resource
import shlex
import sys
from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path

from trainhouse.deploy.local.layout import StackFolder
from trainhouse.deploy.local.supervision import tether
from trainhouse.deploy.local.supervision.stack_parts import Part

LOG_BYTES = 10 * 1024 * 1024
LOG_BACKUPS = 3
# A broker keeps files open for each partition.
WANTED_FILES = 8192


def render(folder: StackFolder, parts: Iterable[Part]) -> str:
    """The whole file."""
    listed = list(parts)
    groups = [(name, [part.name for part in members]) for name, members in groupby(listed, lambda part: part.group)]
    priorities = {part.group: part.priority for part in listed}
    timed = {part.name: part.every_s for part in listed if part.every_s}
    sections = [_supervisor(folder, timed)]
    sections += [_section(f"group:{name}", programs=",".join(members), priority=priorities[name]) for name, members in groups]
    sections += [_program(folder, part) for part in listed]
    return "\n".join(sections)


def log_file(folder: StackFolder, name: str) -> Path:
    """Path of a part's log file."""
    return folder.logs / f"{name}.log"


def _supervisor(folder: StackFolder, timed: Mapping[str, int]) -> str:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return "\n".join(
        (
            _section("unix_http_server", file=folder.socket, chmod="0700"),
            _section(
                "supervisord",
                logfile=folder.logs / "supervisor.log",
                logfile_maxbytes=LOG_BYTES,
                logfile_backups=LOG_BACKUPS,
                pidfile=folder.root / "supervisor.pid",
                directory=folder.root,
                nodaemon="true",
                silent="true",
                minfds=WANTED_FILES if hard == resource.RLIM_INFINITY else min(hard, WANTED_FILES),
            ),
            _section("rpcinterface:supervisor", **{"supervisor.rpcinterface_factory": "supervisor.rpcinterface:make_main_rpcinterface"}),
            _section(
                "rpcinterface:trainhouse",
                **{"supervisor.rpcinterface_factory": "trainhouse.deploy.local.supervision.supervisor:make_restarts"},
                **timed,
            ),
        )
    )


def _program(folder: StackFolder, part: Part) -> str:
    command = [sys.executable, "-I", "-S", tether.__file__, part.orphan_signal, *part.command]
    return _section(
        f"program:{part.name}",
        command=shlex.join(command),
        directory=part.directory,
        priority=part.priority,
        autostart="false",
        autorestart="false" if part.every_s else "true",
        startsecs=0 if part.every_s else 1,
        startretries=1_000_000,
        stopsignal=part.stop_signal,
        stopwaitsecs=part.stop_wait_s,
        # Only the part itself is signalled: an agent's ranks have to outlive it.
        stopasgroup="false",
        killasgroup="false",
        redirect_stderr="true",
        # Relative to the data folder, where the supervisor runs: it expands this option twice, and a percent sign in
        # a folder's name would not survive that.
        stdout_logfile=log_file(folder, part.name).relative_to(folder.root),
        stdout_logfile_maxbytes=LOG_BYTES,
        stdout_logfile_backups=LOG_BACKUPS,
        **({"environment": _environment(part)} if part.environment else {}),
        **({"umask": f"{part.umask:03o}"} if part.umask is not None else {}),
    )


def _environment(part: Part) -> str:
    return ",".join(f'{name}="{value}"' for name, value in part.environment.items())


def _section(name: str, **options: object) -> str:
    # A percent sign starts an expansion in this format.
    lines = [f"{key}={str(value).replace('%', '%%')}" for key, value in options.items()]
    return "\n".join((f"[{name}]", *lines, ""))

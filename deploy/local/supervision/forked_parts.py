"""Own parts of a stack as forks of the supervisor: what they all import is loaded once, and its memory is shared.

Holds: the part's command line stays the one that runs it on any machine; a fork does what that would do, in the same environment, with
default signals, and ends as an interpreter does. Without `load` each part imports for itself after the fork.
Never: a thread, a client or a secret in the supervisor: what a fork inherits is code.
"""

import gc
import importlib
import os
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

import setproctitle

from trainhouse.deploy.local.supervision import tether

# What two parts or more import. What one alone imports, it imports itself, on a core of its own and beside the others: this process has
# one core, and the parts wait for it.
SHARED = (
    "trainhouse.cli.main",
    "trainhouse.client.kafka.snapshots",
    "trainhouse.scheduler.stream.roles.intake",
    "trainhouse.scheduler.stream.roles.scheduler",
    "trainhouse.scheduler.stream.roles.detector",
    "trainhouse.scheduler.stream.roles.tuner",
    "trainhouse.projections.alerts.service",
)
MODULE = "trainhouse.cli.main"


def load() -> None:
    """Imports what the parts share. Blocks for about two seconds of CPU; harmless when repeated."""
    importlib.import_module("trainhouse.cli.stack.run").leave_out_rich()
    for name in SHARED:
        importlib.import_module(name)
    importlib.import_module(MODULE).build("run")
    del sys.modules[MODULE]  # a part runs it as its main module
    gc.collect()
    gc.freeze()  # a collection in a fork would write to each shared page


def role_command(argv: Sequence[str]) -> list[str] | None:
    """The command of one of our own roles in a program's command line, None for any other program. Pure."""
    command = argv[-5:]
    return list(command) if command[:4] == [sys.executable, "-m", MODULE, "run"] else None


def become(argv: Sequence[str], environment: Mapping[str, str], supervisor: int) -> NoReturn:
    """Runs this role in this process, which is a fork of the supervisor's (its pid), and ends it. `argv` is what an exec would get."""
    from trainhouse.workers.launcher.script import run_and_exit

    command = argv[-5:]
    before = list(argv[: -len(command)])
    # First: the supervisor's own handlers would take the signal that says that it is gone for one that it got itself.
    for number in (signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    tether.tie(before[before.index(tether.__file__) + 1], supervisor)
    if "nice" in before:
        os.nice(int(before[before.index("-n", before.index("nice")) + 1]))
    setproctitle.setproctitle(shlex.join(command))  # before the environment moves: the title's room is found by its place
    os.environ.clear()
    os.environ.update(environment)
    run_and_exit(command)

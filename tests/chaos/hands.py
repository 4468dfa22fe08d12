"""Does faults to the running stack, and undoes those that last.

Holds: a signal goes only to the process that was meant (its pid and its start are compared); what lasts is undone when its time is over,
or by `heal`, whatever else happened meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from xmlrpc.client import Fault as Refused

import psutil

from tests.chaos.faults import Fault, Kind
from tests.chaos.slow import Slowed
from tests.chaos.stack import ChaosStack
from tests.waiting import until
from trainhouse.deploy.local import supervisor_client
from trainhouse.deploy.local.layout import StackFolder

SERVERS = "servers"
Undo = Callable[[], None]


class Hands:
    """One campaign's faults."""

    def __init__(self, stack: ChaosStack) -> None:
        self._stack = stack
        self._healed = threading.Event()
        self._lasting: list[threading.Thread] = []

    def strike(self, fault: Fault, pid: int) -> bool:
        """Does it to the process; False when that is gone. What lasts is undone by a thread of its own."""
        try:
            undo = self._do(fault, psutil.Process(pid))
        except psutil.NoSuchProcess:
            return False
        if undo is not None:
            thread = threading.Thread(target=self._undo_later, args=(undo, fault.lasts_s), name=str(fault), daemon=True)
            self._lasting.append(thread)
            thread.start()
        return True

    def settle(self) -> None:
        """Blocks until all that lasts has run out."""
        for thread in self._lasting:
            thread.join()
        self._lasting.clear()

    def heal(self) -> None:
        """Undoes all that lasts, at once; blocks."""
        self._healed.set()
        self.settle()
        self._healed.clear()

    def _undo_later(self, undo: Undo, after_s: float) -> None:
        self._healed.wait(after_s)
        try:
            undo()
        except psutil.NoSuchProcess:
            return

    def _do(self, fault: Fault, process: psutil.Process) -> Undo | None:
        match fault.kind:
            case Kind.KILL:
                process.kill()
                return None
            case Kind.PAUSE:
                process.suspend()
                return process.resume
            case Kind.PARTITION:
                self._stack.wire.cut()
                return self._stack.wire.heal
            case Kind.CLOCK:
                self._stack.clocks.shift(fault.target, fault.jump_s)
                return lambda: self._stack.clocks.shift(fault.target, 0.0)
            case Kind.RESTART:
                return self._stop(fault.target)
            case Kind.SLOW:
                return Slowed(process.pid).end

    def _stop(self, part: str) -> Undo:
        """As an operator would, by the supervisor: SIGTERM (or what the part asks for), SIGKILL after its time."""
        folder = StackFolder(self._stack.live.data_dir)

        def start() -> None:
            until(lambda: runs_again(folder, part), f"{part} starts again", timeout_s=120)

        try:
            supervisor_client.proxy(folder).supervisor.stopProcess(f"{SERVERS}:{part}", False)
        except Refused:
            pass  # it is between two starts
        return start


def runs_again(folder: StackFolder, part: str) -> bool:
    """Whether a server is up or on its way; starts it once it has stopped."""
    state = next(each.state for each in supervisor_client.states(folder) if each.name == part)
    if state in ("STOPPED", "EXITED"):
        try:
            supervisor_client.start(folder, SERVERS, part)
        except Refused:
            return False  # somebody was faster: look again
    return state in ("STARTING", "RUNNING", "BACKOFF")

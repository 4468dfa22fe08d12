"""Does faults to the running stack, and undoes those that last.

Holds: a signal goes only to the process that was meant (its pid and its start are compared); what lasts is undone when its time is over,
or by `heal`, whatever else happened meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from xmlrpc.client import Fault as Refused

import psutil

from tests.chaos import refusals
from tests.chaos.faults import Fault, Kind
from tests.chaos.slow import Slowed
from tests.chaos.stack import ChaosStack
from tests.support.waiting import until
from trainhouse.deploy.local.layout import StackFolder
from trainhouse.deploy.local.supervision import supervisor_client

SERVERS = "servers"
# For so long a process that is to be held may take to come to the moment.
MOMENT_S = 40.0
Undo = Callable[[], None]


class NotNow(Exception):
    """A fault could not be done at this moment; it is tried again."""


class Hands:
    """One campaign's faults. `missed`: processes that were to be held before something that they did not come to."""

    def __init__(self, stack: ChaosStack) -> None:
        self._stack = stack
        self._healed = threading.Event()
        self._lasting: list[threading.Thread] = []
        self._outsiders = stack.outsiders
        self.missed: list[str] = []

    def strike(self, fault: Fault, pid: int) -> bool:
        """Does it to the process; False when that is gone. What lasts is undone by a thread of its own."""
        try:
            undo = self._do(fault, psutil.Process(pid))
        except (psutil.NoSuchProcess, NotNow):
            return False
        if undo is not None:
            thread = threading.Thread(
                target=self._undo_later, args=(undo, 0.0 if fault.kind is Kind.HOLD else fault.lasts_s), name=str(fault), daemon=True
            )
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
            case Kind.HOLD:
                return self._hold(fault, process)
            case Kind.REFUSE:
                return self._refuse(fault.way)
            case Kind.EXTREMES:
                if not self._outsiders.send(fault.way):
                    raise NotNow(f"the brokers took nothing on {fault.way}")
                return None

    def _hold(self, fault: Fault, process: psutil.Process) -> Undo:
        """Of scheduler and standby whichever comes to the moment first. The thread that undoes it waits for the moment too."""
        passage = self._stack.passage
        if passage is None:
            raise RuntimeError("no process can be held: the stack was started without a passage")
        deciders = (self._stack.pid(part) for part in ("scheduler", "standby"))
        pids = (process.pid,) if fault.target == "intake" else tuple(pid for pid in deciders if pid is not None)
        hold = passage.hold(pids, fault.way, fault.lasts_s)

        def end() -> None:
            self._stack.nudge()
            give_up_s = time.monotonic() + MOMENT_S
            while not hold.over.wait(0.1) and not self._healed.is_set():
                if not hold.struck.is_set() and time.monotonic() > give_up_s:
                    break
            passage.release(hold)
            if not hold.struck.is_set():
                self.missed.append(str(fault))

        return end

    def _refuse(self, how: str) -> Undo:
        if not refusals.refuse(self._stack.kafka, how):
            raise NotNow(f"no broker could be told to refuse {how}")
        return lambda: until(lambda: refusals.accept(self._stack.kafka, how), f"{how} are taken again")

    def _stop(self, part: str) -> Undo:
        """As an operator would, by the supervisor: SIGTERM (or what the part asks for), SIGKILL after its time."""
        folder = StackFolder(self._stack.live.data_dir)

        def start() -> None:
            until(lambda: runs_again(folder, part), f"{part} starts again")

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

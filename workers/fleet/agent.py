"""Run of an emulated node's agent: the agent's own machine, with its actions carried out on an emulated node.

Holds: inputs go through the machine one at a time, and the actions of one are done before the next; what it knows is on the node's disk
after each. Once `end` was called it says and does nothing.
"""

from collections import deque
from dataclasses import replace
from typing import Protocol

from trainhouse.events import NodeDesiredState, NodeProbeAsked, NodeProbed, ProbeCheck
from trainhouse.workers.agent.core import (
    Action,
    AgentInput,
    AgentState,
    AskCheckpoint,
    AttemptAdopted,
    AttemptKey,
    Command,
    Drain,
    Drained,
    Finish,
    Identity,
    KillTree,
    Launch,
    Probe,
    Register,
    Report,
    Seal,
    Sealed,
    ShutdownAsked,
    StacksTaken,
    StopAcked,
    Sweep,
    Swept,
    TakeStacks,
    Terminate,
    Tick,
    UploadOwnStates,
    next_due_ms,
    notice_reports,
    step,
)
from trainhouse.workers.agent.core import home as homes
from trainhouse.workers.agent.core.home import Home, Stage
from trainhouse.workers.agent.node.registration import NodeFacts, Pulse
from trainhouse.workers.fleet.disk import Disk
from trainhouse.workers.fleet.timers import Timer, Timers
from trainhouse.workers.fleet.uplink import Uplink


class Machine(Protocol):
    """Machine of the agent: the node and its processes."""

    def launch(self, action: Launch, agent: "EmulatedAgent", now_ms: int) -> None: ...
    def terminate(self, key: AttemptKey, now_ms: int) -> None: ...
    def kill(self, key: AttemptKey, now_ms: int) -> None: ...
    def ask_checkpoint(self, action: AskCheckpoint, now_ms: int) -> None: ...
    def finished(self, key: AttemptKey) -> None: ...
    def next_identity(self) -> Identity: ...


class EmulatedAgent:
    """Made when the agent starts; a restarted agent is another one."""

    def __init__(
        self, identity: Identity, machine: Machine, disk: Disk, uplink: Uplink, facts: NodeFacts, pulse: Pulse, timers: Timers
    ) -> None:
        self.state: AgentState = disk.state(identity)
        self.uplink = uplink
        self.alive = True
        self._machine = machine
        self._disk = disk
        self._facts = facts
        self._pulse = pulse
        self._timers = timers
        self._inbox: deque[AgentInput] = deque()
        self._busy = False
        self._sequence = 0
        self._tick: Timer | None = None
        self._home: Home | None = None

    def start(self, partition: int, now_ms: int) -> None:
        """Takes over what an earlier agent left, then registers."""
        for key in sorted(self._disk.folders):
            folder = self._disk.folders[key]
            self.on_input(AttemptAdopted(folder.allocation, folder.launched), now_ms)
            for rank in sorted(folder.exits):
                self.on_input(folder.exits[rank], now_ms)
        home = homes.located(self.state.control, partition, now_ms)
        self._keep(home)
        self._register(now_ms)
        if home.until_ms is not None:
            self._timers.at(home.until_ms, self._passed)

    def moved(self, partition: int) -> None:
        """Its pool is on `partition` now: what it reports waits until that one answers."""
        if self.alive and self._home is not None and self._home.to != partition:
            self._home = homes.moved(self._home, partition)
            self.uplink.hold()

    @property
    def leaving(self) -> bool:
        """True if it registers as soon as the brokers hold all that was sent."""
        return self.alive and self._home is not None and self._home.stage is Stage.LEAVING

    def quiet(self, now_ms: int) -> None:
        """The brokers hold all that was sent."""
        if self.leaving and self._home is not None:
            self._home = homes.quiet(self._home)
            self.state = replace(self.state, identity=self._machine.next_identity())
            self._register(now_ms, *notice_reports(self.state))

    def on_input(self, happened: AgentInput, now_ms: int) -> None:
        """One input; those that its own actions give rise to come after it."""
        self._inbox.append(happened)
        if self._busy:
            return
        self._busy = True
        try:
            while self._inbox and self.alive:
                happened = self._inbox.popleft()
                self._step(happened, now_ms)
                if isinstance(happened, Command) and isinstance(happened.event, NodeDesiredState):
                    self._answered(happened, happened.event)
        finally:
            self._busy = False

    def beat(self, now_ms: int) -> None:
        """One heartbeat."""
        self._sequence += 1
        self.uplink.beat(self._pulse.beat(self.state, self._sequence, now_ms, 0))

    def acked(self, key: AttemptKey, now_ms: int) -> None:
        """The brokers hold the AttemptStopped of an attempt."""
        if self.alive:
            self.on_input(StopAcked(key), now_ms)

    def shut_down(self, grace_ms: int, now_ms: int) -> None:
        """As SIGTERM to a real agent: stops its ranks, reports, and is over when no attempt is left."""
        self.on_input(ShutdownAsked(grace_ms), now_ms)

    def end(self) -> None:
        """The process is gone, at once."""
        self.alive = False
        if self._tick is not None:
            self._tick.cancel()

    def _step(self, happened: AgentInput, now_ms: int) -> None:
        self.state, actions = step(self.state, now_ms, happened)
        self._disk.keep(self.state)
        for action in actions:
            self._do(action, now_ms)
        self._watch_grace(now_ms)

    def _do(self, action: Action, now_ms: int) -> None:
        match action:
            case Report():
                self.uplink.report(action)
            case Launch():
                self._machine.launch(action, self, now_ms)
            case Terminate(key=key):
                self._machine.terminate(key, now_ms)
            case KillTree(key=key):
                self._machine.kill(key, now_ms)
            case AskCheckpoint():
                self._machine.ask_checkpoint(action, now_ms)
            case Sweep(key=key):
                self.on_input(Swept(key), now_ms)  # emulated ranks leave nothing behind
            case Drain(key=key):
                self.uplink.ship()
                self.on_input(Drained(key), now_ms)
            case Seal(key=key):
                self.on_input(Sealed(key, makes=True, failure="emulated ranks write no outputs"), now_ms)
            case Finish(key=key):
                self._machine.finished(key)
            case Register():
                self.state = replace(self.state, identity=self._machine.next_identity())
                self._register(now_ms, *notice_reports(self.state))
            case TakeStacks(key=key):
                self.on_input(StacksTaken(key), now_ms)  # emulated ranks have no stack
            case UploadOwnStates():
                pass  # emulated ranks have nothing of their own
            case Probe(request=request):
                self.uplink.report(probed(request, now_ms))

    def _watch_grace(self, now_ms: int) -> None:
        """Sees to it that the machine hears of the time when a stopping attempt's grace is over, or a notice wants something."""
        due_ms = next_due_ms(self.state, now_ms)
        if due_ms is None:
            return
        if self._tick is not None and self._tick.waits and self._tick.at_ms <= due_ms:
            return
        if self._tick is not None:
            self._tick.cancel()
        self._tick = self._timers.at(due_ms, lambda now_ms: self.on_input(Tick(), now_ms) if self.alive else None)

    def _register(self, now_ms: int, *more: Report) -> None:
        """Registers the node, once the brokers hold all that was sent before."""
        home = self._home
        if home is None or home.stage is Stage.LEAVING:
            return
        self.beat(now_ms)
        me = self.state.identity
        registration = Report(self._facts.registration(self.state), f"{me.node_id}:{me.incarnation}:registered")
        self.uplink.located(home.at, registration, *more, opens=home.open)

    def _keep(self, home: Home) -> None:
        """Saves the partition of control on disk before anything is written to it."""
        self._home = home
        self.state = replace(self.state, control=home.at)
        self._disk.keep(self.state)

    def _answered(self, command: Command, event: NodeDesiredState) -> None:
        me = self.state.identity
        mine = (event.node_id, event.incarnation) == (me.node_id, me.incarnation)
        if self._home is None or self._home.open or command.order is None or not mine:
            return
        home = homes.answered(self._home, command.order.partition)
        if home.open:
            self._keep(home)
            self.uplink.open(home.at)

    def _passed(self, now_ms: int) -> None:
        """A start has waited for an answer by way of the partition before."""
        if self.alive and self._home is not None and not self._home.open:
            home = homes.passed(self._home, now_ms)
            if home.open:
                self._keep(home)
                self._register(now_ms)


def probed(request: NodeProbeAsked, now_ms: int) -> Report:
    """Returns the result of an emulated machine's self test: no fault, and the check says why."""
    me = {"node_id": request.node_id, "boot_id": request.boot_id, "pool": request.pool, "probe": request.probe}
    check = ProbeCheck(name="emulated", passed=True, found="this node is emulated: it has nothing that could be tried")
    event = NodeProbed.model_validate(me | {"passed": True, "checks": (check,), "at_ms": now_ms})
    return Report(event, f"{request.node_id}:{request.boot_id}:probed:{request.at_ms}:{request.probe}")

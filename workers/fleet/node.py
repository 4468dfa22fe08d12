"""Emulated machine: its power, its network, its agent, and the processes of its ranks.

Holds: ranks outlive their agent, not their machine; a command reaches the agent only while it reads; a machine that booted again has a
new boot id and finds its old attempts' folders without their processes.
"""

import signal

from trainhouse.events import DumpStacks, Event, NodeDesiredState, NodeOrders, OperationReplied, OperationRequest, ProfileRanks
from trainhouse.workers.agent.core import (
    AskCheckpoint,
    AttemptKey,
    Command,
    Identity,
    Launch,
    LaunchDone,
    LaunchRefused,
    Noticed,
    RankGone,
    Report,
    SessionSeen,
)
from trainhouse.workers.agent.node.registration import NodeFacts, Pulse
from trainhouse.workers.agent.ship.rank_shipper import RankProgress
from trainhouse.workers.fleet.agent import EmulatedAgent
from trainhouse.workers.fleet.disk import Disk, Folder, Unsent
from trainhouse.workers.fleet.node_env import World
from trainhouse.workers.fleet.scripts import UnsupportedEmulationError
from trainhouse.workers.fleet.timers import Timer

MAX_UNREAD = 10_000
DEVICE_FAILED = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
NO_PROCESS = "this rank is emulated: it has no process\n"


class EmulatedNode:
    """One machine. `up`: its agent runs; `cut`: its network is down; `going`: it was told that it goes away."""

    def __init__(self, node_id: str, facts: NodeFacts, heartbeat_s: float, world: World) -> None:
        self.node_id = node_id
        self.agent: EmulatedAgent | None = None
        self.disk = Disk()
        self.cut = False
        self.going = False
        self.answered = False
        self._facts = facts
        self._world = world
        self._pulse = Pulse(heartbeat_s, facts.devices, self._progress, lambda key, rank: None)
        self._beat_ms = 0
        self._boots = self._starts = 0
        self._boot_id = ""
        self._beating: Timer | None = None
        self._unread: list[Command] = []

    @property
    def up(self) -> bool:
        return self.agent is not None

    @property
    def boot_id(self) -> str:
        """The boot that it is in, or was in when it went down."""
        return self._boot_id

    @property
    def troubled(self) -> bool:
        """True if something is wrong with it now."""
        return self.agent is None or self.cut or self.going

    def jobs(self) -> set[str]:
        """Jobs of which its agent knows an attempt, or will when it reads on."""
        if self.agent is None:
            return set()
        return {k.job_id for k in self.agent.state.attempts}.union(*(_jobs_in(c.event) for c in self._unread))

    def boot(self, now_ms: int) -> None:
        """Power on: a new boot, and its agent starts."""
        self._boots += 1
        self._boot_id = f"{self._world.run_id}-boot-{self._boots}"
        self.start_agent(now_ms)

    def start_agent(self, now_ms: int) -> None:
        """The agent starts, adopts what it finds, and registers."""
        identity = self.next_identity()
        agent: EmulatedAgent
        uplink = self._world.uplink(identity, self.disk, lambda key: self._world.acked(lambda now_ms: agent.acked(key, now_ms)))
        agent = EmulatedAgent(identity, self, self.disk, uplink, self._facts, self._pulse, self._world.timers)
        self.agent, self.answered = agent, False
        agent.start(self._world.partition, now_ms)
        phase_ms = round(self._world.share(self.node_id, "beat") * self._pulse.interval_s * 1000)
        self._beating = self._world.timers.at(now_ms + phase_ms, self._beat)
        self._world.changed(self)

    def stop_agent(self) -> None:
        """The agent's process is gone; its ranks go on."""
        if self.agent is not None:
            self.agent.end()
        self.agent = None
        self._unread.clear()
        if self._beating is not None:
            self._beating.cancel()
        self._world.changed(self)

    def power_off(self, now_ms: int) -> None:
        """Everything on the machine is gone at once; nobody is told."""
        self.stop_agent()
        self.cut = self.going = False
        for key, folder in list(self.disk.folders.items()):
            for rank in folder.ranks_left:
                text = f"rank {rank} is gone and how it ended was not recorded: its keeper was killed, or the machine went down"
                self._ended(folder, RankGone(key, rank, None, None, text, now_ms))

    def attempts(self) -> list[AttemptKey]:
        """Attempts with ranks on this node, in a fixed order."""
        return sorted(key for key, folder in self.disk.folders.items() if folder.ranks_left)

    def strike_rank(self, kind: str, now_ms: int) -> None:
        """The first rank of the first attempt here fails on its device, or stops."""
        key = self.attempts()[0]
        rank = self.disk.folders[key].ranks_left[0]
        if kind == "hang":
            self._world.gangs.stop_rank(key, rank, now_ms)
        else:
            self.rank_ends(key, rank, now_ms, 1, DEVICE_FAILED)

    def notice(self, deadline_ms: int, now_ms: int) -> None:
        """The machine is told that it goes away; ranks of emulated jobs all have a session."""
        self.going = True
        if self.agent is not None:
            for key in [k for k, folder in self.disk.folders.items() if folder.launched]:
                self.agent.on_input(SessionSeen(key), now_ms)
            self.agent.on_input(Noticed("emulated", "the fleet's plan takes this machine away", deadline_ms), now_ms)

    def cut_off(self) -> None:
        """The network goes: nothing comes in or goes out, and the ranks go on."""
        self.cut = True
        if self.agent is not None:
            self.agent.uplink.cut = True

    def mend(self, now_ms: int) -> None:
        """The network is back: what waited goes out, and what was missed is read."""
        self.cut = False
        unread, self._unread = self._unread, []
        if self.agent is not None:
            self.agent.uplink.mend()
            self.moved()
        for command in unread:
            self.command(command, now_ms)
        self._world.changed(self)

    def moved(self) -> None:
        """The pool may be on another partition than before; a node that is cut off reads of it when it no longer is."""
        if self.agent is not None and not self.cut:
            self.agent.moved(self._world.partition)
            if self.agent.leaving:
                self._world.leaving(self)

    def quiet(self, now_ms: int) -> None:
        """The brokers hold all that was sent to control."""
        if self.agent is not None:
            self.agent.quiet(now_ms)

    def command(self, command: Command, now_ms: int) -> None:
        """A command for this node came out of the brokers."""
        if self.agent is None:
            return  # nobody reads; the answer to the next registration holds what it told
        if self.cut and len(self._unread) < MAX_UNREAD:
            self._unread.append(command)
            self._world.changed(self)
            return
        if isinstance(command.event, NodeDesiredState) and command.event.incarnation == self.agent.state.identity.incarnation:
            self.answered = True
        self.agent.on_input(command, now_ms)
        self._world.changed(self)

    def operation(self, request: OperationRequest, now_ms: int) -> None:
        """A person asks something of a rank: there is no process to ask, and the answer says so."""
        if self.agent is None or self.cut or request.expires_at_ms <= now_ms:
            return
        running = [a for a in self.agent.state.attempts.values() if a.key.job_id == request.job_id and a.has_processes]
        found = max(running, key=lambda a: a.key, default=None)
        here = found.placement.ranks if found is not None else range(0)
        asked = (
            here
            if isinstance(request, DumpStacks)
            else request.ranks
            if isinstance(request, ProfileRanks)
            else [getattr(request, "rank", 0)]
        )
        for rank in asked:
            known = found is not None and rank in here
            text = NO_PROCESS if known else f"rank {rank} of job {request.job_id} does not run on this node now\n"
            attempt = found.allocation.attempt if found is not None else None
            fields = {"request_id": request.request_id, "node_id": self.node_id, "job_id": request.job_id, "attempt": attempt}
            self.agent.uplink.reply(OperationReplied.model_validate(fields | {"rank": rank, "part": 0, "text": text, "done": True}))

    def next_identity(self) -> Identity:
        self._starts += 1
        return Identity(self.node_id, self._boot_id, f"{self._world.run_id}-start-{self._starts}", self._world.pool)

    def launch(self, action: Launch, agent: EmulatedAgent, now_ms: int) -> None:
        """Starts an attempt's ranks; they have processes after the script's time, if the agent lives as long."""
        allocation, key = action.allocation, action.key
        folder = self.disk.folders[key] = Folder(allocation, action.placement)
        try:
            script = self._world.scripts.of(allocation)
        except UnsupportedEmulationError as problem:
            agent.on_input(LaunchRefused(key, f"an emulated node cannot run this job: {problem}", retryable=False), now_ms)
            return

        def done(then_ms: int) -> None:
            if agent.alive and self.disk.folders.get(key) is folder:
                folder.launched = True
                self._world.gangs.started(allocation, script, self, then_ms)
                agent.on_input(LaunchDone(key, warm=True), then_ms)
                if self.going:
                    agent.on_input(SessionSeen(key), then_ms)

        self._world.timers.at(now_ms + script.start_ms + self._world.scripts.slow_ms(allocation, self.node_id), done)

    def terminate(self, key: AttemptKey, now_ms: int) -> None:
        """SIGTERM: the ranks end a little later."""
        folder = self.disk.folders.get(key)
        if folder is not None:
            stop_ms = self._world.scripts.of(folder.allocation).stop_ms
            self._world.timers.at(now_ms + stop_ms, lambda then_ms: self._signalled(folder, key, signal.SIGTERM, then_ms))

    def kill(self, key: AttemptKey, now_ms: int) -> None:
        """SIGKILL: the ranks end at once."""
        folder = self.disk.folders.get(key)
        if folder is not None:
            self._signalled(folder, key, signal.SIGKILL, now_ms)

    def ask_checkpoint(self, action: AskCheckpoint, now_ms: int) -> None:
        self._world.gangs.asked(action.key, action.request, now_ms)

    def finished(self, key: AttemptKey) -> None:
        self.disk.folders.pop(key, None)
        self._world.changed(self)

    def rank_ends(self, key: AttemptKey, rank: int, now_ms: int, exit_code: int, reason: str = "") -> None:
        folder = self.disk.folders.get(key)
        if folder is not None and rank in folder.ranks_left:
            why = f"rank {rank} exited with code {exit_code}: {reason}" if reason else ""
            self._ended(folder, RankGone(key, rank, exit_code, None, why, now_ms))

    def publish(self, topic: str, event: Event, event_id: str) -> None:
        self.disk.unsent.append(Unsent(topic, event, event_id))
        if self.agent is not None:
            self.agent.uplink.ship()

    def report_progress(self, event: Event, event_id: str, beside: bool) -> bool:
        return self.agent is not None and self.agent.uplink.progress(Report(event, event_id), beside)

    def _signalled(self, folder: Folder, key: AttemptKey, number: int, now_ms: int) -> None:
        for rank in folder.ranks_left:
            if number == signal.SIGTERM and self._world.gangs.stopped(key, rank):
                continue  # a stopped process hears nothing; SIGKILL follows
            text = f"rank {rank} was ended by {signal.Signals(number).name}"
            self._ended(folder, RankGone(key, rank, None, int(number), text, now_ms))

    def _ended(self, folder: Folder, gone: RankGone) -> None:
        folder.exits[gone.rank] = gone
        self._world.gangs.rank_gone(gone.key, self.node_id, last=not folder.ranks_left)
        if self.agent is not None:
            self.agent.on_input(gone, gone.at_ms)

    def _progress(self, key: AttemptKey, rank: int) -> RankProgress:
        return self._world.gangs.progress(key, rank, self._beat_ms)

    def _beat(self, now_ms: int) -> None:
        self._beat_ms = now_ms
        if self.agent is not None:
            self.agent.beat(now_ms)
            self._beating = self._world.timers.at(now_ms + round(self._pulse.interval_s * 1000), self._beat)


def _jobs_in(event: Event) -> set[str]:
    """Jobs that a command speaks of."""
    if isinstance(event, NodeDesiredState | NodeOrders):
        return {str(a.job_id) for a in event.allocations}
    job_id = getattr(event, "job_id", None)
    return {str(job_id)} if job_id is not None else set()

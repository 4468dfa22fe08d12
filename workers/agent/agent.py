"""The agent's loop: inputs go through the machine, its actions are carried out, files are shipped, the node's pulse is sent.

Holds: one thread owns all state; what blocks (launches, operations, cleaning) runs in workers and answers through the inbox. What must
outlive a crash is on disk before the actions that rest on it.
Never: ends because brokers or the object store are away.
"""

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace

import structlog

from trainhouse.events import NodeAccess, NodeDesiredState, NodeHeartbeat, NodeProbeAsked, NodeProbed, OperationReplied, RankExited
from trainhouse.events.wire.topics import CONTROL
from trainhouse.workers.agent.agent_metrics import Figures
from trainhouse.workers.agent.components import Message, Parts
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
    KillTree,
    Launch,
    Noticed,
    Probe,
    Register,
    Report,
    Seal,
    SessionSeen,
    ShutdownAsked,
    StacksTaken,
    StopAcked,
    Sweep,
    Swept,
    TakeStacks,
    Terminate,
    Tick,
    UploadOwnStates,
    notice_reports,
    step,
)
from trainhouse.workers.agent.core import home as homes
from trainhouse.workers.agent.core.agent_state import Draining, Running, Sealing, Stopping, Sweeping
from trainhouse.workers.agent.core.home import Home, Stage
from trainhouse.workers.agent.debug.stacks import keep_stacks
from trainhouse.workers.agent.errors import CommandsLostError
from trainhouse.workers.agent.follower import Deaf, Located, Moved, OperationAsked
from trainhouse.workers.agent.launch.adoption import launch_was_whole
from trainhouse.workers.agent.launch.attempt_dirs import FoundAttempt, found_attempts, key_of, mark_finished
from trainhouse.workers.agent.launch.launching import paths_of
from trainhouse.workers.agent.launch.rank_sessions import ask_session, has_session
from trainhouse.workers.agent.launch.rank_watch import RankWatch
from trainhouse.workers.agent.launch.unsaved import UnsavedWatch
from trainhouse.workers.agent.node.registration import again
from trainhouse.workers.agent.periodic import due
from trainhouse.workers.launcher import AttemptPaths, kill_tree, terminate

IDLE_S = 0.25
MAX_INPUTS_A_TURN = 500
SHUTDOWN_PATIENCE_S = 20.0
HOUSEKEEPING_MS = 1_000
CLEAN_MS = 30_000
SAY_AGAIN_MS = 10_000
log = structlog.get_logger(__name__)


class Agent:
    """One node's agent. `run` blocks until a shutdown is over."""

    def __init__(self, state: AgentState, parts: Parts, clock_ms: Callable[[], int]) -> None:
        self.state = state
        self._p = parts
        self._clock_ms = clock_ms
        self._watch = RankWatch()
        self._unsaved = UnsavedWatch(self._paths)
        self._shipped: set[AttemptKey] = set()
        self._sequence = 0
        self._home: Home | None = None
        self._moving_ms = 0
        self._beat_at = self._housekeep_at = self._clean_at = self._refresh_at = self._say_at = 0
        self._deadline_s: float | None = None
        self._more = False
        self._preparing: Future[None] | None = None
        self._desired = False
        self._refreshing: Future[int] | None = None
        self._acks: list[AttemptKey] = []
        self._thread: int | None = None

    def in_loop(self) -> bool:
        """Returns whether this is the thread that takes from the inbox."""
        return threading.get_ident() == self._thread

    def figures(self) -> Figures:
        """Returns the figures behind the node's metrics. From any thread; raises RuntimeError when the loop changes it meanwhile: retry."""
        phases = Counter(type(attempt.phase).__name__.lower() for attempt in self.state.attempts.values())
        ranks = sum(len(attempt.ranks_left) for attempt in self.state.attempts.values() if isinstance(attempt.phase, Running | Stopping))
        outbox = self._p.outbox
        return Figures(dict(phases), ranks, self._p.shipper.lag_bytes(), len(outbox), outbox.bytes, outbox.taken, self._sequence)

    def acked(self, key: AttemptKey) -> None:
        """The AttemptStopped of an attempt is with the brokers. Called within the loop's own poll."""
        self._acks.append(key)

    def waited(self, report: Report) -> None:
        """A report that waited is about to be sent: what its rank wrote goes first, as it would have."""
        event = report.event
        if isinstance(event, RankExited):
            self._p.shipper.rank_ended(AttemptKey(event.job_id, int(event.epoch)), event.rank, self._clock_ms())

    def run(self) -> None:
        """Adopts what runs, then serves until ShutdownAsked is done. Blocks."""
        self._thread = threading.get_ident()
        self._adopt()
        self._p.listener.start()
        self._p.notices.start()
        if self._p.holder is not None:
            self._p.holder.start()
        while not self._over():
            self._turn()
        self._end_operations()
        if not self._p.outbox.flush(5.0):
            log.warning("not everything is with the brokers; the next start sends the rest", records=len(self._p.outbox))
        self._p.shipper.save(self._clock_ms())
        self._p.state_file.save(self.state)
        self._p.notices.close()
        self._p.listener.close()
        self._p.prober.close()
        self._p.own_states.close()
        self._p.sealer.close()
        if self._p.holder is not None:
            self._p.holder.close()
        if self._p.starter.leases is not None:
            self._p.starter.leases.close()
        self._p.workers.shutdown(wait=False, cancel_futures=True)
        self._p.starter.launcher.close()

    def _end_operations(self) -> None:
        """Ends them while the ends of their answers still get to the brokers."""
        self._p.operations.close()
        for message in self._take(0.0):
            if isinstance(message, OperationReplied | NodeAccess):
                self._on_message(message)

    def _turn(self) -> None:
        for message in self._take(self._patience_s()):
            self._on_message(message)
        now_ms = self._clock_ms()
        self._watch_ranks(now_ms)
        self._more = self._p.shipper.pump(now_ms)
        self._p.outbox.poll()
        acks, self._acks = self._acks, []
        for key in acks:
            self._step(StopAcked(key))
        self._note_shipped(now_ms)
        self._p.own_states.look(now_ms)
        self._seal(now_ms)
        self._move(now_ms)
        self._pulse(now_ms)

    def _seal(self, now_ms: int) -> None:
        self._p.sealer.keep({key for key, attempt in self.state.attempts.items() if isinstance(attempt.phase, Sealing)})
        for sealed in self._p.sealer.look(now_ms):
            self._step(sealed)

    def _patience_s(self) -> float:
        """Returns the time that the loop may sleep."""
        if self._more and self._p.outbox.room():
            return 0.0
        busy = self.state.attempts or len(self._p.outbox) or self._p.shipper.following()
        return self._p.poll_interval_s if busy else IDLE_S

    def _take(self, timeout_s: float) -> list[Message]:
        found = []
        try:
            found.append(self._p.inbox.get(timeout=timeout_s) if timeout_s > 0 else self._p.inbox.get_nowait())
            while len(found) < MAX_INPUTS_A_TURN:
                found.append(self._p.inbox.get_nowait())
        except queue.Empty:
            pass
        return found

    def _on_message(self, message: Message) -> None:
        match message:
            case Located(partition=partition, cluster=cluster):
                # What was written to other brokers under the same address says nothing of these.
                saved = self.state.control if self.state.cluster == cluster else None
                self.state = replace(self.state, cluster=cluster, control=saved)
                home = homes.located(saved, partition, self._clock_ms())
                log.info("registering", node=self.state.identity.node_id, pool=self.state.identity.pool, partition=partition, by=home.at)
                self._moving_ms = self._clock_ms()
                self._keep(home)
                self._register()
            case Moved(partition=partition):
                if self._home is not None and self._home.to != partition:
                    log.info("the pool is on another partition now", pool=self.state.identity.pool, partition=partition, by=self._home.at)
                    self._home = homes.moved(self._home, partition)
                    self._moving_ms = self._clock_ms()
                    self._p.reports.hold()
            case Deaf(reason=reason):
                raise CommandsLostError(f"commands cannot be read any more: {reason}")
            case OperationAsked(request=request, refusal=refusal, asker=asker):
                self._p.operations.ask(request, self.state, self._clock_ms(), refusal, asker)
            case OperationReplied():
                self._p.reports.reply(message)
            case NodeAccess():
                self._p.reports.accessed(message)
            case NodeProbed():
                self._p.reports.report(Report(message, f"{message.node_id}:{message.boot_id}:probed:{message.probe}:{message.at_ms}"))
            case ShutdownAsked(grace_ms=grace_ms):
                ends_s = time.monotonic() + grace_ms / 1000 + SHUTDOWN_PATIENCE_S
                self._deadline_s = min(ends_s, self._deadline_s or ends_s)
                self._note_sessions()
                self._step(message)
            case Noticed(source=source, reason=reason, deadline_ms=deadline_ms):
                log.warning("this node goes away", source=source, reason=reason, in_s=(deadline_ms - self._clock_ms()) / 1000)
                self._note_sessions()
                self._step(message)
            case Command(event=NodeDesiredState() as event, order=order) if order is not None:
                self._step(message)
                if event.incarnation == self.state.identity.incarnation and event.node_id == self.state.identity.node_id:
                    self._desired = True
                    self._answered(order.partition)
            case _:
                self._step(message)

    def _keep(self, home: Home) -> None:
        """Saves the partition of control on disk before anything is written to it."""
        self._home = home
        if self.state.control != home.at:
            self.state = replace(self.state, control=home.at)
            self._p.state_file.save(self.state)

    def _answered(self, partition: int) -> None:
        """The scheduler of `partition` answered this incarnation: reports go there from now on, if that is where the pool is."""
        if self._home is None or self._home.open:
            return
        home = homes.answered(self._home, partition)
        if home.open:
            log.info("reports go to the pool's partition", pool=self.state.identity.pool, partition=home.at)
            self._say_at = 0
            self._keep(home)
            self._p.reports.open(home.at)

    def _move(self, now_ms: int) -> None:
        """Carries out the due steps of a change of the partition that control is written to."""
        home = self._home
        if home is None or home.open:
            return
        waited = homes.passed(home, now_ms)
        if home.stage is Stage.LEAVING and not self._p.outbox.holds(CONTROL):
            self._home = homes.quiet(home)
            self.state = replace(self.state, identity=again(self.state.identity))
            self._register(*notice_reports(self.state))
        elif waited.open:
            log.warning("no answer came by way of the partition that was written to before", partition=waited.at, before=home.at)
            self._keep(waited)
            self._register(*notice_reports(self.state))
        elif due(self._say_at, now_ms, SAY_AGAIN_MS):
            if self._say_at:
                text = homes.waiting_text(home, now_ms - self._moving_ms)
                log.warning(text, pool=self.state.identity.pool, partition=home.to, before=home.at)
            self._say_at = now_ms + SAY_AGAIN_MS

    def _step(self, happened: AgentInput) -> None:
        """One input through the machine; what it rests on is saved before its actions are carried out."""
        self.state, actions = step(self.state, self._clock_ms(), happened)
        if actions and isinstance(happened, Command | StopAcked):
            self._p.state_file.save(self.state)
        for action in actions:
            self._do(action)

    def _do(self, action: Action) -> None:
        match action:
            case Report():
                self._p.reports.report(action)
            case Launch():
                log.info("launching", attempt=str(action.key), ranks=list(action.placement.ranks))
                self._p.shipper.follow(action.allocation)
                self._p.workers.submit(self._launch, action)
            case Terminate(key=key):
                terminate(self._paths(key))
            case KillTree(key=key):
                kill_tree(self._paths(key))
            case TakeStacks():
                self._p.workers.submit(self._take_stacks, action)
            case AskCheckpoint(key=key, request=request):
                ask_session(self._paths(key), request, self._clock_ms())
            case UploadOwnStates(key=key):
                self._upload_own_states(key)
            case Sweep():
                pass  # `_watch_ranks` looks until nothing is left
            case Drain(key=key):
                self._p.starter.secrets.remove(key)
                self._p.shipper.writers_gone(key)
            case Seal(key=key):
                self._p.sealer.begin(self.state.attempts[key].allocation)
            case Finish(key=key):
                self._p.starter.secrets.remove(key)
                mark_finished(self._paths(key), shipped=key in self._shipped)
                self._shipped.discard(key)
                if self._p.starter.leases is not None:
                    self._p.starter.leases.end(key)
                log.info("finished", attempt=str(key))
            case Register(reason=reason):
                log.warning("registering again", reason=reason)
                self.state = replace(self.state, identity=again(self.state.identity))
                self._register(*notice_reports(self.state))
            case Probe(request=request):
                log.warning("testing this node", probe=request.probe)
                self._p.workers.submit(self._probe, request)

    def _probe(self, request: NodeProbeAsked) -> None:
        self._p.inbox.put(self._p.prober.run(request))

    def _take_stacks(self, action: TakeStacks) -> None:
        try:
            allocation = self.state.attempts[action.key].allocation
            known = lambda: self._p.starter.secrets.known(allocation)  # noqa: E731
            keep_stacks(self._paths(action.key), action.ranks, action.timeout_ms / 1000, known)
        except Exception as error:  # a rank that cannot be looked at ends all the same
            log.warning("stacks of a hung attempt are not kept", attempt=str(action.key), error=str(error))
        self._p.inbox.put(StacksTaken(action.key))

    def _upload_own_states(self, key: AttemptKey) -> None:
        attempt = self.state.attempts.get(key)
        if attempt is not None:
            paths = self._paths(key)
            self._p.own_states.begin(key, [(rank, paths.rank(rank).folder) for rank in attempt.placement.ranks], self._clock_ms())

    def _launch(self, action: Launch) -> None:
        self._p.inbox.put(self._p.starter.start(action))

    def _give_leave(self, found: FoundAttempt) -> None:
        """So that ranks which run on reach the store again."""
        try:
            if self._p.starter.leases is not None:
                self._p.starter.leases.begin(found.allocation, found.paths)
        except OSError as error:
            log.warning("an adopted attempt has no leave to the store", folder=str(found.paths.folder), error=str(error))

    def _paths(self, key: AttemptKey) -> AttemptPaths:
        return paths_of(self._p.starter.agent_dir, key)

    def _register(self, *more: Report) -> None:
        """Registers the node, as soon as its partition is known."""
        home = self._home
        if home is None or home.stage is Stage.LEAVING:
            return  # it does when that is known, or when all that was sent is with the brokers
        me = self.state.identity
        registration = Report(self._p.facts.registration(self.state), f"{me.node_id}:{me.incarnation}:registered")
        self._p.reports.register(home.at, self._beat(self._clock_ms()), registration, *more, opens=home.open)

    def _beat(self, now_ms: int) -> NodeHeartbeat:
        self._sequence += 1
        return self._p.pulse.beat(self.state, self._sequence, now_ms, self._p.shipper.lag_bytes())

    def _watch_ranks(self, now_ms: int) -> None:
        for key, attempt in list(self.state.attempts.items()):
            if isinstance(attempt.phase, Running | Stopping):
                for rank in sorted(attempt.ranks_left):
                    gone = self._watch.gone(key, self._paths(key), rank, now_ms, attempt.phase)
                    if gone is not None:
                        log.info("a rank is gone", attempt=str(key), rank=rank, exit_code=gone.exit_code, signal=gone.signal)
                        self._p.shipper.rank_ended(key, rank, now_ms)
                        self._step(gone)
            elif isinstance(attempt.phase, Sweeping) and self._watch.swept(key, self._paths(key), now_ms):
                self._step(Swept(key))
        going = self.state.notice is not None and bool(self.state.attempts)
        if going:
            self._note_sessions()
        if going or any(isinstance(a.phase, Stopping | Draining | Sealing) for a in self.state.attempts.values()):
            self._step(Tick())

    def _note_sessions(self) -> None:
        """Notes attempts with a session that can save: looked at only when the node goes away."""
        for key, attempt in list(self.state.attempts.items()):
            if isinstance(attempt.phase, Running) and not attempt.talks and has_session(self._paths(key), attempt.placement.ranks):
                self._step(SessionSeen(key))

    def _note_shipped(self, now_ms: int) -> None:
        for key in self._p.shipper.take_shipped(now_ms):
            attempt = self.state.attempts.get(key)
            if attempt is None:
                mark_finished(self._paths(key), shipped=True)
            else:
                self._shipped.add(key)
                self._step(Drained(key))

    def _pulse(self, now_ms: int) -> None:
        beat_ms = round(self._p.pulse.interval_s * 1000)
        if due(self._beat_at, now_ms, beat_ms):
            self._beat_at = now_ms + beat_ms
            self._p.reports.beat(self._beat(now_ms))
        if due(self._housekeep_at, now_ms, HOUSEKEEPING_MS):
            self._housekeep_at = now_ms + HOUSEKEEPING_MS
            self._p.state_file.save(self.state)
            self._p.audit.turn(now_ms)
            self._warn_of_unsaved(now_ms)
            # Not before its scheduler answered: torch takes seconds of CPU to import, which the control plane may need to start.
            if self._desired and (self._preparing is None or self._preparing.done()):
                self._preparing = self._p.workers.submit(self._p.starter.launcher.prepare)  # it waits while a launch holds it
        if due(self._clean_at, now_ms, CLEAN_MS):
            self._clean_at = now_ms + CLEAN_MS
            self._p.workers.submit(self._p.cleaner.clean)
            self._p.starter.secrets.sweep(self.state.attempts)
        refresh_ms = round(self._p.secrets_refresh_s * 1000)
        if due(self._refresh_at, now_ms, refresh_ms) and (self._refreshing is None or self._refreshing.done()):
            self._refresh_at = now_ms + refresh_ms
            self._refresh_secrets()

    def _warn_of_unsaved(self, now_ms: int) -> None:
        for event in self._unsaved.look(self.state.attempts.values(), now_ms):
            log.warning("a job asks for checkpoints and saves none", job=event.job_id, reason=event.reason)
            self._p.reports.skipped(event)

    def _refresh_secrets(self) -> None:
        running = [a.allocation for a in self.state.attempts.values() if isinstance(a.phase, Running) and a.allocation.spec.secrets]
        if running:
            self._refreshing = self._p.workers.submit(self._p.starter.secrets.refresh, running)

    def _over(self) -> bool:
        if self._deadline_s is None:
            return False
        return not self.state.attempts or time.monotonic() > self._deadline_s

    def _adopt(self) -> None:
        """Takes over what an earlier agent on this folder left: running ranks, unreported ends, unshipped files."""
        for found in found_attempts(self._p.starter.agent_dir):
            key = key_of(found.allocation)
            if found.shipped and found.finished:
                continue
            self._p.shipper.follow(found.allocation)
            if found.finished:
                self._p.shipper.writers_gone(key)
                continue
            launched = launch_was_whole(found, self.state.identity.node_id, self.state.identity.boot_id)
            log.info("adopting", attempt=str(key), launched=launched)
            self._give_leave(found)
            self._step(AttemptAdopted(found.allocation, launched))

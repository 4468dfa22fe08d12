"""Operations on running ranks for a person: their Python stacks now, a command beside one of them, or a profile of their steps.

Holds: every rank that was asked for gets an answer that ends, and the audit is told of what was asked and how it ended; secrets are
masked in output; a command and its children end with its timeout. The number at once, and the output of each, are bounded.
Never: touches a rank's own process beyond reading its stack, and asking its session.
"""

import codecs
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from trainhouse.events import DumpStacks, ExecuteCommand, OpenTunnel, OperationReplied, OperationRequest, ProfileRanks
from trainhouse.workers.agent.accesses import EXEC, UNKNOWN, Access, Asker, NodeAudit, about_operation, command_text
from trainhouse.workers.agent.core import AgentState, LocalAttempt
from trainhouse.workers.agent.debug.permission import tunnel_refusal
from trainhouse.workers.agent.debug.profiles import Profiles
from trainhouse.workers.agent.debug.stacks import shown_stack
from trainhouse.workers.agent.debug.tunnels import Tunnels
from trainhouse.workers.agent.errors import NotLaunchableError
from trainhouse.workers.agent.launch.attempt_dirs import key_of
from trainhouse.workers.agent.launch.launching import RankStarter, paths_of
from trainhouse.workers.launcher import AttemptPaths
from trainhouse.workers.launcher.interpreters import resolve
from trainhouse.workers.launcher.masker import Masker
from trainhouse.workers.launcher.processes import read_json, read_process
from trainhouse.workers.readable import readable

MAX_AT_ONCE = 4
MAX_WAITING = 32
MAX_OUTPUT_BYTES = 4 * 1024 * 1024
PART_BYTES = 64 * 1024
# As a shell says of what may not be run.
REFUSED = 126
FLUSH_S = 0.3
BUSY = "the node's agent is busy with other operations; ask again\n"
NO_PROCESS = "the rank has no process now\n"

Emit = Callable[[OperationReplied], None]


class Operations:
    """Runs operations in threads of its own; `emit` takes the answers."""

    def __init__(self, starter: RankStarter, emit: Emit, audit: NodeAudit, tunnels: Tunnels | None = None) -> None:
        self._audit = audit
        self._tunnels = tunnels or Tunnels()
        self._starter = starter
        self._emit = emit
        self._profiles = Profiles()
        self._workers = ThreadPoolExecutor(MAX_AT_ONCE, thread_name_prefix="operation")
        self._waiting = 0

    def ask(self, request: OperationRequest, state: AgentState, now_ms: int, refusal: str = "", asker: Asker = UNKNOWN) -> None:
        """Begins to answer, unless the request is void by now; says `refusal` where there is one. Returns at once."""
        attempts = [a for a in state.attempts.values() if a.key.job_id == request.job_id and a.has_processes]
        attempt = max(attempts, key=lambda a: a.key, default=None)
        here = tuple(attempt.placement.ranks) if attempt else ()
        asked = _ranks_of(request, here)
        if isinstance(request, OpenTunnel) and attempt is not None:
            refusal = refusal or tunnel_refusal(attempt.allocation.spec, request.requested_by)
        void = f"it came after its end, {request.expires_at_ms} ms since 1970" if request.expires_at_ms <= now_ms else ""
        acted_on = tuple(rank for rank in asked if rank in here)
        absent = "" if acted_on else "no such rank of the job runs on this node now"
        access = self._accessed(request, attempt, acted_on or asked, asker, refusal or void or absent, judged=bool(refusal))
        if void:
            return
        if refusal:
            for rank in asked:
                OperationReply(request, attempt, rank, self._emit).end(f"refused by node {request.node_id}: {refusal}\n", exit_code=REFUSED)
            return
        if isinstance(request, DumpStacks):
            for rank in here:
                answer = OperationReply(request, attempt, rank, self._emit, access)
                self._run(answer, lambda answer=answer: self._stack(answer))  # type: ignore[misc]
            return
        if isinstance(request, ProfileRanks):
            answers = {rank: OperationReply(request, attempt, rank, self._emit, access if rank in here else None) for rank in asked}
            self._profile(request, attempt, answers)
            return
        answer = OperationReply(request, attempt, asked[0], self._emit, access)
        if isinstance(request, OpenTunnel):
            self._tunnel(request, attempt, answer)
        elif attempt is None or absent:
            answer.end(_not_here(request, request.rank), exit_code=None)
        else:
            self._run(answer, lambda: self._execute(request, attempt, answer))

    def _tunnel(self, request: OpenTunnel, attempt: LocalAttempt | None, answer: "OperationReply") -> None:
        """Calls the gateway in any case: its user waits there for the reason, too."""
        paths = None if attempt is None else paths_of(self._starter.agent_dir, attempt.key)
        self._tunnels.open(request, paths, lambda size_bytes, why: answer.closed(size_bytes, why))

    def _accessed(
        self,
        request: OperationRequest,
        attempt: LocalAttempt | None,
        ranks: tuple[int, ...],
        asker: Asker,
        why_not: str,
        *,
        judged: bool,
    ) -> Access | None:
        """Audits a request; returns the access if it is granted. `judged`: the evidence for the asker's name includes the refusal."""
        allocation = attempt.allocation if attempt is not None else None
        known = self._starter.secrets.known(allocation) if allocation is not None and isinstance(request, ExecuteCommand) else ()
        about = about_operation(request, allocation, ranks, command_text(request, known))
        action = type(request).__name__
        if not why_not:
            return self._audit.granted(EXEC, action, asker, **about)
        self._audit.refused(EXEC, action, asker if judged and asker.why else replace(asker, why=why_not), **about)
        return None

    def close(self) -> None:
        self._profiles.close()
        self._tunnels.close()
        self._workers.shutdown(wait=False, cancel_futures=True)

    def _run(self, answer: "OperationReply", work: Callable[[], None]) -> None:
        if self._waiting >= MAX_WAITING:
            answer.end(BUSY, exit_code=None, why=BUSY.strip())
            return
        self._waiting += 1

        def guarded() -> None:
            try:
                work()
            except (OSError, NotLaunchableError, subprocess.SubprocessError) as error:
                answer.end(f"{error}\n", exit_code=None, why=f"not done: {type(error).__name__}")
            finally:
                self._waiting -= 1

        self._workers.submit(guarded)

    def _stack(self, answer: "OperationReply") -> None:
        assert answer.attempt is not None
        process = read_process(paths_of(self._starter.agent_dir, answer.attempt.key).rank(answer.rank).pid)
        if process is None:
            answer.end(NO_PROCESS, exit_code=None, why=NO_PROCESS.strip())
            return
        allocation = answer.attempt.allocation
        answer.end(shown_stack(process.pid, lambda: self._starter.secrets.known(allocation)), exit_code=None)

    def _profile(self, request: ProfileRanks, attempt: LocalAttempt | None, answers: "dict[int, OperationReply]") -> None:
        here = attempt.placement.ranks if attempt is not None else ()
        for rank in [rank for rank in answers if rank not in here]:
            text = _not_here(request, rank)
            answers.pop(rank).end(text, exit_code=None, why=text.strip())
        if attempt is None or not answers:
            return
        allocation = attempt.allocation
        known = lambda: self._starter.secrets.known(allocation)  # noqa: E731
        try:
            self._profiles.begin(request, paths_of(self._starter.agent_dir, attempt.key), answers, known)
        except OSError as error:
            for answer in answers.values():
                answer.end(f"{error}\n", exit_code=None, why=f"not done: {type(error).__name__}")

    def _execute(self, request: ExecuteCommand, attempt: LocalAttempt, answer: "OperationReply") -> None:
        allocation = attempt.allocation
        paths = paths_of(self._starter.agent_dir, key_of(allocation))
        secrets = self._starter.secrets.handed(allocation)
        env = {**self._starter.environment_of(allocation, attempt.placement, request.rank, secrets), **secrets.values}
        interpreter = allocation.spec.runtime.interpreter or self._starter.interpreter or sys.executable
        masker = Masker(secrets.values.values())
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        argv = resolve(request.command, interpreter, env)
        run = Command(argv, env, paths.code, request.timeout_s, self._confined(paths))
        for piece in run.output():
            text = decoder.decode(masker.feed(piece))
            if text:
                answer.part(text)
        last = decoder.decode(masker.flush(), final=True)
        answer.end(last + run.note, exit_code=run.exit_code, why=run.note.strip())

    def _confined(self, paths: AttemptPaths) -> Path | None:
        """The attempt's folder, whose record says what confines its ranks; None where nothing does. Raises NotLaunchableError."""
        if paths.confinement.exists():
            if read_json(paths.confinement)["pid"] is not None and read_process(paths.confinement) is None:
                raise NotLaunchableError("the attempt is just ending", retryable=False)
            return paths.folder
        if self._starter.confiner is not None and self._starter.confiner.layers() is not None:
            raise NotLaunchableError(
                "the attempt was started without isolation, which this node now asks for: no command runs there", retryable=False
            )
        return None


def _ranks_of(request: OperationRequest, here: tuple[int, ...]) -> tuple[int, ...]:
    match request:
        case DumpStacks():
            return here
        case ProfileRanks(ranks=ranks):
            return ranks
        case OpenTunnel():
            return (0,)
        case ExecuteCommand(rank=rank):
            return (rank,)


def _not_here(request: OperationRequest, rank: int) -> str:
    return f"rank {rank} of job {request.job_id} does not run on this node now\n"


@dataclass
class OperationReply:
    """The answer for one rank, part by part."""

    request: OperationRequest
    attempt: LocalAttempt | None
    rank: int
    emit: Emit
    access: Access | None = None
    parts: int = 0
    size_bytes: int = 0

    def part(self, text: str, exit_code: int | None = None, done: bool = False) -> None:
        self.emit(
            OperationReplied(
                request_id=self.request.request_id,
                node_id=self.request.node_id,
                job_id=self.request.job_id,
                attempt=self.attempt.allocation.attempt if self.attempt else None,
                rank=self.rank,
                part=self.parts,
                text=text,
                exit_code=exit_code,
                done=done,
            )
        )
        self.parts += 1
        self.size_bytes += len(text.encode("utf-8", "replace"))

    def closed(self, size_bytes: int, why: str) -> None:
        """The end of a tunnel: its reply is for the audit, since its user has heard by then."""
        self.size_bytes = size_bytes
        if self.access is not None:
            self.access.ended((self.rank,), None, size_bytes, why)

    def end(self, text: str, exit_code: int | None, why: str = "") -> None:
        """The last part; `why`: for the audit, where it did not go as asked."""
        self.part(text, exit_code, done=True)
        if self.access is not None:
            self.access.ended((self.rank,), exit_code, self.size_bytes, why)


class Command:
    """One command in a session of its own, so that it can be ended whole. `exit_code` and `note` are set when `output` is over.

    `confined`: the folder of the confined attempt that it joins.
    """

    def __init__(self, argv: tuple[str, ...], env: dict[str, str], cwd: Path, timeout_s: float, confined: Path | None = None) -> None:
        self.exit_code: int | None = None
        self.note = ""
        self._timeout_s = timeout_s
        order = b"" if confined is None else json.dumps({"argv": argv, "env": env, "cwd": str(cwd)}).encode()
        self._process = subprocess.Popen(
            argv if confined is None else [sys.executable, "-I", "-m", "trainhouse.workers.confinement.run", str(confined)],
            env=env if confined is None else {"PATH": os.defpath},
            cwd=cwd if confined is None else "/",
            stdin=subprocess.DEVNULL if confined is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError), self._process.stdin as to:
                to.write(order)

    def output(self) -> Iterator[bytes]:
        """Yields what it writes, gathered for FLUSH_S at most. Blocks until it has ended, one way or another."""
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        deadline, total = time.monotonic() + self._timeout_s, 0
        try:
            while total < MAX_OUTPUT_BYTES:
                piece = _gather(fd, deadline)
                if piece is None:
                    self.note = f"[trainhouse: ended after {self._timeout_s:g} s]\n"
                    break
                if not piece:
                    break
                total += len(piece)
                yield piece
            else:
                self.note = f"[trainhouse: ended after {MAX_OUTPUT_BYTES // 2**20} MiB of output]\n"
        finally:
            self._end(deadline)

    def _end(self, deadline: float) -> None:
        if not self.note:
            try:
                self._process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.note = f"[trainhouse: ended after {self._timeout_s:g} s]\n"
        if self.note or self._process.poll() is None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self.exit_code = self._process.returncode


def _gather(fd: int, deadline: float) -> bytes | None:
    """Output up to PART_BYTES; b"" at its end, None at the deadline."""
    if not readable(fd, deadline - time.monotonic()):
        return None
    gathered, until = b"", min(deadline, time.monotonic() + FLUSH_S)
    while len(gathered) < PART_BYTES and readable(fd, until - time.monotonic()):
        piece = os.read(fd, PART_BYTES - len(gathered))
        if not piece:
            break
        gathered += piece
    return gathered

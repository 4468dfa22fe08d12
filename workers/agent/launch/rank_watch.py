"""Watches the processes of attempts: which ranks are gone and how they ended, and whether anything of an attempt is left.

Holds: an end is told once its record is there, or once the process has been gone for UNRECORDED_MS without one.
"""

import signal
from pathlib import Path

from trainhouse.events.model.interactive_end import END_FILE, MAX_END_CHARS, SESSION_ENDED
from trainhouse.events.wire.rank_end import one_line, report_text
from trainhouse.workers.agent.core import AttemptKey, RankGone
from trainhouse.workers.agent.core.agent_state import Phase, Running, Stopping
from trainhouse.workers.agent.debug.recorder_dumps import words_of
from trainhouse.workers.agent.debug.stacks import top_of_stack
from trainhouse.workers.agent.periodic import due
from trainhouse.workers.launcher import AttemptPaths, ExitRecord, RankPaths, attempt_alive, kill_keeper, kill_tree, rank_alive, read_exit
from trainhouse.workers.untrusted import read_plain

UNRECORDED_MS = 1_500
LOOK_FOR_PROCESS_MS = 500
LOOK_FOR_LEFTOVERS_MS = 50  # it reads the table of all processes
SWEEP_KILL_MS = 1_500
SWEEP_KEEPER_MS = 4_000
LAST_WORDS_BYTES = 6_000


class RankWatch:
    """Watch of the ranks. Keeps only what is not on disk: since when a process has been missed, or a sweep has been going on."""

    def __init__(self) -> None:
        self._missed: dict[tuple[AttemptKey, int], int] = {}
        self._look_at_ms: dict[tuple[AttemptKey, int], int] = {}
        self._sweeping: dict[AttemptKey, tuple[int, int]] = {}

    def gone(self, key: AttemptKey, paths: AttemptPaths, rank: int, now_ms: int, phase: Phase = Running()) -> RankGone | None:
        """Returns the end of a rank, once it has ended. One `stat` while it runs."""
        of_rank = paths.rank(rank)
        if of_rank.exit.exists():
            found = read_exit(of_rank)
            if found is not None:
                ours = killed_by_agent(found, phase)
                why = reason(rank, found, of_rank, phase.reason if ours and isinstance(phase, Stopping) else "")
                return self._reported(key, rank, RankGone(key, rank, found.exit_code, found.signal, why, found.at_ms, ours))
        at = (key, rank)
        if not due(self._look_at_ms.get(at, now_ms), now_ms, LOOK_FOR_PROCESS_MS):
            return None
        self._look_at_ms[at] = now_ms + LOOK_FOR_PROCESS_MS
        if rank_alive(of_rank):
            self._missed.pop(at, None)
            return None
        since_ms = self._missed[at] = min(now_ms, self._missed.get(at, now_ms))  # a clock may be set back
        if now_ms - since_ms < UNRECORDED_MS or of_rank.exit.exists():
            return None
        text = f"rank {rank} is gone and how it ended was not recorded: its keeper was killed, or the machine went down"
        return self._reported(key, rank, RankGone(key, rank, None, None, text, now_ms))

    def swept(self, key: AttemptKey, paths: AttemptPaths, now_ms: int) -> bool:
        """Returns whether no process of the attempt is left; hastens it when that takes long."""
        began_ms, look_at_ms = self._sweeping.get(key, (now_ms, now_ms))
        if not due(look_at_ms, now_ms, LOOK_FOR_LEFTOVERS_MS):
            return False
        if not attempt_alive(paths):
            self._sweeping.pop(key, None)
            return True
        began_ms = min(began_ms, now_ms)
        self._sweeping[key] = (began_ms, now_ms + LOOK_FOR_LEFTOVERS_MS)
        waited_ms = now_ms - began_ms
        if waited_ms > SWEEP_KILL_MS:
            kill_tree(paths)
        if waited_ms > SWEEP_KEEPER_MS:
            kill_keeper(paths)
        return False

    def _reported(self, key: AttemptKey, rank: int, gone: RankGone) -> RankGone:
        self._missed.pop((key, rank), None)
        self._look_at_ms.pop((key, rank), None)
        return gone


def killed_by_agent(record: ExitRecord, phase: Phase) -> bool:
    """Returns whether the SIGKILL that ended a rank is the agent's own: memory that ran out is no guess then."""
    killed_at_ms = phase.killed_at_ms if isinstance(phase, Stopping) else None
    return record.signal == signal.SIGKILL and not record.note and killed_at_ms is not None and record.at_ms >= killed_at_ms


def reason(rank: int, record: ExitRecord, paths: RankPaths, stopped_for: str = "") -> str:
    """For a person; ends with the last lines of standard error, and what flight recorder and stack tell. Of a clean end: the reason of an
    interactive session, else empty.

    `stopped_for`: why the agent itself ended it.
    """
    if record.clean:
        return session_end(paths.own / END_FILE)
    explained = bool(record.note or stopped_for)
    how = f"exited with code {record.exit_code}" if record.signal is None else f"was ended by {_signal(record.signal, explained)}"
    note = "; ".join(filter(None, (record.note, f"Trainhouse sent it: {stopped_for}" if stopped_for else "")))
    recorded = "\n".join(filter(None, (words_of(paths.recorder(rank), rank), top_of_stack(paths.stacks, rank))))
    return report_text(rank, how, note, last_words(paths.stderr), recorded)


def session_end(path: Path) -> str:
    """The reason that the program of an interactive session left; empty for any other job. A job wrote it: it is a text, of one line."""
    try:
        left = read_plain(path, 4 * MAX_END_CHARS).decode("utf-8", "replace")
    except OSError:
        return ""
    return SESSION_ENDED + one_line(left, MAX_END_CHARS) if left.strip() else ""


def last_words(path: Path) -> str:
    """The last whole lines of a file, up to LAST_WORDS_BYTES."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - LAST_WORDS_BYTES))
            raw = file.read(LAST_WORDS_BYTES)
    except FileNotFoundError:
        return ""
    text = raw.decode("utf-8", "replace")
    return (text.partition("\n")[2] or text if size > LAST_WORDS_BYTES else text).strip()


def _signal(number: int, explained: bool) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
    hint = " (if nobody sent it, the kernel was out of memory)" if number == signal.SIGKILL and not explained else ""
    return name + hint

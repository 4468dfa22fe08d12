"""Profiles of running ranks: a request that their sessions see, and their answers.

Holds: one profile at a time of an attempt on this node; every rank that is asked has an answer that ends, also one that ends or never comes
to the end of a step. A rank's own state is not trusted: secrets are masked in it, and then it is cut.
Never: waits in the agent's own threads.
"""

import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import orjson
import structlog

from trainhouse.events import ProfileRanks
from trainhouse.events.runtime.clock import steady_s
from trainhouse.workers.agent.atomic_files import write_atomically
from trainhouse.workers.launcher import AttemptPaths, RankPaths
from trainhouse.workers.launcher.masker import Masker
from trainhouse.workers.launcher.processes import rank_alive
from trainhouse.workers.untrusted import read_plain

LOOK_EVERY_S = 0.2
STORE_S = 120.0
"""After the end of recording, for the trace to be stored."""
STEP_S = 10.0
"""After the end of recording, for the step under way."""
CLOSE_S = 2.0
MAX_STATUS_BYTES = 65_536
MAX_TEXT_CHARS = 1000
STORED, NOT_STORED = 0, 1
FINAL = {"done": STORED, "failed": NOT_STORED}
WITHHELD = "(not shown: the secrets of the job cannot be read on this node, so they could not be masked)"
log = structlog.get_logger(__name__)
Secrets = Callable[[], Iterable[str] | None]


class Reply(Protocol):
    """Answer for one rank, part by part."""

    def part(self, text: str) -> None: ...

    def end(self, text: str, exit_code: int | None, why: str = "") -> None: ...


@dataclass(frozen=True)
class TraceStatus:
    """State of a rank's profile, as its session reports it."""

    state: str = ""
    text: str = ""


class Profiles:
    """Profiles of one node's attempts, each followed in a thread of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: dict[AttemptPaths, float] = {}
        self._closed = threading.Event()
        self._threads: list[threading.Thread] = []

    def begin(self, request: ProfileRanks, paths: AttemptPaths, replies: Mapping[int, Reply], known: Secrets) -> None:
        """Asks the ranks' sessions. Returns at once. Raises OSError."""
        sessionless = [rank for rank in replies if not paths.rank(rank).spool.exists()]
        for rank in sessionless:
            _end(replies[rank], no_session(rank))
        asked = {rank: reply for rank, reply in replies.items() if rank not in sessionless}
        now_s = steady_s()
        with self._lock:
            until_s = self._under_way.get(paths)
            if until_s is None and asked:
                self._under_way[paths] = now_s + request.timeout_s + STORE_S
        if until_s is not None:
            for reply in asked.values():
                _end(reply, f"another profile of this attempt is under way, for {max(0.0, until_s - now_s):.0f} s at most: ask again then")
            return
        if not asked:
            return
        content = {"id": request.request_id, "ranks": list(asked), "steps": request.steps, "deadline_steady_s": now_s + request.timeout_s}
        try:
            write_atomically(paths.profile, orjson.dumps(content), durable=False)
        except OSError:
            self._done(paths)
            raise
        args = (request, paths, asked, known, now_s)
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        self._threads.append(threading.Thread(target=self._follow, args=args, name="profile", daemon=True))
        self._threads[-1].start()

    def close(self) -> None:
        """Ends the following of all, and waits a little for their answers' ends; ranks finish what they record."""
        self._closed.set()
        until_s = steady_s() + CLOSE_S
        for thread in self._threads:
            thread.join(max(0.0, until_s - steady_s()))

    def _done(self, paths: AttemptPaths) -> None:
        with contextlib.suppress(OSError):
            paths.profile.unlink(missing_ok=True)
        with self._lock:
            self._under_way.pop(paths, None)

    def _follow(self, request: ProfileRanks, paths: AttemptPaths, asked: dict[int, Reply], known: Secrets, began_s: float) -> None:
        ranks = {rank: FollowedRank(request, rank, paths.rank(rank), began_s) for rank in asked}
        why = "this node's agent stops"
        try:
            while ranks and not self._closed.wait(LOOK_EVERY_S):
                for rank, followed in list(ranks.items()):
                    for text, code in followed.look(steady_s()):
                        shown = _shown(text, known())
                        if code is None:
                            asked[rank].part(f"{shown}\n")
                        else:
                            del ranks[rank]
                            _end(asked[rank], shown, code)
        except Exception as error:
            log.exception("profiles are not followed any more", job=request.job_id)
            why = f"its profile is not followed any more ({type(error).__name__}: {error})"
        finally:
            self._done(paths)
            for rank in ranks:
                with contextlib.suppress(Exception):  # of one rank's answer: the others have theirs
                    _end(asked[rank], f"rank {rank}: {why}; a trace that it records is stored all the same: see the job's page")


class FollowedRank:
    """Progress of one rank's profile."""

    def __init__(self, request: ProfileRanks, rank: int, paths: RankPaths, began_s: float) -> None:
        self._request = request
        self._rank = rank
        self._paths = paths
        self._recorded_s = began_s + request.timeout_s
        self._shown = ""

    def look(self, now_s: float) -> list[tuple[str, int | None]]:
        """Returns news of the rank as text, with a code where it is the end."""
        alive = rank_alive(self._paths)  # before the state, so that the last one of a rank that ends is read
        status = read_status(self._paths, self._request.request_id)
        if status.state in FINAL:
            return [(f"rank {self._rank}: {status.text}", FINAL[status.state])]
        if not alive:
            return [(f"rank {self._rank} ended before its trace was stored; see `trainhouse logs {self._request.job_id}`", NOT_STORED)]
        if not status.state and now_s > self._recorded_s + STEP_S:
            return [(no_step(self._rank, self._request.timeout_s), NOT_STORED)]
        if now_s > self._recorded_s + STORE_S:
            return [(f"rank {self._rank}: its trace was not stored in time; it was {status.state}", NOT_STORED)]
        if status.state == self._shown:
            return []
        self._shown = status.state
        return [(f"rank {self._rank} {status.text}", None)]


def no_session(rank: int) -> str:
    """Refusal for a rank whose program has no session."""
    return (
        f"rank {rank}: its program has no session of Trainhouse (yet), so where its steps begin is not known: run its loop over "
        "`Session.start().steps(total)`, or use TrainhouseCallback or TrainhousePlugin"
    )


def no_step(rank: int, timeout_s: float) -> str:
    """Answer for a rank that came to no step boundary."""
    return (
        f"rank {rank} came to the end of no step within {timeout_s:g} s: does its loop run over `session.steps(total)`? "
        "`trainhouse stack` shows where it is; ask again with a longer --timeout where steps are long"
    )


def read_status(paths: RankPaths, request_id: str) -> TraceStatus:
    """Reads a rank's state of this request; empty where there is none."""
    try:
        raw: Any = orjson.loads(read_plain(paths.trace_status, MAX_STATUS_BYTES))
    except (OSError, orjson.JSONDecodeError):
        return TraceStatus()
    if not isinstance(raw, dict) or raw.get("id") != request_id:
        return TraceStatus()
    state, text = raw.get("state"), raw.get("text")
    if not isinstance(state, str) or not isinstance(text, str):
        return TraceStatus()
    return TraceStatus(state[:32], text)


def _shown(text: str, secrets: Iterable[str] | None) -> str:
    """The text as an asker gets it; masked before it is cut, as a part of a secret is not recognized."""
    if secrets is None:
        return WITHHELD
    masked = Masker(secrets).whole(text.encode("utf-8", "replace")).decode("utf-8", "replace")
    return "".join(c if c.isprintable() else " " for c in masked[:MAX_TEXT_CHARS])


def _end(reply: Reply, text: str, code: int = NOT_STORED) -> None:
    reply.end(f"{text}\n", code, "" if code == STORED else text[:200])

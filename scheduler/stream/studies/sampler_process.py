"""The other end of the process that computes suggestions: starts it, asks it, and ends it where a suggestion goes beyond its bounds.

Holds: at most one process, started with the first question after it ended; memory and time of one suggestion are bounded. A suggestion that
was given up leaves no process behind.
"""

import asyncio
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from resource import getpagesize
from typing import Final

from trainhouse.scheduler.stream.studies.suggestion_frames import LENGTH_BYTES, Answer, Question, question_frame, read_answer

MOST_MEMORY_BYTES: Final = min(4 * 1024**3, os.sysconf("SC_PHYS_PAGES") * getpagesize() // 3)
WALL_FACTOR: Final = 4
"""A process that waits for something else than the processor is given up after so many times the seconds of a question."""
START_S: Final = 120.0
LOOK_S: Final = 0.5
# Matrices of samplers are small: threads of linear algebra wait for each other longer than they work.
_ONE_THREAD: Final = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_CHILD: Final = "trainhouse.scheduler.stream.studies.sampler_child"


class Ended(Enum):
    """Cause of the end of a process of samplers."""

    TIME = "time"
    MEMORY = "memory"
    DIED = "died"


class SamplerEndedError(Exception):
    """There is no answer. `was_new`: whether the process had answered nothing before, so that it is this question's doing."""

    def __init__(self, cause: Ended, was_new: bool, text: str) -> None:
        super().__init__(text)
        self.cause, self.was_new = cause, was_new


@dataclass(slots=True)
class SamplerProcess:
    """One process of samplers, for one question at a time."""

    most_memory_bytes: int = MOST_MEMORY_BYTES
    _process: Process | None = None
    _answered: int = 0

    async def suggest(self, question: Question) -> Answer:
        """Asks. Raises SamplerEndedError."""
        frame = await asyncio.to_thread(question_frame, question)
        if self._process is None:
            command = (sys.executable, "-m", _CHILD)
            self._process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, env=os.environ | _ONE_THREAD)
            self._answered = 0
        process, was_new = self._process, self._answered == 0
        asked = asyncio.ensure_future(_exchange(process, frame))
        try:
            await self._watched(process, asked, question.cpu_s * WALL_FACTOR + START_S, was_new)
            answer = await asyncio.to_thread(read_answer, asked.result())
        except (OSError, EOFError):
            ended = await process.wait()
            self._process = None
            cause = Ended.TIME if ended == -signal.SIGPROF else Ended.DIED
            raise SamplerEndedError(cause, was_new, f"the process of samplers ended with {ended}") from None
        except BaseException:
            await self.end()
            raise
        finally:
            asked.cancel()
        self._answered += 1
        return answer

    async def end(self) -> None:
        """Ends the process, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _watched(self, process: Process, asked: "asyncio.Future[bytes]", most_s: float, was_new: bool) -> None:
        """Returns once there is an answer. Raises SamplerEndedError for one that goes beyond its bounds."""
        deadline = time.monotonic() + most_s
        while not (await asyncio.wait({asked}, timeout=LOOK_S))[0]:
            has_bytes = _memory_bytes(process.pid)
            if has_bytes > self.most_memory_bytes:
                raise SamplerEndedError(Ended.MEMORY, was_new, f"it had {has_bytes >> 20} MiB of memory")
            if time.monotonic() > deadline:
                raise SamplerEndedError(Ended.TIME, was_new, f"it had no answer after {most_s:.0f} s")


async def _exchange(process: Process, frame: bytes) -> bytes:
    assert process.stdin is not None and process.stdout is not None  # nosec B101  # both are pipes
    process.stdin.write(frame)
    await process.stdin.drain()
    length = int.from_bytes(await process.stdout.readexactly(LENGTH_BYTES), "big")
    return await process.stdout.readexactly(length)


def _memory_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * getpagesize()
    except (OSError, IndexError):
        return 0  # it has ended

"""The way of all clients to the brokers: a proxy that can stop a client's process right before one of its requests gets there.

Holds: a hold strikes once, at the first request of its process that is of its moment: the process stands still, the request waits, and both
go on together after its time. What is not held passes as it came, whole request by whole request.
Never: changes a byte; knows anything of the product but names of topics.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil

from tests.chaos.proxy import Proxy
from trainhouse.events.wire import topics

PRODUCE, END_TRANSACTION = 0, 26
LENGTH_BYTES = 4
LOOK_EVERY_S = 0.002
# States of a thread that is stopped, or has ended: a killed process may be left as a zombie.
STILL = frozenset("TtZX")
# Of these a request is of a moment if it names one: topics for what is produced, the beginning of an id for the end of a transaction.
NAMED: Final[dict[str, tuple[int, tuple[str, ...]]]] = {
    "append": (PRODUCE, (topics.DECISIONS, topics.DIRECTORY)),
    "publish": (PRODUCE, (topics.ALLOCATIONS, topics.STATUS, topics.POLICIES, topics.CONTROL)),
    "commit": (END_TRANSACTION, (f"{topics.DECISIONS}-",)),
    "pointer": (PRODUCE, (topics.SNAPSHOTS,)),
}


def is_of(frame: bytes, moment: str) -> bool:
    """Whether a request (with its length before it) is one that this moment waits for."""
    kind, names = NAMED[moment]
    if int.from_bytes(frame[LENGTH_BYTES : LENGTH_BYTES + 2], "big", signed=True) != kind:
        return False
    if kind == END_TRANSACTION:
        return any(name.encode() in frame for name in names)
    return any(_string(name) in frame or _compact(name) in frame for name in names)


def _string(name: str) -> bytes:
    return len(name).to_bytes(2, "big") + name.encode()


def _compact(name: str) -> bytes:
    return (len(name) + 1).to_bytes(1, "big") + name.encode()


@dataclass(eq=False)
class Hold:
    """One fault to come, to the first of its processes at the moment: `struck` once that stands still, `over` once it goes on."""

    pids: tuple[int, ...]
    moment: str
    lasts_s: float
    struck: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class Passage(Proxy):
    """See above. `hold` and `release` are for other threads."""

    _holds: list[Hold]

    def __init__(self, to_port: int) -> None:
        self._holds = []
        super().__init__(to_port)

    def hold(self, pids: Iterable[int], moment: str, lasts_s: float) -> Hold:
        """From now on the moment of one of them is waited for."""
        hold = Hold(tuple(pids), moment, lasts_s)
        self._loop.call_soon_threadsafe(self._holds.append, hold)
        return hold

    def release(self, hold: Hold) -> None:
        """It goes on at once, or is not stopped any more. Returns when that is so."""
        self._loop.call_soon_threadsafe(self._release, hold)
        hold.over.wait(30)

    def _release(self, hold: Hold) -> None:
        hold.ended.set()
        if hold in self._holds:
            self._holds.remove(hold)
            hold.over.set()

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
        while frame := await _request(reader):
            await self._open.wait()
            for hold in [h for h in self._holds if is_of(frame, h.moment)]:
                pid = next((pid for pid in hold.pids if port in _ports(pid)), None)
                if pid is not None:
                    self._holds.remove(hold)
                    await _stopped(hold, pid)
            writer.write(frame)
            await writer.drain()
        await self._open.wait()
        writer.write_eof()


async def _request(reader: asyncio.StreamReader) -> bytes:
    """The next request with its length; less where the connection ends."""
    try:
        head = await reader.readexactly(LENGTH_BYTES)
        return head + await reader.readexactly(int.from_bytes(head, "big"))
    except asyncio.IncompleteReadError as cut:
        return cut.partial


def _ports(pid: int) -> set[int]:
    """From where a process has its connections."""
    try:
        return {c.laddr.port for c in psutil.Process(pid).net_connections("tcp") if c.laddr}
    except psutil.Error:
        return set()


def _still(pid: int) -> bool:
    """Whether none of its threads runs any more."""
    return all(_state(task) in STILL for task in Path(f"/proc/{pid}/task").glob("*"))


def _state(task: Path) -> str:
    try:
        return (task / "stat").read_text().rpartition(") ")[2][0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"  # it has ended


async def _stopped(hold: Hold, pid: int) -> None:
    """The process is stopped for its time, or until it is released."""
    try:
        process = psutil.Process(pid)
        process.suspend()
        while not (_still(pid) or hold.ended.is_set()):  # its threads may still run when the signal was sent
            await asyncio.sleep(LOOK_EVERY_S)
            process.suspend()  # another fault may have let it go on meanwhile
        hold.struck.set()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(hold.ended.wait(), hold.lasts_s)
        process.resume()
    except psutil.Error:
        pass  # it was killed meanwhile
    finally:
        hold.over.set()

"""Terminals of a session's host, over its socket: what is typed, all of it, however slowly the program reads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from pathlib import Path
from typing import Any

import psutil
import pytest

from trainhouse.events.tunnel import tunnel_frames as frames
from trainhouse.workers.interactive import session_host
from trainhouse.workers.interactive.session_host import SHELL, SessionHost
from trainhouse.workers.interactive.terminal import MAX_UNTYPED_BYTES
from trainhouse.workers.interactive.work_meter import WorkMeter

LINE = b"x" * 63 + b"\n"
LINES = 16 * 1024
SLOW = "until [ -e {go} ]; do sleep 0.05; done; wc -c"


def in_a_loop(test: Callable[[Path], Awaitable[None]]) -> Callable[[Path], None]:
    async def whole(tmp_path: Path) -> None:
        await test(tmp_path)

    @wraps(test)
    def run(tmp_path: Path) -> None:
        asyncio.run(whole(tmp_path))

    vars(run).pop("__wrapped__")  # pytest would see a coroutine
    return run


async def joined(host: SessionHost, folder: Path, command: list[str]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection that has a command of the session's own terminal."""
    host._over, host._starting = asyncio.get_running_loop().create_future(), asyncio.Lock()
    await asyncio.start_unix_server(host._connected, folder / "s")
    reader, writer = await asyncio.open_unix_connection(folder / "s")
    writer.write(frames.line({"kind": frames.TERMINAL, "command": command}))
    assert frames.parsed_line(await reader.readline()) == {"ok": True}
    return reader, writer


async def shown(reader: asyncio.StreamReader) -> tuple[bytes, int]:
    """All that is shown until the program's end, and its code."""
    split, found = frames.Frames(), b""
    while data := await reader.read(1 << 16):
        for kind, payload in split.feed(data):
            if kind == frames.EXIT:
                return found, frames.code_of(payload)
            found += payload
    raise EOFError


@in_a_loop
async def test_what_a_program_does_not_read_yet_waits_and_none_of_it_is_lost_the_end_of_input_included(tmp_path: Path) -> None:
    host, go = SessionHost(tmp_path, SHELL, 3600), tmp_path / "go"
    reader, writer = await joined(host, tmp_path, ["/bin/sh", "-c", SLOW.format(go=go)])
    output = asyncio.create_task(shown(reader))
    for _ in range(LINES // 128):
        writer.write(frames.frame(frames.DATA, LINE * 128))
    writer.write(frames.frame(frames.DATA, b"\x04"))
    assert host._main is not None
    while len(host._main._untyped) < MAX_UNTYPED_BYTES:
        await asyncio.sleep(0.01)
    go.touch()
    most = 0
    while not output.done():
        most = max(most, len(host._main._untyped))
        await asyncio.sleep(0.001)
    text, code = await output
    assert text.rstrip().endswith(str(len(LINE) * LINES).encode()) and code == 0
    assert most <= 2 * MAX_UNTYPED_BYTES


@in_a_loop
async def test_a_user_that_goes_while_its_input_waits_is_detached(tmp_path: Path) -> None:
    host = SessionHost(tmp_path, SHELL, 3600)
    _, writer = await joined(host, tmp_path, ["/bin/sleep", "600"])
    for _ in range(LINES // 128):
        writer.write(frames.frame(frames.DATA, LINE * 128))
    assert host._main is not None
    while len(host._main._untyped) < MAX_UNTYPED_BYTES:
        await asyncio.sleep(0.01)
    writer.transport.abort()
    while host._connections:
        await asyncio.sleep(0.01)
    await host._main.close()


@in_a_loop
async def test_a_program_that_ends_without_reading_what_was_typed_still_gives_its_code(tmp_path: Path) -> None:
    host, go = SessionHost(tmp_path, SHELL, 3600), tmp_path / "go"
    reader, writer = await joined(host, tmp_path, ["/bin/sh", "-c", f"until [ -e {go} ]; do sleep 0.05; done; exit 7"])
    for _ in range(LINES // 128):
        writer.write(frames.frame(frames.DATA, LINE * 128))
    assert host._main is not None
    while len(host._main._untyped) < MAX_UNTYPED_BYTES:
        await asyncio.sleep(0.01)
    go.touch()
    assert (await shown(reader))[1] == 7
    host._main.resize(24, 80)


@in_a_loop
async def test_one_observation_of_use_that_fails_is_passed_over_and_the_next_ends_the_session(tmp_path: Path) -> None:
    class Meter(WorkMeter):
        failed = 0

        def cpu_s(self) -> float:
            if self.failed < 2:
                self.failed += 1
                raise OSError("the table of processes cannot be read") if self.failed == 1 else psutil.AccessDenied(1)
            return 0.0

    host = SessionHost(tmp_path, SHELL, 0.2)
    host._over, meter = asyncio.get_running_loop().create_future(), Meter()
    watch = asyncio.create_task(host._watch(meter))
    either: set[asyncio.Future[Any]] = {host._over, watch}
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    assert "no use and no work" in host._over.result() and meter.failed == 2
    await watch


@in_a_loop
async def test_a_session_that_began_again_ends_soon_where_its_user_does_not_come(tmp_path: Path) -> None:
    host = SessionHost(tmp_path, SHELL, 3600, attempt=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session_host, "UNUSED_AGAIN_S", 0.2)
        host._over = asyncio.get_running_loop().create_future()
        await host._watch(WorkMeter())
    assert host._over.result() == "it began again (attempt 2), and nobody came for 0.2 s"


@in_a_loop
async def test_a_session_that_began_again_says_so_once_and_goes_on_for_its_user(tmp_path: Path) -> None:
    host = SessionHost(tmp_path, SHELL, 3600, attempt=1)
    reader, _ = await joined(host, tmp_path, ["/bin/cat"])
    split, notices = frames.Frames(), []
    while not notices:
        notices += [payload for kind, payload in split.feed(await reader.read(1 << 16)) if kind == frames.NOTICE]
    assert notices == [b"this session began again (attempt 1): its node was lost, or it made way; what ran in it before is gone"]
    assert host._is_used and host._main is not None
    await host._main.close()

"""Host of one interactive session: a socket in the rank's folder, at which each connection asks for a terminal, ssh or the notebook.

Holds: connections, and bytes that wait for each, have a bound. The session ends when its shell or its Jupyter does, or when it was idle for
its limit; then nothing that it started is left. Its reason goes to a file that the node's agent reports. A session that began again, since
its node was lost or it made way, says so to the first user of it, and ends soon where none comes: what was in it is gone.
"""

import asyncio
import contextlib
import os
import re
import select
import shutil
import signal
import socket
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil

from trainhouse.events.model.interactive_end import END_FILE
from trainhouse.events.tunnel import tunnel_frames as frames
from trainhouse.workers.interactive.idle_rule import Activity, IdleRule
from trainhouse.workers.interactive.notebook_server import NotebookServer
from trainhouse.workers.interactive.ssh_endpoint import NoSshError, SshEndpoint, end
from trainhouse.workers.interactive.terminal import Terminal
from trainhouse.workers.interactive.work_meter import WorkMeter
from trainhouse.workers.launcher.ports import RankPaths

MAX_CONNECTIONS: Final = 64
FIRST_LINE_S: Final = 15.0
PIECE_BYTES: Final = 64 * 1024
LOOK_S: Final = 10.0
LAST_BYTES_S: Final = 3.0
GONE_LOOK_S: Final = 1.0
UNUSED_AGAIN_S: Final = 600.0
BEGAN_AGAIN: Final = "this session began again (attempt {attempt}): its node was lost, or it made way; what ran in it before is gone"
NOTEBOOK, SHELL = "notebook", "shell"
_TERM: Final = re.compile(r"^[A-Za-z0-9._+-]{1,64}$")
_SHELLS: Final = ("/bin/bash", "/bin/sh")
_DEFAULT_SIZE: Final = (24, 80)


class RefusedError(Exception):
    """Refusal of a connection's request; the reason is for a person."""


@dataclass
class SessionHost:
    """Host of one session. `folder`: the rank's own; `attempt`: of the job, from 0."""

    folder: Path
    kind: str
    idle_limit_s: float
    attempt: int = 0
    _is_used: bool = False
    _is_announced: bool = False
    _traffic_bytes: int = 0
    _main: Terminal | None = None
    _others: set[Terminal] = field(default_factory=set)
    _notebook: NotebookServer | None = None
    _ssh: SshEndpoint | None = None
    _connections: int = 0

    async def run(self) -> str:
        """Serves until the session ends; returns the reason. Raises NoJupyterError, OSError."""
        self._over: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._starting = asyncio.Lock()
        jupyter = None
        if self.kind == NOTEBOOK:
            self._notebook = NotebookServer()
            jupyter = await self._notebook.start()
        server = await asyncio.start_unix_server(self._connected, sock=_listening(self.folder), limit=frames.MAX_LINE_BYTES)
        print(f"interactive session ({self.kind}); it ends after {self.idle_limit_s:g} s without use", flush=True)
        tasks = [asyncio.create_task(self._watch(WorkMeter()))]
        if jupyter is not None:
            tasks.append(asyncio.create_task(self._ends_with(jupyter)))
        reason = "its job is stopped"
        try:
            reason = await self._over
            return reason
        finally:
            server.close()
            for task in tasks:
                task.cancel()
            await self._close(reason)

    async def _close(self, reason: str) -> None:
        for terminal in self._terminals():
            if not terminal.ended.done():
                terminal.notify(f"the session ends: {reason}")
            await terminal.close()
        # The frames of its end are on their way to those who are attached.
        deadline_s = asyncio.get_running_loop().time() + LAST_BYTES_S
        while self._connections and asyncio.get_running_loop().time() < deadline_s:
            await asyncio.sleep(0.02)
        for process in WorkMeter().below():
            with contextlib.suppress(psutil.Error):
                process.kill()
        if self._ssh is not None:
            self._ssh.close()
        if self._notebook is not None:
            shutil.rmtree(self._notebook.socket.parent, ignore_errors=True)

    def _end(self, reason: str) -> None:
        if not self._over.done():
            self._over.set_result(reason)

    async def _ends_with(self, jupyter: asyncio.subprocess.Process) -> None:
        self._end(f"Jupyter exited with code {await jupyter.wait()}")

    async def _watch(self, meter: WorkMeter) -> None:
        loop = asyncio.get_running_loop()
        unused_s = min(UNUSED_AGAIN_S, self.idle_limit_s) if self.attempt else self.idle_limit_s
        rule, began_s, pause_s = IdleRule(self.idle_limit_s, loop.time()), loop.time(), min(LOOK_S, unused_s / 20)
        while True:
            await asyncio.sleep(pause_s)
            try:
                meter.reap()
                activity = Activity(loop.time(), self._traffic_bytes, meter.cpu_s(), meter.is_device_busy())
            except (OSError, psutil.Error) as error:
                print(f"use and work could not be looked at, the next look is in {pause_s:g} s: {error}", file=sys.stderr, flush=True)
                continue
            if self.attempt and not self._is_used and loop.time() - began_s >= unused_s:
                self._end(f"it began again (attempt {self.attempt}), and nobody came for {unused_s:g} s")
                return
            found = rule.observe(activity)
            if found.is_over:
                self._end(f"no use and no work for its idle limit of {self.idle_limit_s:g} s (spec: interactive.idle_limit_s)")
                return
            if found.warned_left_s is not None:
                for terminal in self._terminals():
                    terminal.notify(f"idle: this job ends in {found.warned_left_s:.0f} s unless you type or it works")

    def _terminals(self) -> list[Terminal]:
        return [*([self._main] if self._main is not None else []), *self._others]

    def _count(self, size_bytes: int) -> None:
        self._traffic_bytes += size_bytes

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            if self._connections > MAX_CONNECTIONS:
                raise RefusedError(f"{MAX_CONNECTIONS} connections to this job are open, and that is the most: close one")
            asked = frames.parsed_line(await asyncio.wait_for(reader.readline(), FIRST_LINE_S))
            self._is_used = True
            match asked.get("kind"):
                case frames.TERMINAL:
                    await self._terminal(asked, reader, writer)
                case frames.SSH:
                    await self._login(asked, reader, writer)
                case frames.HTTP:
                    await self._web(reader, writer)
                case other:
                    raise RefusedError(f"this job's version of Trainhouse has no {other!r}: update the client or the job")
        except (RefusedError, NoSshError) as error:
            writer.write(frames.line({"error": str(error)}))
        except OSError as error:
            writer.write(frames.line({"error": f"the job could not do it: {error}"}))
        except (TimeoutError, ValueError, EOFError):
            pass  # who speaks another language, or not at all
        finally:
            with contextlib.suppress(OSError, TimeoutError):
                await asyncio.wait_for(writer.drain(), LAST_BYTES_S)
            writer.close()
            self._connections -= 1

    async def _terminal(self, asked: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size, terminal = _size(asked), await self._of(asked)
        writer.write(frames.line({"ok": True}))
        terminal.resize(*size)
        terminal.attach(writer)
        if self.attempt and not self._is_announced:
            self._is_announced = True
            terminal.notify(BEGAN_AGAIN.format(attempt=self.attempt))
        if terminal.ended.done():
            writer.write(frames.exited(terminal.ended.result()))
            await _closed_by_other(reader)
            return
        split = frames.Frames()
        ended = asyncio.ensure_future(asyncio.shield(terminal.ended))
        try:
            while not ended.done():
                reads = asyncio.ensure_future(reader.read(PIECE_BYTES))
                either: set[asyncio.Future[Any]] = {reads, ended}
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if not reads.done():
                    reads.cancel()
                    await asyncio.wait({reads})
                    await _closed_by_other(reader)
                    break
                if not (data := reads.result()):
                    break
                for kind, payload in split.feed(data):
                    if kind == frames.DATA:
                        terminal.type(payload)
                    elif kind == frames.RESIZE:
                        terminal.resize(*frames.size_of(payload))
                if not await _has_room(terminal, writer):
                    break
            else:
                await _closed_by_other(reader)
        finally:
            ended.cancel()
            terminal.detach(writer)
            if terminal in self._others:
                self._others.discard(terminal)
                await terminal.close()

    async def _of(self, asked: dict[str, Any]) -> Terminal:
        """The session's own terminal, made by who asks first; or one of a command beside it. Raises RefusedError, OSError."""
        command, size = asked.get("command") or [], _size(asked)
        if not isinstance(command, list) or not all(isinstance(word, str) and "\0" not in word for word in command):
            raise RefusedError("a command is a list of words")
        term = asked.get("term")
        environment = {**os.environ, "TERM": term if isinstance(term, str) and _TERM.match(term) else "xterm-256color"}
        if asked.get("beside"):
            other = Terminal(self._count)
            await other.start(_argv(command), environment, size)
            self._others.add(other)
            return other
        async with self._starting:
            if self._main is None or (self._main.ended.done() and self.kind != SHELL):
                terminal = Terminal(self._count)
                await terminal.start(_argv(command), environment, size)
                self._main = terminal
                if self.kind == SHELL:
                    terminal.ended.add_done_callback(lambda ended: self._end(f"its shell exited with code {ended.result()}"))
            return self._main

    async def _login(self, asked: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._ssh = self._ssh or SshEndpoint()
        process, stream, about = await self._ssh.open(asked.get("key"))
        try:
            writer.write(frames.line({"ok": True, **about}))
            await self._joined(reader, writer, *await asyncio.open_connection(sock=stream))
        finally:
            end(process)

    async def _web(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._notebook is None:
            raise RefusedError("this job is a shell and has no notebook: start one by `trainhouse notebook`")
        if not self._notebook.is_up():
            writer.write(frames.line({"starting": True}))
            return
        stream = await asyncio.open_unix_connection(self._notebook.socket)
        writer.write(frames.line({"ok": True, "token": self._notebook.token, "page": self._notebook.page}))
        await self._joined(reader, writer, *stream)

    async def _joined(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        inner_reader: asyncio.StreamReader,
        inner_writer: asyncio.StreamWriter,
    ) -> None:
        """Passes bytes on until either side ends."""
        ways = [asyncio.create_task(self._pass(reader, inner_writer)), asyncio.create_task(self._pass(inner_reader, writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            inner_writer.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(PIECE_BYTES):
                self._count(len(data))
                writer.write(data)
                await writer.drain()


async def _has_room(terminal: Terminal, writer: asyncio.StreamWriter) -> bool:
    """Waits until the program has read of what was typed, or ended. False where the user has gone meanwhile: nothing is read of its
    connection, so only its end shows that."""
    while not terminal.room.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(terminal.room.wait(), GONE_LOOK_S)
        if not terminal.room.is_set() and _is_gone(writer):
            return False
    return True


def _is_gone(writer: asyncio.StreamWriter) -> bool:
    if writer.is_closing():
        return True
    look = select.poll()
    look.register(writer.get_extra_info("socket").fileno(), select.POLLRDHUP)
    return bool(look.poll(0))


async def _closed_by_other(reader: asyncio.StreamReader) -> None:
    """Waits for a moment until the user has closed the connection: whoever still typed into a closed one would not get the exit code."""
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(LAST_BYTES_S):
            while await reader.read(PIECE_BYTES):
                continue


def _size(asked: dict[str, Any]) -> tuple[int, int]:
    rows, columns = asked.get("rows"), asked.get("columns")
    if not (isinstance(rows, int) and isinstance(columns, int) and 0 < rows < 1 << 16 and 0 < columns < 1 << 16):
        return _DEFAULT_SIZE
    return rows, columns


def _argv(command: list[str]) -> list[str]:
    if command:
        return command
    named = os.environ.get("SHELL", "")
    return [next(path for path in (named, *_SHELLS) if path and os.access(path, os.X_OK))]


def _listening(folder: Path) -> socket.socket:
    """A socket of which the node's agent knows the name; nobody of another user reaches it. Raises OSError."""
    name = RankPaths(folder).interactive.name
    held = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=held)
        before = os.umask(0o177)
        try:
            listener.bind(f"/proc/self/fd/{held}/{name}")  # the whole path may be longer than an address
        finally:
            os.umask(before)
        listener.listen(MAX_CONNECTIONS)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    finally:
        os.close(held)
    return listener


async def serve(host: SessionHost) -> str:
    """Runs a session; SIGTERM ends it without a reason: its job was stopped. Raises NoJupyterError, OSError."""
    task = asyncio.ensure_future(host.run())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    reason = await task
    (host.folder / END_FILE).write_text(f"{reason}\n")
    print(f"interactive session ended: {reason}", file=sys.stderr, flush=True)
    return reason

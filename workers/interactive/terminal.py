"""Terminal of a session: a program on a pseudo terminal, which people attach to and detach from.

Holds: the program goes on while nobody is attached; who attaches gets the last KEPT_BYTES of its output. The window has the size that was
set last. Output waits for the slowest who is attached, for STALLED_S at most: then that one is detached. Input waits for the program: who
types is to wait for `room`, and nothing typed is lost while it runs.
"""

import asyncio
import contextlib
import fcntl
import os
import pty
import signal
import struct
import termios
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from trainhouse.events.tunnel import tunnel_frames as frames

KEPT_BYTES: Final = 64 * 1024
READ_BYTES: Final = 32 * 1024
MAX_UNSENT_BYTES: Final = 256 * 1024
STALLED_S: Final = 20.0
MAX_LAST_READS: Final = 64
MAX_UNTYPED_BYTES: Final = 64 * 1024


class Terminal:
    """One program on one pseudo terminal. `start` before all else; in one event loop."""

    def __init__(self, on_bytes: Callable[[int], None]) -> None:
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._on_bytes = on_bytes
        self._kept = bytearray()
        self._attached: dict[asyncio.StreamWriter, float | None] = {}
        self._master = -1
        self._process: asyncio.subprocess.Process | None = None
        self._untyped = bytearray()
        self.room = asyncio.Event()
        self.room.set()
        self._pump: asyncio.Task[None] | None = None

    async def start(self, argv: Sequence[str], environment: Mapping[str, str], size: tuple[int, int]) -> None:
        """Starts the program. Raises OSError."""
        self._master, slave = pty.openpty()
        try:
            os.set_blocking(self._master, False)
            self.resize(*size)
            self._process = await asyncio.create_subprocess_exec(
                *argv, env=dict(environment), stdin=slave, stdout=slave, stderr=slave, start_new_session=True, preexec_fn=_own_terminal
            )
        except BaseException:
            os.close(self._master)
            raise
        finally:
            os.close(slave)
        self._pump = asyncio.create_task(self._run())

    def resize(self, rows: int, columns: int) -> None:
        """Sets the window's size; the program gets SIGWINCH."""
        if self._master < 0:
            return
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, data: bytes) -> None:
        """Passes on what a person typed. While more than MAX_UNTYPED_BYTES wait for the program, `room` is not set: wait for it."""
        self._on_bytes(len(data))
        self._untyped += data
        self._type()

    def attach(self, writer: asyncio.StreamWriter) -> None:
        """Sends the output to this one, too, the last of before first."""
        writer.write(frames.frame(frames.DATA, bytes(self._kept)))
        self._attached[writer] = None

    def detach(self, writer: asyncio.StreamWriter) -> None:
        """Sends nothing more to this one."""
        self._attached.pop(writer, None)

    def notify(self, text: str) -> None:
        """Shows a line to all who are attached."""
        for writer in self._attached:
            writer.write(frames.frame(frames.NOTICE, text.encode()[: frames.MAX_PAYLOAD_BYTES]))

    async def close(self) -> None:
        """Ends the program as the end of its terminal does: SIGHUP to its session, and soon SIGKILL."""
        process = self._process
        if process is None or self.ended.done():
            return
        for number in (signal.SIGHUP, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self.ended), 1.0)
                return

    async def _run(self) -> None:
        assert self._process is not None
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(self._master, readable.set)
        waits = asyncio.create_task(self._process.wait())
        try:
            while not waits.done():
                looks = asyncio.create_task(readable.wait())
                await asyncio.wait({looks, waits}, return_when=asyncio.FIRST_COMPLETED)
                looks.cancel()
                readable.clear()
                if not self._read():
                    loop.remove_reader(self._master)  # nobody has the terminal open any more
                    await waits
                if not await self._drained():
                    loop.remove_reader(self._master)
                    while not waits.done() and not await self._drained():
                        await asyncio.wait({waits}, timeout=0.05)
                    loop.add_reader(self._master, readable.set)
            for _ in range(MAX_LAST_READS):  # what runs on in the background may write for ever
                if not self._read(only_there=True):
                    break
                await self._drained()
        finally:
            loop.remove_reader(self._master)
            loop.remove_writer(self._master)
            os.close(self._master)
            self._master = -1
        code = await waits
        for writer in self._attached:
            writer.write(frames.exited(code))
        self._untyped.clear()
        self.room.set()
        self.ended.set_result(code)

    def _read(self, only_there: bool = False) -> bool:
        """Passes on a piece of output. False at its end, or, with `only_there`, where there is none now."""
        try:
            data = os.read(self._master, READ_BYTES)
        except BlockingIOError:
            return not only_there
        except OSError:
            return False
        if not data:
            return False
        self._on_bytes(len(data) if self._attached else 0)
        self._kept += data
        del self._kept[:-KEPT_BYTES]
        message = frames.frame(frames.DATA, data)
        for writer in self._attached:
            writer.write(message)
        return True

    async def _drained(self) -> bool:
        """Whether everyone who is attached keeps up; detaches who has not for STALLED_S."""
        now_s, keeps_up = asyncio.get_running_loop().time(), True
        for writer, behind_s in list(self._attached.items()):
            unsent = writer.transport.get_write_buffer_size()
            if writer.is_closing() or (behind_s is not None and now_s - behind_s > STALLED_S and unsent > MAX_UNSENT_BYTES):
                self._attached.pop(writer)
                writer.transport.abort()
            elif unsent > MAX_UNSENT_BYTES:
                self._attached[writer] = behind_s if behind_s is not None else now_s
                keeps_up = False
            else:
                self._attached[writer] = None
        await asyncio.sleep(0)
        return keeps_up

    def _type(self) -> None:
        loop = asyncio.get_running_loop()
        if self._master < 0 or self.ended.done():
            self._untyped.clear()
            return
        try:
            while self._untyped:
                del self._untyped[: os.write(self._master, self._untyped)]
        except BlockingIOError:
            loop.add_writer(self._master, self._type)
        except OSError:
            self._untyped.clear()
        if not self._untyped:
            loop.remove_writer(self._master)
        if len(self._untyped) > MAX_UNTYPED_BYTES:
            self.room.clear()
        else:
            self.room.set()


def _own_terminal() -> None:
    """In the child: the terminal on its standard input is the one that controls it, so that Ctrl-C becomes SIGINT."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)

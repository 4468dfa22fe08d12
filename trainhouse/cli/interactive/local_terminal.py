"""This machine's side of a job's terminal: raw mode, window sizes, the keys that detach.

Holds: the terminal's settings are restored however the session ends, a signal included; a window's size goes along when it changes. Where
standard input is no terminal, it is passed on as it is.
"""

import contextlib
import os
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from trainhouse.events.tunnel import tunnel_frames as frames

if TYPE_CHECKING:
    from trainhouse.client.gateway.tunnels import TunnelStream

READ_BYTES: Final = 32 * 1024
END_OF_INPUT: Final = b"\x04"
_NEWLINES: Final = b"\r\n"


class DetachKeys:
    """Finds `~.` at the beginning of a line in what is typed, as ssh does; `~~` is one `~`. Pure."""

    def __init__(self) -> None:
        self._at_begin = True
        self._after_tilde = False

    def feed(self, data: bytes) -> tuple[bytes, bool]:
        """Returns what to pass on, and whether the keys to detach were typed: then nothing behind them counts."""
        out = bytearray()
        for code in data:
            key = bytes([code])
            if self._after_tilde:
                self._after_tilde = False
                if key == b".":
                    return bytes(out), True
                out += key if key == b"~" else b"~" + key
                self._at_begin = key in _NEWLINES and key != b""
            elif self._at_begin and key == b"~":
                self._after_tilde = True
            else:
                out += key
                self._at_begin = key in _NEWLINES
        return bytes(out), False


@dataclass(frozen=True)
class Ended:
    """End of a session here. `code`: of the program, None where it goes on."""

    code: int | None = None
    is_detached: bool = False


def size() -> tuple[int, int]:
    """Rows and columns of this terminal."""
    found = os.get_terminal_size(sys.stdout.fileno()) if os.isatty(sys.stdout.fileno()) else os.terminal_size((80, 24))
    return found.lines, found.columns


def run(stream: "TunnelStream") -> Ended:
    """Joins this terminal with a stream until the program ends, the keys to detach are typed, or the stream ends. Blocks. Raises
    TunnelLostError, TunnelFormatError."""
    typing = _Typing(stream)
    with _raw(sys.stdin.fileno()), typing:
        return _shown(stream, typing)


def _shown(stream: "TunnelStream", typing: "_Typing") -> Ended:
    split = frames.Frames()
    while True:
        try:
            data = stream.receive()
        except Exception:
            if typing.is_detached:
                return Ended(is_detached=True)
            raise
        if not data:
            return Ended(is_detached=typing.is_detached)
        for kind, payload in split.feed(data):
            if kind == frames.DATA:
                _write(sys.stdout.fileno(), payload)
            elif kind == frames.NOTICE:
                text = "".join(c for c in payload.decode("utf-8", "replace") if c.isprintable())
                _write(sys.stderr.fileno(), f"\r\n[trainhouse: {text}]\r\n".encode())
            elif kind == frames.EXIT:
                return Ended(frames.code_of(payload))


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


class _Typing:
    """Thread that passes on what is typed, and window sizes."""

    def __init__(self, stream: "TunnelStream") -> None:
        self.is_detached = False
        self._stream = stream
        self._fd = sys.stdin.fileno()
        self._is_terminal = os.isatty(self._fd)
        self._wake, self._woken = os.pipe()
        self._over = False
        self._thread = threading.Thread(target=self._run, name="typing", daemon=True)

    def __enter__(self) -> "_Typing":
        os.set_blocking(self._woken, False)
        self._before: Any = signal.signal(signal.SIGWINCH, lambda *_: self._poke())
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGWINCH, self._before)
        self._over = True
        self._poke()
        self._thread.join(1.0)

    def _poke(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._woken, b"w")

    def _run(self) -> None:
        from trainhouse.client.gateway.tunnels import TunnelLostError

        keys, watched = DetachKeys(), [self._fd, self._wake]
        with contextlib.suppress(TunnelLostError):
            while not self._over:
                ready, _, _ = select.select(watched, [], [])
                if self._wake in ready:
                    os.read(self._wake, READ_BYTES)
                    if not self._over:
                        self._stream.send(frames.resize(*size()))
                if self._fd in ready:
                    data = os.read(self._fd, READ_BYTES)
                    if not data:
                        watched.remove(self._fd)
                        self._stream.send(frames.frame(frames.DATA, END_OF_INPUT))
                        continue
                    typed, self.is_detached = keys.feed(data) if self._is_terminal else (data, False)
                    if typed:
                        self._stream.send(frames.frame(frames.DATA, typed))
                    if self.is_detached:
                        self._stream.close()
                        return


@contextlib.contextmanager
def _raw(fd: int) -> Iterator[None]:
    """Passes every key on, Ctrl-C included; restores the terminal at the end, and before a signal that ends this process."""
    if not os.isatty(fd):
        yield
        return
    before = termios.tcgetattr(fd)

    def leave(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    handlers = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        tty.setraw(fd, termios.TCSADRAIN)  # what was typed ahead counts
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)

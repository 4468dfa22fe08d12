"""Run a Python program in a forked process as a fresh interpreter would: `python FILE …` or `python -m MODULE …`.

Holds: exit codes, tracebacks, `__main__`, `sys.argv` and `sys.path[0]` are those of CPython. At the end threads are joined, exit
functions run, files left open are closed, and all buffers are flushed (C's too); then the process leaves without tearing torch down.
Never: returns to its caller.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib.machinery
import io
import os
import runpy
import signal
import sys
import threading
import types
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

CANNOT_OPEN = 2
FLUSH_FAILED = 120


def run_and_exit(argv: Sequence[str]) -> NoReturn:
    """Run `argv` (the program's path first) and end the process with its exit code."""
    interrupted = False
    try:
        _run(list(argv))
        code = 0
    except SystemExit as error:
        code = _code_of(error)
    except BaseException as error:
        interrupted = isinstance(error, KeyboardInterrupt)
        _report(error)
        code = 1
    code = _finish(code)
    if interrupted:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code)


def _run(argv: list[str]) -> None:
    sys.executable, sys.orig_argv = argv[0], list(argv)
    arguments = argv[1:]
    while arguments and arguments[0] == "-u":
        arguments = arguments[1:]
    if arguments[0] == "-m":
        sys.argv = ["-m", *arguments[2:]]
        _set_path(os.getcwd())
        runpy._run_module_as_main(arguments[1], alter_argv=True)  # type: ignore[attr-defined]  # what CPython itself calls
        return
    sys.argv = arguments
    path = os.path.abspath(arguments[0])
    try:
        with open(path, "rb") as file:
            source = file.read()
    except OSError as error:
        print(f"{argv[0]}: can't open file {path!r}: [Errno {error.errno}] {error.strerror}", file=sys.stderr)
        raise SystemExit(CANNOT_OPEN) from None
    _set_path(os.path.dirname(os.path.realpath(path)))
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=path, __cached__=None, __builtins__=__builtins__)
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    sys.modules["__main__"] = main
    exec(compile(source, path, "exec", dont_inherit=True), main.__dict__)  # nosec B102  # it runs the script of the job


def _set_path(first: str) -> None:
    """As at the start of an interpreter: the program's folder, PYTHONPATH, then what the environment brings."""
    extra = [os.path.abspath(p) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    sys.path[:] = [first, *extra, *(p for p in sys.path[1:] if p not in extra)]


def _code_of(error: SystemExit) -> int:
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    print(error.code, file=sys.stderr)
    return 1


def _report(error: BaseException) -> None:
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    try:
        sys.excepthook(type(error), error.with_traceback(trace), trace)
    except BaseException as second:
        sys.__excepthook__(type(second), second, second.__traceback__)


def _finish(code: int) -> int:
    threading._shutdown()  # type: ignore[attr-defined]  # joins the threads that are no daemons, as CPython's end does
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        code = code or FLUSH_FAILED
    try:
        sys.stderr.flush()
    except (OSError, ValueError):
        pass
    _close_files()
    ctypes.CDLL(None).fflush(None)
    return code


def _close_files() -> None:
    """Closes what the program left open, as the end of an interpreter does: whatever stands on another file first, then that."""
    standard = {id(s) for std in (sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__) for s in _layers(std)}
    kinds = io.TextIOBase | io.BufferedIOBase
    files = [f for f in gc.get_objects() if issubclass(type(f), kinds) and id(f) not in standard]  # a dead proxy's `isinstance` raises
    for file in sorted(files, key=_height, reverse=True):
        with contextlib.suppress(Exception):
            file.close()


def _height(file: io.IOBase) -> int:
    """Text stands on bytes; what packs or filters them on a plain file's buffer."""
    return 2 if isinstance(file, io.TextIOBase) else 0 if isinstance(file, io.BufferedWriter | io.BufferedRandom) else 1


def _layers(file: Any) -> Iterator[object]:
    while file is not None:
        yield file
        file = getattr(file, "buffer", None)

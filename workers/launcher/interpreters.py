"""Recognise interpreters on disk: which program and environment a `python` is, and what lies beside a script.

Holds: reads files only, and of each no more than its beginning: a job may have made them; starts nothing. Two virtual
environments on one base python are two interpreters.
"""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainhouse.workers.launcher.eligible import Interpreter
from trainhouse.workers.untrusted import text_or_empty

PYTHONS = ("python", "python3")
_VERSION = re.compile(r"^__version__\s*=\s*['\"]([^'\"]+)", re.MULTILINE)
MAX_LISTED = 4096


def identify(program: str) -> Interpreter:
    """Identifies the interpreter at this path. A path that does not exist gives an Interpreter that equals no real one."""
    path = Path(os.path.abspath(program))
    prefix = path.parent.parent
    if not (prefix / "pyvenv.cfg").exists():
        prefix = Path(os.path.realpath(path)).parent.parent
    return Interpreter(os.path.realpath(path), os.path.realpath(prefix), _torch_version(prefix))


def _torch_version(prefix: Path) -> str:
    for found in sorted(prefix.glob("lib/python3*/site-packages/torch/version.py")):
        match = _VERSION.search(text_or_empty(found))
        if match:
            return match.group(1)
    return ""


def resolve(command: Sequence[str], interpreter: str, env: Mapping[str, str]) -> tuple[str, ...]:
    """The command with its program as a path: `python` is `interpreter`, others are looked up on the rank's PATH."""
    program = command[0]
    if program in PYTHONS:
        program = interpreter
    elif "/" not in program:
        program = shutil.which(program, path=env.get("PATH", os.defpath)) or program
    return (program, *command[1:])


def looks_like_python(program: str) -> bool:
    """By its file name: python, python3, python3.11 …"""
    return re.fullmatch(r"python(3(\.\d+)?)?", os.path.basename(program)) is not None


def local_modules(command: Sequence[str], cwd: Path, env: Mapping[str, str]) -> frozenset[str]:
    """Top-level module names in the folders that come before the environment's own: the script's (or cwd for -m), and PYTHONPATH."""
    arguments = [a for a in command[1:] if a != "-u"]
    first = cwd if arguments[:1] == ["-m"] else (cwd / arguments[0]).parent if arguments else cwd
    folders = [first, *(cwd / p for p in env.get("PYTHONPATH", "").split(os.pathsep) if p)]
    return frozenset(name for folder in folders for name in _modules_in(folder))


def _modules_in(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            names = [e.name for _, e in zip(range(MAX_LISTED), entries, strict=False)]
    except OSError:
        return []
    stems = [n.removesuffix(".py") if n.endswith(".py") else n for n in names]
    return [s for s in stems if s.isidentifier()]

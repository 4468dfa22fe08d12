"""Eligibility of a rank for a fork from the warm process: only when the result equals a cold start's.

Holds: pure; the answer is a reason in words, or "" for yes. Whatever an interpreter or a native library reads at its start cannot be
changed after a fork, so a command that asks for it starts cold; so does one whose own modules hide one that is imported already.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

START_TIME_PREFIXES = ("LD_", "GLIBC_", "MALLOC_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "PYTHON")
START_TIME_PREFIXES_OF_TORCH = ("TORCH_", "TORCHDYNAMO_", "TORCHINDUCTOR_", "PYTORCH_")
START_TIME_NAMES = ("OMP_PROC_BIND", "OMP_PLACES", "OMP_SCHEDULE", "OMP_DYNAMIC", "OMP_STACKSIZE")
APPLIED_AFTER_FORK = ("PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONFAULTHANDLER")


@dataclass(frozen=True)
class Interpreter:
    """Identity of an interpreter: the program, the environment (a venv's prefix) and the torch in it."""

    program: str
    prefix: str
    torch_version: str


@dataclass(frozen=True)
class WarmFacts:
    """Facts of the warm process: its interpreter, its initial environment, and the top-level modules that it holds."""

    interpreter: Interpreter
    env: Mapping[str, str]
    modules: frozenset[str]


@dataclass(frozen=True)
class Wanted:
    """Requirements of a rank's command; `interpreter` None: it is no python. `local_modules`: in its script's folder or PYTHONPATH."""

    command: Sequence[str]
    env: Mapping[str, str]
    interpreter: Interpreter | None
    local_modules: frozenset[str] = frozenset()


def why_cold(wanted: Wanted, warm: WarmFacts | None) -> str:
    """The reason why this command cannot start warm, or ""."""
    if warm is None:
        return "no warm process is ready"
    never = never_warm(wanted)
    if never:
        return never
    if wanted.interpreter != warm.interpreter:
        return f"the warm process is {warm.interpreter}, the command wants {wanted.interpreter}"
    hidden = sorted(wanted.local_modules & warm.modules)
    if hidden:
        return f"the program brings modules of its own called {', '.join(hidden[:5])}, which the warm process has imported from elsewhere"
    return _environment(wanted.env, warm.env)


def never_warm(wanted: Wanted) -> str:
    """The reason why no warm process whatever could start this command, so that nobody waits for one; or ""."""
    if wanted.interpreter is None:
        return f"{wanted.command[0]!r} is not python"
    return _arguments(wanted.command[1:])


def _arguments(arguments: Sequence[str]) -> str:
    if not arguments:
        return "python without a script"
    first = arguments[0]
    if first == "-u":
        return _arguments(arguments[1:])
    if first == "-m":
        return "" if len(arguments) > 1 and not arguments[1].startswith("-") else "python -m without a module"
    if first.startswith("-"):
        return f"the interpreter's option {first} takes effect at its start only"
    return "" if first.endswith(".py") else f"{first} does not end in .py"


def _environment(wanted: Mapping[str, str], warm: Mapping[str, str]) -> str:
    for name in sorted({*wanted, *warm}):
        if name in APPLIED_AFTER_FORK or not _read_at_start(name):
            continue
        if wanted.get(name) != warm.get(name):
            return f"{name} takes effect at the start of an interpreter only, and the warm process has another value of it"
    return ""


def _read_at_start(name: str) -> bool:
    return name in START_TIME_NAMES or name.startswith((*START_TIME_PREFIXES, *START_TIME_PREFIXES_OF_TORCH))


def start_time_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that matters at an interpreter's start: give it to the ranks, or they start cold.

    Without PYTHONHASHSEED: ranks get 0 unless their spec says otherwise.
    """
    return {k: v for k, v in environ.items() if _read_at_start(k) and k not in (*APPLIED_AFTER_FORK, "PYTHONHASHSEED")}

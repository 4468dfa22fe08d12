"""Attribution by exit code or signal alone, for ranks without an error text. A shell's 128 + N is signal N."""

from dataclasses import dataclass
from typing import Final

from trainhouse.events import FailureCategory

_KILL: Final = 9
_TERM: Final = 15
_NAMES: Final = {2: "SIGINT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}


@dataclass(frozen=True)
class ExitCause:
    """`asked`: the end was requested, so any other one comes before it."""

    category: FailureCategory
    rule: str
    summary: str
    mine: bool = False
    asked: bool = False


def by_code(exit_code: int | None, signal: int | None) -> ExitCause:
    """Classifies an exit without an error text. Neither code nor signal: it could not be learnt, so its node is suspect."""
    if signal is None and exit_code is None:
        return ExitCause(
            FailureCategory.NODE, "end-unknown", "how the rank ended was not recorded: its keeper was killed, or the machine went down"
        )
    number = signal if signal is not None else exit_code - 128 if exit_code is not None and 128 < exit_code < 160 else None
    if number is not None:
        return _by_signal(number)
    if exit_code == 75:
        summary = "exit code 75: it saved and left, as a session does whose node goes away"
        return ExitCause(FailureCategory.NODE, "saved-and-left", summary, asked=True)
    if exit_code in (126, 127):
        return ExitCause(FailureCategory.USER_CODE, "no-such-command", f"exit code {exit_code}: the command cannot be run", mine=True)
    return ExitCause(FailureCategory.UNKNOWN, f"exit-{exit_code}", f"it exited with code {exit_code} and said nothing that is known")


def _by_signal(number: int) -> ExitCause:
    name = _NAMES.get(number, f"signal {number}")
    rule = name.lower().replace(" ", "-")
    if number in (4, 8, 11):
        return ExitCause(FailureCategory.USER_CODE, rule, f"{name}: the program crashed")
    if number == 7:
        return ExitCause(FailureCategory.NODE, rule, "SIGBUS: the node's shared memory is too small, or a mapped file went away")
    if number == _TERM:
        return ExitCause(
            FailureCategory.NODE, rule, "SIGTERM, which nobody here sent: its node shuts down, or somebody ended it", asked=True
        )
    if number == _KILL:
        return ExitCause(FailureCategory.UNKNOWN, rule, "SIGKILL: by the kernel when memory ran out, or by somebody")
    return ExitCause(FailureCategory.UNKNOWN, rule, f"ended by {name}")

"""One-line summary of a rank's exit for users: the rank, its node, the exit, and the last line of the exception.

Holds: one line of bounded length. The traceback is in the job's logs, and in the evidence of the verdict.
"""

from typing import Final

from trainhouse.events.wire.rank_end import last_line, note_of, one_line
from trainhouse.scheduler.core.blame.log_parsing import read

_SIGNALS: Final = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}
_BY_AGENT: Final = "by its node's agent"
_KILLED_BY_SOMEBODY: Final = "by the kernel when memory ran out, or by somebody"


def end_line(rank: int, node_id: str, exit_code: int | None, signal: int | None, text: str, *, by_agent: bool = False) -> str:
    """`rank 0 on node a exited with code 1 (NoCheckpointError: …)`."""
    if signal is not None:
        how = f"was killed by {_SIGNALS.get(signal, f'signal {signal}')}"
        why = note_of(text) or _raised(text) or (_BY_AGENT if by_agent else _KILLED_BY_SOMEBODY if signal == 9 else "")
    elif exit_code is not None:
        how = f"exited with code {exit_code}"
        why = note_of(text) or _raised(text) or last_line(text)
    else:
        how, why = "is gone; how it ended could not be learnt", ""
    return f"rank {rank} on node {node_id} {how}" + (f" ({one_line(why)})" if why else "")


def _raised(text: str) -> str:
    """The line of the exception that a text ends with."""
    raised = read(text).raised
    if raised is None:
        return ""
    return f"{raised.kind}: {raised.message}" if raised.message else raised.kind

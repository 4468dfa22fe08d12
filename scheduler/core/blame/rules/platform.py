"""Lines of our own parts: a fence that did its work, a spool that is full, ranks that could not be started."""

from typing import Final

from trainhouse.events import FailureCategory
from trainhouse.scheduler.core.blame.rules.rule import Rule

_P: Final = FailureCategory.PLATFORM
_U: Final = FailureCategory.USER_CODE
_N: Final = FailureCategory.NODE

PLATFORM: Final = (
    Rule("stale-epoch", r"\bStaleEpoch\b", _P, "an old attempt was fenced off by a newer one"),
    Rule("chain-conflict", r"\bChainConflict\b", _P, "two writers had the same epoch"),
    Rule("spool", r"\bSpoolError\b", _P, "the rank's spool took no more: is its agent up, and its disk not full?"),
    Rule("checkpoint-damaged", r"checkpointing\.errors\.Damaged", FailureCategory.STORAGE, "a stored chunk is not what its name says"),
    Rule(
        "resume-from",
        r"checkpointing\.errors\.(?:NoCheckpoint|InvalidState)",
        _U,
        "the checkpoint that was asked for does not fit or is not there",
        mine=True,
    ),
    Rule("store-refused", r"\bObjectStoreRefused\b", _P, "the checkpoint store refuses us: check its bucket and its credentials"),
    Rule("session-use", r"session\.errors\.InvalidUse", _U, "the script uses the session in a way that cannot work", mine=True),
)

LAUNCH: Final = (
    Rule(
        "launch-code",
        r"the code at .{0,400} cannot be (?:unpacked|found|read)|the code's URI|no such code",
        _U,
        "the job's code cannot be used",
        mine=True,
    ),
    Rule("launch-secret", r"the secret \S+ ", _U, "a secret that the job needs is not there", mine=True),
    Rule("launch-folder", r"its working folder .{0,400} does not exist", _U, "the job's working folder does not exist", mine=True),
    Rule("launch-command", r"the command could not be started", _U, "the job's command cannot be started", mine=True),
    Rule("launch-port", r"nothing can listen on|Address already in use", _N, "the node's rendezvous port is taken"),
    Rule("launch-disk", r"No space left on device|Read-only file system|\[Errno (?:5|28|30)\]", _N, "the node's disk cannot be written"),
)

"""Errors of checkpointing: each is a CheckpointError.

Holds: `RetryableError` may pass by itself, the others will not; every error survives pickling, since ranks tell each other theirs.
"""


class CheckpointError(Exception):
    """Base of all errors of checkpointing."""


class RetryableError(CheckpointError):
    """The same call may succeed later."""


class ObjectStoreUnavailableError(RetryableError):
    """The store did not do what was asked before the deadline. What a write left behind is not known."""


class ObjectStoreRefusedError(CheckpointError):
    """The store answered that it will not: wrong key, no such bucket, no right to it."""


class KeysEndedError(ObjectStoreRefusedError):
    """The node's agent gives no keys for the store any more: only the job's next attempt has leave again."""


class ObjectMissingError(CheckpointError):
    """There is no object under this key."""


class ObjectChangedError(CheckpointError):
    """The object was written anew, or removed, since it was listed."""


class InvalidStateError(CheckpointError):
    """The state given cannot be saved, or does not fit the checkpoint."""


class StaleEpochError(CheckpointError):
    """A newer attempt owns the chain: this one must stop, and what it wanted to commit is not committed."""

    def __init__(self, message: str, mine: int = -1, theirs: int = -1) -> None:
        super().__init__(message, mine, theirs)
        self.mine = mine
        self.theirs = theirs

    def __str__(self) -> str:
        return str(self.args[0])


class ChainConflictError(CheckpointError):
    """Broken invariant: two writers have the same epoch, or an entry of the chain is not what must be there."""


class DamagedError(CheckpointError):
    """A stored thing is not what its name or its checksum says."""

    def __init__(self, message: str, sha256: str | None = None) -> None:
        super().__init__(message, sha256)
        self.sha256 = sha256

    def __str__(self) -> str:
        return str(self.args[0])


class UnknownFormatError(CheckpointError):
    """An intact manifest that this program is too old to read."""


class RankFailedError(CheckpointError):
    """Another rank failed in a step that all ranks take together; the message says which, and why."""


class SaveFailedError(RetryableError):
    """A save did not become a checkpoint; the older ones stand."""


class NoCheckpointError(CheckpointError):
    """The checkpoint that was asked for is not there, or is damaged."""


class NoArtifactError(CheckpointError):
    """The artifact that was asked for is not there."""


class NoModelError(CheckpointError):
    """The model, or the version of one, that was asked for is not there."""


class HeldError(CheckpointError):
    """A checkpoint or an artifact that must stay: something refers to it."""


class ExportError(CheckpointError):
    """An export cannot be written where it was asked for."""

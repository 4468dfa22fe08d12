"""Errors of training data.

Holds: every message says what to change.
"""


class InvalidDataError(Exception):
    """A dataset, a batch size or a saved position with which no exact order of samples exists."""


class DamagedShardError(Exception):
    """A shard or its index that is not what its hash, its length or its format says, or that is not in the store.

    `fault` (a ShardFault), `sample`, `expected`, `seen`: evidence, as far as it is known. `shard`: hash of its tar; empty where
    no shard was read.
    """

    def __init__(self, message: str, fault: str = "wrong_hash", *, sample: str = "", expected: str = "", seen: str = "") -> None:
        super().__init__(message)
        self.fault, self.sample, self.expected, self.seen = fault, sample, expected, seen
        self.shard = ""

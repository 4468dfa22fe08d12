"""Keys of samples that came, to find those that come again. Pure."""

from array import array
from hashlib import blake2b

import numpy as np


class SeenKeys:
    """Keys that came, eight bytes each."""

    def __init__(self) -> None:
        self._hashes = array("Q")

    def add(self, key: str) -> None:
        self._hashes.append(int.from_bytes(blake2b(key.encode(), digest_size=8).digest()))

    def repeated(self) -> int:
        """Number of keys that come more than once."""
        if not self._hashes:
            return 0
        hashes = np.sort(np.frombuffer(self._hashes, np.uint64))
        return len(np.unique(hashes[1:][hashes[1:] == hashes[:-1]]))

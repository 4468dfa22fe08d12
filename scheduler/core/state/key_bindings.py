"""Key bindings of forgotten nodes: which public key a name belongs to when its node is no longer in the state.

Holds: a binding is kept until the node registers again or an operator forgets its key, whatever the number of names, so a stranger never
takes a forgotten name; hence small: 28 bytes a name, as digests. Equal sets of bindings have equal `rows`. A copy shares no change.
Never: keeps a key itself. A candidate is compared by its digest (128 bits).
"""

import base64
import hashlib
from bisect import bisect_left
from typing import Final

_NAME_BYTES: Final = 8
_POOL_BYTES: Final = 4
_KEY_BYTES: Final = 16
_ENTRY_BYTES: Final = _NAME_BYTES + _POOL_BYTES + _KEY_BYTES


class KeptKeys:
    """Bindings by name, in sorted buckets by the first byte of the name's digest."""

    __slots__ = ("_buckets",)

    def __init__(self, rows: str = "") -> None:
        self._buckets: dict[int, bytes] = {}
        data = base64.b64decode(rows)
        for at in range(0, len(data), _ENTRY_BYTES):
            self._buckets[data[at]] = self._buckets.get(data[at], b"") + data[at : at + _ENTRY_BYTES]

    def fork(self) -> "KeptKeys":
        """A copy; the buckets are immutable and shared."""
        twin = KeptKeys()
        twin._buckets = self._buckets.copy()
        return twin

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeptKeys) and self._buckets == other._buckets

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values())) // _ENTRY_BYTES

    def put(self, node_id: str, pool: str, public_key: str) -> None:
        """Keeps a binding; replaces that of before."""
        self._put(_digest(node_id, _NAME_BYTES) + _digest(pool, _POOL_BYTES) + _digest(public_key, _KEY_BYTES))

    def drop(self, node_id: str) -> None:
        """Ends a binding, if there is one."""
        self._drop(_digest(node_id, _NAME_BYTES))

    def _put(self, entry: bytes) -> None:
        name = entry[:_NAME_BYTES]
        self._drop(name)
        bucket, at = self._find(name)
        self._buckets[name[0]] = bucket[:at] + entry + bucket[at:]

    def _drop(self, name: bytes) -> None:
        bucket, at = self._find(name)
        if bucket.startswith(name, at):
            self._buckets[name[0]] = bucket[:at] + bucket[at + _ENTRY_BYTES :]
            if not self._buckets[name[0]]:
                del self._buckets[name[0]]

    def key_of(self, node_id: str, candidate: str) -> str:
        """The candidate where it is the key of that name; another text that is no key where it is not; empty for an unbound name."""
        entry = self._entry(node_id)
        if not entry:
            return ""
        kept = entry[_NAME_BYTES + _POOL_BYTES :]
        return candidate if _digest(candidate, _KEY_BYTES) == kept else f"digest {kept.hex()}"

    def is_of_pool(self, node_id: str, pool: str) -> bool:
        """Whether a binding of that name was made in that pool."""
        return self._entry(node_id)[_NAME_BYTES : _NAME_BYTES + _POOL_BYTES] == _digest(pool, _POOL_BYTES)

    def of_pool(self, pool: str) -> "KeptKeys":
        """The bindings that were made in one pool."""
        wanted, found = _digest(pool, _POOL_BYTES), KeptKeys()
        for first, bucket in self._buckets.items():
            entries = (bucket[at : at + _ENTRY_BYTES] for at in range(0, len(bucket), _ENTRY_BYTES))
            mine = b"".join(e for e in entries if e[_NAME_BYTES : _NAME_BYTES + _POOL_BYTES] == wanted)
            if mine:
                found._buckets[first] = mine
        return found

    def adopt(self, others: "KeptKeys") -> None:
        """Adds the bindings of others; of a name that is bound in both, theirs counts."""
        for bucket in others._buckets.values():
            for at in range(0, len(bucket), _ENTRY_BYTES):
                self._put(bucket[at : at + _ENTRY_BYTES])

    def remove(self, others: "KeptKeys") -> None:
        """Ends the bindings of all names that are bound in others."""
        for bucket in others._buckets.values():
            for at in range(0, len(bucket), _ENTRY_BYTES):
                self._drop(bucket[at : at + _NAME_BYTES])

    def rows(self) -> str:
        """All bindings as text, for a snapshot."""
        return base64.b64encode(b"".join(self._buckets[first] for first in sorted(self._buckets))).decode()

    def _entry(self, node_id: str) -> bytes:
        name = _digest(node_id, _NAME_BYTES)
        bucket, at = self._find(name)
        return bucket[at : at + _ENTRY_BYTES] if bucket.startswith(name, at) else b""

    def _find(self, name: bytes) -> tuple[bytes, int]:
        """The bucket of a name and the name's place there, in bytes."""
        bucket = self._buckets.get(name[0], b"")
        places = range(len(bucket) // _ENTRY_BYTES)
        at = bisect_left(places, name, key=lambda n: bucket[n * _ENTRY_BYTES : n * _ENTRY_BYTES + _NAME_BYTES])
        return bucket, at * _ENTRY_BYTES


def _digest(text: str, size: int) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=size).digest()

"""The bytes of a snapshot's object: what the loop takes hold of, and how a thread writes it down.

Holds: nothing of what is held changes in itself, so the partition goes on meanwhile; a large state is encoded piece by piece, since each
call of a library keeps all other threads waiting as long as it lasts.
"""

import base64
import hashlib
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import orjson

from trainhouse.scheduler.stream.journal.follower import Follower

S = TypeVar("S")
# A multiple of three, so that the pieces of base64 are that of the whole.
PIECE_BYTES: Final = 3 * 256 * 1024


@dataclass(frozen=True, slots=True)
class Taken:
    """A snapshot that is not written down yet: the protocol's part, the machine's captured state, and what is not published yet."""

    head: dict[str, Any]
    state: Callable[[], bytes]
    unpublished: tuple[bytes, ...]

    def written(self, segments: Sequence[str] = ()) -> tuple[bytes, str, str]:
        """The object's bytes, their SHA-256, and that of the state. `segments`: objects that it rests on. To be asked for once."""
        state = self.state()
        rest = self.head | {"unpublished": [base64.b64encode(r).decode() for r in self.unpublished]}
        if segments:
            rest["segments"] = list(segments)
        blob = io.BytesIO()
        blob.write(orjson.dumps(rest)[:-1] + b',"state":"')
        for at in range(0, len(state), PIECE_BYTES):
            blob.write(base64.b64encode(state[at : at + PIECE_BYTES]))
        blob.write(b'"}')
        whole = blob.getvalue()
        return whole, hashlib.sha256(whole).hexdigest(), hashlib.sha256(state).hexdigest()


def taken(follower: Follower[S], state: Callable[[], bytes]) -> Taken:
    """Takes hold of a folded partition whose state was captured."""
    folded = follower.folded
    head = {
        "cursor": folded.cursor,
        "now_ms": folded.now_ms,
        "timed_ms": follower.timed_ms,
        "published_up_to": folded.published_up_to,
        "frozen_version": folded.frozen_version,
        # Without any, the bytes are those of before.
        **({"emptied": sorted(follower.emptied)} if follower.emptied else {}),
    }
    return Taken(head, state, tuple(u.record for u in follower.unpublished))


def segments_named(blob: bytes) -> frozenset[str]:
    """The objects that a snapshot rests on. Raises ValueError on other bytes."""
    return frozenset(orjson.loads(blob).get("segments", ()))

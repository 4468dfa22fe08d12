"""Records of holders in the object store, `peer-memory/POOL/RACK/NODE`: written and read by agents alone; no lease of a rank reaches them.

Holds: a holder writes its record again and again, and one that has not for STALE_S, by the store's clock, is taken for gone. The rack is in
the key by its hash, so that one list says where all holders of a pool are.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, field

from trainhouse.checkpointing.errors import DamagedError
from trainhouse.checkpointing.peer_memory.holder_choice import Place
from trainhouse.checkpointing.stores.object_store import ObjectStore, get_or_none

STALE_S = 180.0
NO_RACK = "-"


@dataclass(frozen=True)
class HolderRecord:
    """Address of a holder, and the secret that its tokens are made with."""

    address: str
    port: int
    secret: str = field(repr=False)


def records_prefix(pool: str) -> str:
    """Key prefix of the records of a pool."""
    return f"peer-memory/{pool}/"


def rack_of(label: str) -> str:
    """Name of a rack in keys and places; empty for no label."""
    return hashlib.sha256(label.encode()).hexdigest()[:16] if label else ""


class HolderRecords:
    """Records of one pool. Methods block, and raise ObjectStoreUnavailableError, ObjectStoreRefusedError."""

    def __init__(self, objects: ObjectStore, pool: str) -> None:
        self._objects = objects
        self._prefix = records_prefix(pool)

    def write(self, place: Place, record: HolderRecord) -> None:
        """Writes a record, or writes it again."""
        self._objects.put(self._key(place), json.dumps(asdict(record)).encode())

    def remove(self, place: Place) -> None:
        """Removes the record of a holder that ends."""
        self._objects.delete(self._key(place))

    def places(self) -> list[Place]:
        """Returns the holders that are there."""
        found = []
        for stat in self._objects.list(self._prefix):
            rack, _, node_id = stat.key.removeprefix(self._prefix).partition("/")
            if stat.age_s < STALE_S and node_id:
                found.append(Place(node_id, "" if rack == NO_RACK else rack))
        return found

    def read(self, place: Place) -> HolderRecord | None:
        """Returns the record of a holder, None if it is gone. Raises DamagedError."""
        content = get_or_none(self._objects, self._key(place))
        try:
            return None if content is None else HolderRecord(**json.loads(content))
        except (ValueError, TypeError) as error:
            raise DamagedError(f"{self._objects.uri(self._key(place))} is no record of a holder ({error})") from error

    def _key(self, place: Place) -> str:
        return f"{self._prefix}{place.rack or NO_RACK}/{place.node_id}"

"""Settings of the stream processors: explicit argument > environment > file > default."""

import os
import socket
import uuid
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from trainhouse.events.runtime.watched_files import Followed
from trainhouse.events.security.key_files import kept_key, public_keys
from trainhouse.events.security.signing import SigningKey
from trainhouse.events.security.vetting import VettingRules
from trainhouse.events.settings import TomlSection

if TYPE_CHECKING:
    from trainhouse.events.archive.partition import ArchiveStore
    from trainhouse.scheduler.stream.interfaces import SnapshotStore
    from trainhouse.scheduler.stream.model_interfaces import ModelStore


class StreamSettings(TomlSection):
    """The stream processors: intake, scheduler, detector and tuner. Two processes of one kind must not have the same `instance`."""

    section = "scheduler"
    model_config = SettingsConfigDict(env_prefix="TRAINHOUSE_SCHEDULER_", extra="ignore")

    instance: str | None = Field(
        None,
        description="name of this member of its group for ever, such as a pod's stable name, so that a restart keeps its "
        "partitions; default: a new member each time",
    )
    takeover_s: float = Field(2.0, gt=0.5, description="seconds that an undecided input waits until a standby decides")
    snapshot_every_records: int = Field(2_000, ge=1, description="records of the journal from one snapshot to the next")
    group_session_s: float = Field(
        6.0, ge=1.0, description="seconds without a heartbeat after which Kafka's group gives a member's partitions to others"
    )
    batch_count: int = Field(500, ge=1, le=10_000, description="most inputs in one record of the journal")
    index_dir: Path | None = Field(
        None, description="folder of intake's index of settled jobs, one for each process; without one it is filled anew at each start"
    )
    log_level: str = Field("INFO", description="DEBUG, INFO, WARNING or ERROR")
    signatures: str = Field(
        "accepted",
        pattern="^(accepted|required)$",
        description="reports of nodes that never signed: they count (accepted) or are refused (required)",
    )
    signing_key: Path | None = Field(
        None, description="file of the key that intake, scheduler and detector sign with; made where there is none"
    )
    platform_keys: Path | None = Field(
        None, description="file of public keys that count beside signing_key's, one a line: those of before a rotation, or the next one"
    )

    web_socket: Path | None = Field(
        None, description="Unix socket of Faust's web view, in a folder that its owner alone can reach into; default: no web view"
    )
    stores: str = Field(
        "trainhouse.client.kafka.snapshots:journal_stores",
        description="function that gives Faust's command line the stores of snapshots and of the archive, as MODULE:FUNCTION",
    )
    model_store: str = Field(
        "trainhouse.client.models.model_store:model_store",
        description="function that gives intake the object store for the registry of models, as MODULE:FUNCTION",
    )

    def open_model_store(self) -> "ModelStore":
        """Opens the store that `model_store` names."""
        opened: ModelStore = _opened(self.model_store)
        return opened

    def open_stores(self) -> tuple["SnapshotStore", "ArchiveStore"]:
        """Opens the stores that `stores` names: the scheduler itself knows none."""
        opened: tuple[SnapshotStore, ArchiveStore] = _opened(self.stores)
        return opened

    def key(self) -> SigningKey | None:
        """Returns the key with which this process signs, or None. Raises InvalidKeyError."""
        return None if self.signing_key is None else kept_key(self.signing_key)

    def vetting(self) -> Followed[VettingRules]:
        """Returns the rules for signatures of what it reads; its own key is that of now, the list is read again when it was changed.

        Raises InvalidKeyError.
        """
        key, listed = self.key(), self.platform_keys
        own = VettingRules(self.signatures == "required", key.public_key if key is not None else "")
        if listed is None:
            return Followed((), lambda: own)
        return Followed((listed,), lambda: replace(own, more_platform_keys=public_keys(listed)))

    def owner_name(self) -> str:
        """A name for this start of this process: for records, never reused."""
        return f"{self.instance or socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


def _opened(function: str) -> Any:
    """Calls MODULE:FUNCTION."""
    module, _, name = function.partition(":")
    return getattr(import_module(module), name)()

"""Port of a part of the training state that knows its layout: what it reads of a checkpoint, and into which tensors."""

from collections.abc import Collection, Mapping
from typing import Any, Protocol, runtime_checkable

from trainhouse.checkpointing.state.state_tree import inner_name


@runtime_checkable
class Part(Protocol):
    """A Stateful that may be laid out over the ranks in another way than when it was saved.

    `strict`: everything saved of it must be wanted by some rank.
    """

    strict: bool

    def state_dict(self) -> dict[str, Any]:
        """Returns the share of this rank."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes what `targets` asked for."""

    def targets(self, saved: Mapping[str, Any]) -> dict[str, Any]:
        """Chooses from the saved values what this rank reads, under the same keys. Raises InvalidStateError.

        Tensors of `saved` have no memory. Each is replaced by the tensor to fill, or left for a new one in host memory.
        """

    def unsynced(self) -> Collection[str]:
        """Keys of tensors whose values may differ between ranks; the lowest rank's are saved."""


def unsynced_names(state: Mapping[str, Any]) -> set[str]:
    """Names of the tensors of `state` whose values may differ between ranks."""
    return {inner_name(inner_name("", key), name) for key, part in state.items() if isinstance(part, Part) for name in part.unsynced()}

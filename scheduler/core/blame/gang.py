"""Mapping of a gang's ranks to nodes and devices."""

from collections.abc import Iterable, Sequence

from trainhouse.events import NodePlacement
from trainhouse.scheduler.core.blame.attempt_evidence import RankEnd


class Gang:
    """Lookup of ranks' nodes and devices: by the placements, else by the exits."""

    def __init__(self, placements: Sequence[NodePlacement], ends: Sequence[RankEnd]) -> None:
        places = {end.rank: (end.node_id, end.device_id) for end in ends}
        for part in placements:
            places.update({rank: (str(part.node_id), str(device)) for rank, device in zip(part.ranks, part.devices, strict=True)})
        self._places = dict(sorted(places.items()))

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(self._places)

    @property
    def on_one_node(self) -> bool:
        """Whether it needs no network; False where it is not known."""
        return len(self.nodes_of(self._places)) == 1

    def place(self, rank: int) -> tuple[str | None, str | None]:
        """(node, device) of a rank; None where it is not known."""
        node, device = self._places.get(rank, ("", ""))
        return node or None, device or None

    def nodes_of(self, ranks: Iterable[int]) -> tuple[str, ...]:
        """The nodes of these ranks, sorted."""
        return tuple(sorted({self._places[r][0] for r in ranks if r in self._places and self._places[r][0]}))

    def rank_of(self, device_id: str) -> int | None:
        """The first rank on a device, if any."""
        return next((rank for rank, (_, device) in self._places.items() if device == device_id), None)

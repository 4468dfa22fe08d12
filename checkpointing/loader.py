"""Loading one checkpoint into a live training state.

Holds: a chunk is read once by one rank, verified, and sent to the ranks that need it; nothing of the live state changes before all of
them are known to be sound, for which the tensors that are read take memory beside the live ones until then. A damaged chunk found by one
rank is known to all. A store that is away is never taken for damage. With as many ranks as saved, and the same share of the data for each,
each gets its own state back, bit for bit; else `reshard` says what of it carries over.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.checkpoint import state_dict_loader
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.tensor import DTensor

from trainhouse.checkpointing.chain.chunks import ChunkStore
from trainhouse.checkpointing.chain.manifest import Manifest, Span
from trainhouse.checkpointing.collective import Ranks
from trainhouse.checkpointing.errors import CheckpointError, DamagedError, InvalidStateError
from trainhouse.checkpointing.peer_memory.holder_client import PeerReads, PeerTally
from trainhouse.checkpointing.peer_memory.peers import Peers
from trainhouse.checkpointing.state import reshard
from trainhouse.checkpointing.state.dcp_storage import VerifyingReader, dtype_named
from trainhouse.checkpointing.state.part import Part
from trainhouse.checkpointing.state.planners import StrictLoadPlanner
from trainhouse.checkpointing.state.shared_reads import SharedReads
from trainhouse.checkpointing.state.state_tree import put_together, some_of, stripped, tensor_names, unpack, values_of
from trainhouse.checkpointing.stores.object_store import Body

PerRankConsumer = Callable[[dict[str, Any]], None]


class Loader:
    """Loads manifests' states. All methods are collective. `tally`: what this rank read from peers' memory, in its last load."""

    def __init__(
        self, ranks: Ranks, chunks: ChunkStore, seed: int = 0, data_shares: tuple[int, ...] = (), peers: Peers | None = None
    ) -> None:
        self._ranks = ranks
        self._chunks = chunks
        self._seed = seed
        self._data_shares = data_shares
        self._peers = peers
        self.tally = PeerTally()

    def load(self, manifest: Manifest, state: dict[str, Any], consumer: PerRankConsumer) -> list[DamagedError]:
        """Fills `state` and hands this rank's own state to `consumer`. Returns what was damaged; then `state` is as it was.

        Raises InvalidStateError if the checkpoint is sound but is not one of such a state, or not for such a gang.
        """
        peers = PeerReads(self._peers, manifest) if self._peers is not None else None
        try:
            return self._load(manifest, SharedReads(self._ranks, manifest, self._chunks, peers), state, consumer)
        finally:
            if peers is not None:
                self.tally = peers.tally
                peers.close()

    def _load(self, manifest: Manifest, reads: SharedReads, state: dict[str, Any], consumer: PerRankConsumer) -> list[DamagedError]:
        bodies: dict[int, Body] = {}

        def hold(number: int, body: Body) -> None:
            bodies[number] = bytes(body)

        problems = reads.fetch(_small_needs(manifest, self._shares), hold, keep=True)
        if problems:
            return problems
        skeleton, own = self._ranks.each(lambda: self._open(manifest, bodies))
        held = _held(state, skeleton) if manifest.imported_from is not None else state
        wanted: list[_Wanted] = []

        def want() -> list[str]:
            wanted.append(self._wanted(manifest, held, skeleton))
            return sorted(wanted[0].targets)

        named = self._ranks.all(want)
        self._ranks.each(lambda: _check_all_wanted(manifest, held, skeleton, {name for names in named for name in names}))
        problems = self._fill(manifest, reads, wanted[0].targets)
        if not problems:
            self._ranks.each(lambda: self._hand_over(state, wanted[0], own, consumer))
        return problems

    def _open(self, manifest: Manifest, bodies: Mapping[int, Body]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The skeleton, and what is this rank's own."""
        same = manifest.shares == self._shares
        own = _unpacked(bodies, manifest.ranks[self._ranks.rank]) if same else self._resized(manifest, bodies)
        return _unpacked(bodies, manifest.structure), own

    def _resized(self, manifest: Manifest, bodies: Mapping[int, Body]) -> dict[str, Any]:
        """This rank's own state out of those of ranks with other shares of the data. The ranks divide the check of the old states."""
        rank, shares = self._ranks.rank, self._shares
        source = _sources(manifest).get(shares[rank])
        first = _unpacked(bodies, manifest.ranks[0])
        mine: dict[str, Any] | None = None
        for old in _old_ranks(manifest, rank, len(shares), source):
            own = first if old == 0 else _unpacked(bodies, manifest.ranks[old])
            try:
                reshard.check(own, first, old)
            except InvalidStateError as error:
                raise InvalidStateError(
                    f"the checkpoint of step {manifest.step} of {manifest.job_id} was saved by {_difference(manifest, shares, error)}"
                ) from error
            mine = own if old == source else mine
        return reshard.carried(first, mine, self._seed, shares[rank], manifest.step)

    @property
    def _shares(self) -> tuple[int, ...]:
        """By rank, the share of the data that it reads."""
        return self._data_shares or tuple(range(self._ranks.world_size))

    def _wanted(self, manifest: Manifest, state: dict[str, Any], skeleton: dict[str, Any]) -> "_Wanted":
        """Chooses what this rank reads, and the target of each tensor: one that its part made, else a new one in host memory."""
        absent = sorted(set(state) - set(skeleton))
        if absent:
            raise _misfit(manifest, f"it holds {some_of(sorted(skeleton))}, not {some_of(absent)}")
        shapes = {name: _shape_of(manifest, name) for name in tensor_names({k: skeleton[k] for k in state})}
        saved = {key: put_together(skeleton[key], shapes) for key in state}
        parts = {key: part for key, part in state.items() if isinstance(part, Part)}
        try:
            chosen = saved | {key: part.targets(saved[key]) for key, part in parts.items()}
        except InvalidStateError as error:
            raise _misfit(manifest, str(error)) from error
        mine, targets = stripped(chosen)
        live = stripped(values_of({key: value for key, value in state.items() if key not in parts}))[1]
        for name, target in targets.items():
            if target.is_meta:
                targets[name] = _new_target(target, live.get(name))
        return _Wanted(mine, targets)

    def _fill(self, manifest: Manifest, reads: SharedReads, targets: dict[str, torch.Tensor]) -> list[DamagedError]:
        reader = VerifyingReader(manifest, reads)
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="torch.distributed is disabled")
                state_dict_loader.load(
                    dict(targets),
                    storage_reader=reader,
                    planner=StrictLoadPlanner(),
                    process_group=self._ranks.group,
                    no_dist=self._ranks.alone,
                )
        except CheckpointException as error:
            cause, _ = next(iter(error.failures.values()))
            raise cause if isinstance(cause, CheckpointError) else InvalidStateError(str(cause)) from error
        return reader.problems

    def _hand_over(self, state: dict[str, Any], wanted: "_Wanted", own: dict[str, Any], consumer: PerRankConsumer) -> None:
        for key, holder in list(state.items()):
            if key not in wanted.skeleton:
                continue  # not imported: it begins anew
            if isinstance(holder, Stateful):
                holder.load_state_dict(put_together(wanted.skeleton[key], wanted.targets))
            else:
                state[key] = put_together(wanted.skeleton[key], wanted.targets | _filled(stripped({key: holder})[1], wanted.targets))
        consumer(own)


@dataclass(frozen=True)
class _Wanted:
    """The part of a checkpoint that one rank reads: its skeleton, and where its tensors go."""

    skeleton: dict[str, Any]
    targets: dict[str, torch.Tensor]


def _shape_of(manifest: Manifest, name: str) -> torch.Tensor:
    """A tensor without memory, of the saved one's dtype and shape."""
    record = manifest.tensors[name]
    return torch.empty(torch.Size(record.shape), dtype=dtype_named(record.dtype), device="meta")


def _held(state: dict[str, Any], skeleton: dict[str, Any]) -> dict[str, Any]:
    """The parts that are read of an imported checkpoint: the model, and of the others those that it holds."""
    return {key: part for key, part in state.items() if key == "model" or key in skeleton} or state


def _check_all_wanted(manifest: Manifest, state: dict[str, Any], skeleton: dict[str, Any], wanted: set[str]) -> None:
    """Raises InvalidStateError for saved tensors of a strict part that no rank holds: it is another model's checkpoint."""
    strict = {key: skeleton[key] for key, part in state.items() if isinstance(part, Part) and part.strict}
    left = [name for name in tensor_names(strict) if name not in wanted]
    if left:
        raise _misfit(manifest, f"it holds {some_of(left)}, which no rank of this gang has")


def _misfit(manifest: Manifest, why: str) -> InvalidStateError:
    """The error of a checkpoint that is not one of this training's state, with the way out."""
    return InvalidStateError(
        f"the checkpoint of step {manifest.step} of {manifest.job_id} does not fit: {why}; "
        "build the model and its optimizer as they were saved, or begin anew, by a new job without --from"
    )


def _new_target(saved: torch.Tensor, live: torch.Tensor | None) -> torch.Tensor:
    """A tensor to read into: sharded as the live one where that is alike, else in host memory."""
    if isinstance(live, DTensor) and live.dtype == saved.dtype and live.shape == saved.shape:
        return torch.empty_like(live, requires_grad=False)
    return torch.empty(saved.shape, dtype=saved.dtype)


def _filled(live: Mapping[str, torch.Tensor], read: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Live tensors that are as those read, with the values of these."""
    alike = {n: t for n, t in live.items() if n in read and read[n].dtype == t.dtype and read[n].shape == t.shape}
    return {name: tensor.copy_(read[name]) for name, tensor in alike.items()}


def _small_needs(manifest: Manifest, shares: tuple[int, ...]) -> list[list[int]]:
    """By rank, the chunks of the skeleton and of the own states that the rank takes or checks."""
    same = manifest.shares == shares
    sources = _sources(manifest)
    olds = [[r] if same else _old_ranks(manifest, r, len(shares), sources.get(share)) for r, share in enumerate(shares)]
    spans = [[manifest.ranks[old] for old in of_rank] for of_rank in olds]
    return [sorted({manifest.structure.chunk, *(span.chunk for span in of_rank)}) for of_rank in spans]


def _old_ranks(manifest: Manifest, rank: int, ranks: int, source: int | None) -> list[int]:
    """Ranks of before whose own states this one takes or checks, when the gang was another: it shares the check with the others."""
    return sorted({0, source or 0, *range(rank, manifest.world_size, ranks)})


def _sources(manifest: Manifest) -> dict[int, int]:
    """By share of the data, the lowest rank of before that read it."""
    return {share: rank for rank, share in reversed(list(enumerate(manifest.shares)))}


def _difference(manifest: Manifest, shares: tuple[int, ...], error: InvalidStateError) -> str:
    """The two gangs, what of the old one does not carry over, and the way out."""
    if len(shares) != manifest.world_size:
        before = f"{manifest.world_size} ranks"
        return f"{before}, this gang has {len(shares)}: {error}; or ask for a gang of {manifest.world_size}"
    rank = next(rank for rank, (old, new) in enumerate(zip(manifest.shares, shares, strict=True)) if old != new)
    old, new = manifest.shares[rank], shares[rank]
    return f"as many ranks in another layout, where rank {rank} read share {old} of the data, now {new}: {error}; or keep the layout"


def _unpacked(bodies: Mapping[int, Body], span: Span) -> dict[str, Any]:
    found: dict[str, Any] = unpack(bytes(memoryview(bodies[span.chunk])[span.offset : span.offset + span.size_bytes]))
    return found

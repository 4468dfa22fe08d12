"""Loading one checkpoint into a live training state.

Holds: every chunk is verified, by the ranks in shares, before the first byte of the live state changes, and again as it is
loaded; a damaged chunk found by one rank is known to all. A store that is away is never taken for damage. With as many ranks as saved,
each gets its own state back, bit for bit; with another number, `reshard` says what of it carries over.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.checkpoint import state_dict_loader
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.stateful import Stateful

from trainhouse.checkpointing.chain.chunks import ChunkStore, prefix_of
from trainhouse.checkpointing.chain.manifest import Manifest, Span
from trainhouse.checkpointing.collective import Ranks
from trainhouse.checkpointing.errors import CheckpointError, DamagedError, InvalidStateError
from trainhouse.checkpointing.state import reshard
from trainhouse.checkpointing.state.dcp_storage import VerifyingReader, dtype_named
from trainhouse.checkpointing.state.part import Part
from trainhouse.checkpointing.state.planners import StrictLoadPlanner
from trainhouse.checkpointing.state.state_tree import put_together, some_of, stripped, tensor_names, unpack, values_of

PerRankConsumer = Callable[[dict[str, Any]], None]


class Loader:
    """Loads manifests' states. All methods are collective."""

    def __init__(self, ranks: Ranks, chunks: ChunkStore, seed: int = 0) -> None:
        self._ranks = ranks
        self._chunks = chunks
        self._seed = seed

    def verify(self, manifest: Manifest) -> list[DamagedError]:
        """Returns the faults of its chunks; each rank reads its share. Nothing of the live state changes."""
        distinct = sorted({c.sha256: c for c in manifest.chunks}.values(), key=lambda c: c.sha256)
        mine = distinct[self._ranks.rank :: self._ranks.world_size]
        return [problem for found in self._ranks.all(lambda: self._chunks.verify(mine, prefix_of(manifest))) for problem in found]

    def load(self, manifest: Manifest, state: dict[str, Any], consumer: PerRankConsumer) -> list[DamagedError]:
        """Fills `state` and hands this rank's own state to `consumer`. Returns what was damaged; then `state` must not be used.

        Raises InvalidStateError if the checkpoint is sound but is not one of such a state, or not for so many ranks.
        """
        opened: list[tuple[dict[str, Any], dict[str, Any]]] = []
        found = self._ranks.all(lambda: _damage_of(lambda: opened.append(self._open(manifest))))
        problems = [problem for problem in found if problem is not None]
        if problems:
            return problems
        skeleton, own = opened[0]
        held = _held(state, skeleton) if manifest.imported_from is not None else state
        wanted: list[_Wanted] = []

        def want() -> list[str]:
            wanted.append(self._wanted(manifest, held, skeleton))
            return sorted(wanted[0].targets)

        named = self._ranks.all(want)
        self._ranks.each(lambda: _check_all_wanted(manifest, held, skeleton, {name for names in named for name in names}))
        problems = self._fill(manifest, wanted[0].targets)
        if not problems:
            self._ranks.each(lambda: self._hand_over(state, wanted[0], own, consumer))
        return problems

    def _open(self, manifest: Manifest) -> tuple[dict[str, Any], dict[str, Any]]:
        """The skeleton, and what is this rank's own."""
        same = manifest.world_size == self._ranks.world_size
        own = self._read(manifest, manifest.ranks[self._ranks.rank]) if same else self._resized(manifest)
        return self._read(manifest, manifest.structure), own

    def _resized(self, manifest: Manifest) -> dict[str, Any]:
        """This rank's own state out of those of another number of ranks. The ranks check the old states in shares."""
        rank, now = self._ranks.rank, self._ranks.world_size
        first = self._read(manifest, manifest.ranks[0])
        mine: dict[str, Any] | None = None
        for old in sorted({0, *range(rank, manifest.world_size, now)}):
            own = first if old == 0 else self._read(manifest, manifest.ranks[old])
            try:
                reshard.check(own, first, old)
            except InvalidStateError as error:
                raise InvalidStateError(
                    f"the checkpoint of step {manifest.step} of {manifest.job_id} was saved by {manifest.world_size} ranks, this gang has "
                    f"{now}: {error}; or ask for a gang of {manifest.world_size}"
                ) from error
            mine = own if old == rank else mine
        return reshard.carried(first, mine, self._seed, rank, manifest.step)

    def _read(self, manifest: Manifest, span: Span) -> dict[str, Any]:
        body = self._chunks.fetch(manifest.chunks[span.chunk], prefix_of(manifest))
        found: dict[str, Any] = unpack(body[span.offset : span.offset + span.size_bytes])
        return found

    def _wanted(self, manifest: Manifest, state: dict[str, Any], skeleton: dict[str, Any]) -> "_Wanted":
        """Chooses what this rank reads, and the target of each tensor: a live one where that fits, else a new one in host memory."""
        absent = sorted(set(state) - set(skeleton))
        if absent:
            raise InvalidStateError(f"the checkpoint of step {manifest.step} holds {sorted(skeleton)}, not {absent}")
        shapes = {name: _shape_of(manifest, name) for name in tensor_names({k: skeleton[k] for k in state})}
        saved = {key: put_together(skeleton[key], shapes) for key in state}
        parts = {key: part for key, part in state.items() if isinstance(part, Part)}
        try:
            chosen = saved | {key: part.targets(saved[key]) for key, part in parts.items()}
        except InvalidStateError as error:
            raise InvalidStateError(f"the checkpoint of step {manifest.step} of {manifest.job_id} does not fit: {error}") from error
        mine, targets = stripped(chosen)
        live = stripped(values_of({key: value for key, value in state.items() if key not in parts}))[1]
        for name, target in targets.items():
            if target.is_meta:
                found = live.get(name)
                alike = found is not None and found.dtype == target.dtype and found.shape == target.shape
                targets[name] = found if found is not None and alike else torch.empty(target.shape, dtype=target.dtype)
        return _Wanted(mine, targets)

    def _fill(self, manifest: Manifest, targets: dict[str, torch.Tensor]) -> list[DamagedError]:
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="torch.distributed is disabled")
                state_dict_loader.load(
                    dict(targets),
                    storage_reader=VerifyingReader(manifest, self._chunks),
                    planner=StrictLoadPlanner(),
                    process_group=self._ranks.group,
                    no_dist=self._ranks.alone,
                )
        except CheckpointException as error:
            causes = [cause for cause, _ in error.failures.values()]
            others = [c for c in causes if not isinstance(c, DamagedError)]
            if others:
                raise others[0] if isinstance(others[0], CheckpointError) else InvalidStateError(str(others[0])) from error
            return [c for c in causes if isinstance(c, DamagedError)]
        return []

    def _hand_over(self, state: dict[str, Any], wanted: "_Wanted", own: dict[str, Any], consumer: PerRankConsumer) -> None:
        for key, holder in list(state.items()):
            if key not in wanted.skeleton:
                continue  # not imported: it begins anew
            value = put_together(wanted.skeleton[key], wanted.targets)
            if isinstance(holder, Stateful):
                holder.load_state_dict(value)
            else:
                state[key] = value
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
        raise InvalidStateError(
            f"the checkpoint of step {manifest.step} of {manifest.job_id} does not fit: it holds {some_of(left)}, "
            "which no rank of this gang has"
        )


def _damage_of(work: Callable[[], object]) -> DamagedError | None:
    try:
        work()
    except DamagedError as error:
        return error
    return None

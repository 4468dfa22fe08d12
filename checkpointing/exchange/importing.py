"""Import of a checkpoint of another program, as a commit of a job id that no job had.

Holds: the commit is of epoch 0, which no attempt has: an id that a job ran under is refused, and a job that runs under this id later takes
the chain over. The manifest is written last. A part that the source lacks begins anew in the job that starts from it.
Never: runs code of what it reads.
"""

import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from trainhouse.checkpointing.chain.chunks import GRACE_S, ChunkStore
from trainhouse.checkpointing.chain.commits import CommitChain, Writer, entries_newest_first
from trainhouse.checkpointing.chain.manifest import Claim, Manifest, Piece, Span, TensorRecord
from trainhouse.checkpointing.errors import InvalidStateError, ObjectStoreRefusedError, SaveFailedError, StaleEpochError
from trainhouse.checkpointing.exchange.dcp_format import METADATA
from trainhouse.checkpointing.exchange.dcp_source import MODEL, OPTIMIZER, DcpSource
from trainhouse.checkpointing.exchange.export import RANKS
from trainhouse.checkpointing.exchange.hf_source import HfSource
from trainhouse.checkpointing.exchange.import_chunks import ImportChunks
from trainhouse.checkpointing.exchange.source_folder import export_facts, inside
from trainhouse.checkpointing.lease.lease_facts import owned, owner_of
from trainhouse.checkpointing.state.balance import split_rows
from trainhouse.checkpointing.state.dcp_storage import tensor_bytes
from trainhouse.checkpointing.state.state_tree import inner_name, pack, some_of, take_apart, unpack
from trainhouse.checkpointing.stores.object_store import ObjectStore
from trainhouse.events.model.ids import AttemptNumber, Epoch, JobId


@dataclass(frozen=True)
class ImportSettings:
    """Place and description of an import. `only`: parts to take, all where it is empty. `step`: None: the provenance's, or 0."""

    job_id: str
    project: str
    source: str
    only: frozenset[str] = frozenset()
    step: int | None = None


def import_folder(folder: Path, objects: ObjectStore, settings: ImportSettings) -> Manifest:
    """Imports a folder that DCP or Hugging Face wrote. Blocks. Raises InvalidStateError, ObjectStoreRefusedError (another project's id)."""
    if inside(folder, METADATA).exists():
        return _Import(objects, settings, folder).from_dcp(DcpSource(folder))
    if any(folder.glob("*.safetensors")):
        return _Import(objects, settings, folder).from_hf(HfSource(folder))
    raise InvalidStateError(
        f"{folder} holds neither {METADATA} (torch.distributed.checkpoint) nor *.safetensors (Hugging Face); "
        "write it anew with dcp.save or save_pretrained(safe_serialization=True)"
    )


class _Import:
    """One import."""

    def __init__(self, objects: ObjectStore, settings: ImportSettings, folder: Path) -> None:
        self._settings = settings
        self._objects = objects
        self._folder = folder
        self._facts = export_facts(folder)
        self._began_s = time.time()
        self._writer = Writer(JobId.parse(settings.job_id), Epoch(0), AttemptNumber(0), uuid.uuid4().hex)
        self._chunks = ChunkStore(objects, settings.job_id)
        self._sending = ImportChunks(self._chunks)
        self._tensors: dict[str, TensorRecord] = {}
        self._awaited: frozenset[str] = frozenset()

    def from_dcp(self, source: DcpSource) -> Manifest:
        parts = self._taken(source.parts)
        values = source.values(parts)
        if OPTIMIZER in values:
            values = {**values, OPTIMIZER: _by_name(values[OPTIMIZER])}
        skeleton = self._skeleton(values)
        names: dict[int, list[str]] = {}
        for name, tensor in _tensors(values):
            names.setdefault(id(tensor), []).append(name)
            if not tensor.is_meta:  # it lies within a value that torch pickled as a whole
                self._add(name, tensor)
        for empty, tensor in source.tensors():
            for name in names.get(id(empty), ()):
                self._add(name, tensor)
        return self._committed(skeleton)

    def from_hf(self, source: HfSource) -> Manifest:
        values = source.values()
        parts = self._taken(frozenset(values))
        skeleton = self._skeleton({part: value for part, value in values.items() if part in parts})
        for key, empty in values[MODEL].items():
            pieces = []
            for start, rows in source.pieces(key):
                offsets = (start, *[0] * (empty.dim() - 1)) if empty.dim() else ()
                span = self._sending.add(tensor_bytes(rows))
                pieces.append(Piece(offsets=offsets, sizes=tuple(rows.shape), span=span))
            self._tensors[_name((MODEL, key))] = _record(empty, pieces)
        return self._committed(skeleton)

    def _taken(self, there: frozenset[str]) -> frozenset[str]:
        """The parts to take, of those that the source has."""
        settings, parts = self._settings, f"it has {some_of(sorted(there))}"
        unknown = settings.only - there
        if unknown:
            raise InvalidStateError(f"{settings.source} holds none of {sorted(unknown)}; {parts}")
        taken = settings.only or there
        if MODEL not in taken:
            raise InvalidStateError(f"{settings.source}: jobs cannot start from a checkpoint without its part {MODEL}; {parts}")
        return taken

    def _skeleton(self, values: Mapping[str, Any]) -> bytes:
        taken = take_apart(values)
        if not any(name.partition(".")[0] == MODEL for name in taken.tensors):
            raise InvalidStateError(f"the part {MODEL} of {self._settings.source} holds no tensors; nothing is imported")
        self._awaited = frozenset(taken.tensors)
        self._refuse_taken_id()
        return taken.skeleton

    def _refuse_taken_id(self) -> None:
        """Raises InvalidStateError unless nothing was ever committed under the id but claims of imports that failed, and
        ObjectStoreRefusedError where it is another project's. Writes nothing."""
        job_id, project = self._settings.job_id, self._settings.project
        owner = owner_of(self._objects, job_id)
        if owner is not None and owner.project != project:
            raise ObjectStoreRefusedError(
                f"job {job_id} is not of project {project!r}, but of another one; import under another id, and submit with --from"
            )
        for _, entry in entries_newest_first(self._objects, job_id):
            if isinstance(entry, Claim) and entry.epoch == self._writer.epoch:
                continue
            what = "has an imported checkpoint" if getattr(entry, "epoch", None) == self._writer.epoch else "is a job that ran"
            raise InvalidStateError(f"{job_id} {what}; import under another id, and submit with --from")

    def _claimed(self) -> CommitChain:
        """The chain of the id, taken for this import if it still is free."""
        settings = self._settings
        self._refuse_taken_id()
        owned(self._objects, settings.job_id, settings.project, 0)
        chain = CommitChain(self._objects, self._writer)
        try:
            chain.claim(time.time())
        except StaleEpochError as error:
            raise InvalidStateError(f"{settings.job_id} is a job that ran; import under another id, and submit with --from") from error
        self._refuse_taken_id()  # another import may have committed in between; from here on it cannot
        return chain

    def _add(self, name: str, tensor: torch.Tensor) -> None:
        pieces = []
        for start, rows in split_rows(tensor.shape, tensor.element_size(), 1):
            piece = tensor.narrow(0, start, rows) if tensor.dim() else tensor
            offsets = (start, *[0] * (tensor.dim() - 1)) if tensor.dim() else ()
            pieces.append(Piece(offsets=offsets, sizes=tuple(piece.shape), span=self._sending.add(tensor_bytes(piece))))
        self._tensors[name] = _record(tensor, pieces)

    def _own_states(self) -> list[bytes]:
        """Own states of ranks, where the folder is an export that has them; one empty one else."""
        named = self._facts.files if self._facts else []
        files = [inside(self._folder, file.name) for file in named if Path(file.name).parts[0] == RANKS]
        contents = [path.read_bytes() for path in files]
        for path, content in zip(files, contents, strict=True):
            try:
                unpack(content)
            except Exception as error:
                raise InvalidStateError(f"{path} is no state of a rank ({type(error).__name__})") from error
        return contents or [pack({}, "own state")]

    def _committed(self, skeleton: bytes) -> Manifest:
        differing = sorted(self._awaited ^ self._tensors.keys())
        if differing:
            raise InvalidStateError(f"{self._settings.source}: {some_of(differing)} have no bytes in it; nothing is imported")
        structure = self._sending.add(skeleton)
        ranks = tuple(self._sending.add(content) for content in self._own_states())
        chunks = self._sending.close()
        if time.time() - self._began_s > GRACE_S / 2:
            raise SaveFailedError(f"{self._settings.source}: the import took more than half of retention's grace: not committed; try again")
        manifest, _ = self._claimed().append(lambda n: self._manifest(n, structure, ranks, chunks))
        return manifest

    def _manifest(self, commit: int, structure: Span, ranks: tuple[Span, ...], chunks: Any) -> Manifest:
        step = self._settings.step if self._settings.step is not None else self._facts.step if self._facts else 0
        return Manifest(
            job_id=self._writer.job_id,
            commit=commit,
            epoch=self._writer.epoch,
            attempt=self._writer.attempt,
            writer=self._writer.writer,
            created_at_s=time.time(),
            step=step,
            world_size=len(ranks),
            spec_hash="imported",
            structure=structure,
            ranks=ranks,
            tensors=self._tensors,
            chunks=chunks,
            bytes_new=self._sending.bytes_new,
            metrics=self._facts.metrics if self._facts else {},
            imported_from=self._settings.source,
        )


def _record(tensor: torch.Tensor, pieces: list[Piece]) -> TensorRecord:
    return TensorRecord(dtype=str(tensor.dtype).removeprefix("torch."), shape=tuple(tensor.shape), pieces=tuple(pieces))


def _name(path: tuple[str | int, ...]) -> str:
    """The name of a tensor at a path, as `take_apart` gives it."""
    name = ""
    for key in path:
        name = inner_name(name, key)
    return name


def _tensors(value: Any, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of nested values themselves, with the names that `take_apart` gives them."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _tensors(inner, inner_name(name, key))
    elif type(value) in (list, tuple):
        for place, inner in enumerate(value):
            yield from _tensors(inner, inner_name(name, place))


def _by_name(optimizer: Any) -> Any:
    """The state of an optimizer in Trainhouse's form, of that or as torch's `get_optimizer_state_dict` gives it: settings by parameter.

    DCP folders hold no empty dictionaries, so that these are put back.
    """
    groups = optimizer.get("param_groups") if isinstance(optimizer, Mapping) else None
    if isinstance(groups, list) and all(isinstance(name, str) for group in groups for name in group.get("params", ())):
        groups = {name: {k: v for k, v in group.items() if k != "params"} for group in groups for name in group["params"]}
    return {"state": {}, "tied": {}, **optimizer, "param_groups": groups} if isinstance(groups, dict) else optimizer

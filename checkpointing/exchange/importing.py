"""Import of a checkpoint of another program, as a commit of a job id that no job had.

Holds: the commit is of epoch 0, which no attempt has: an id that a job ran under is refused, and a job that runs under this id later takes
the chain over. The manifest is written last. A part that the source lacks begins anew in the job that starts from it.
Never: runs code of what it reads.
"""

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import torch

from trainhouse.checkpointing.chain.chunks import GRACE_S, ChunkStore
from trainhouse.checkpointing.chain.commits import CommitChain, Writer
from trainhouse.checkpointing.chain.manifest import Manifest, Piece, Span, TensorRecord
from trainhouse.checkpointing.errors import InvalidStateError, SaveFailedError, StaleEpochError
from trainhouse.checkpointing.exchange.dcp_format import METADATA
from trainhouse.checkpointing.exchange.dcp_source import DcpSource
from trainhouse.checkpointing.exchange.export import PROVENANCE, RANKS
from trainhouse.checkpointing.exchange.hf_source import HfSource
from trainhouse.checkpointing.exchange.import_chunks import ImportChunks
from trainhouse.checkpointing.lease.lease_facts import owned
from trainhouse.checkpointing.state.balance import split_rows
from trainhouse.checkpointing.state.dcp_storage import tensor_bytes
from trainhouse.checkpointing.state.state_tree import inner_name, pack, take_apart, unpack
from trainhouse.checkpointing.stores.object_store import ObjectStore
from trainhouse.events.model.ids import AttemptNumber, Epoch, JobId

MODEL, OPTIMIZER = "model", "optimizer"


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
    if (folder / METADATA).exists():
        dcp = DcpSource(folder)
        return _Import(objects, settings, folder).from_dcp(dcp)
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
        self._facts = _provenance(folder)
        self._began_s = time.time()
        self._writer = Writer(JobId.parse(settings.job_id), Epoch(0), AttemptNumber(0), uuid.uuid4().hex)
        self._chunks = ChunkStore(objects, settings.job_id)
        self._sending = ImportChunks(self._chunks)
        self._tensors: dict[str, TensorRecord] = {}

    def from_dcp(self, source: DcpSource) -> Manifest:
        only = self._settings.only
        found = source.values(only)
        bare = MODEL not in found and OPTIMIZER not in found and not only
        values = {MODEL: found} if bare else found
        skeleton = self._skeleton({**values, **({OPTIMIZER: _by_name(values[OPTIMIZER])} if OPTIMIZER in values else {})})
        chain = self._claimed()
        for path, tensor in source.tensors(only):
            name = _name((MODEL, *path) if bare else path)
            self._add(name, tensor)
        return self._committed(chain, skeleton)

    def from_hf(self, source: HfSource) -> Manifest:
        values = {part: value for part, value in source.values().items() if not self._settings.only or part in self._settings.only}
        skeleton = self._skeleton(values)
        chain = self._claimed()
        for key, empty in values.get(MODEL, {}).items():
            pieces = []
            for start, rows in source.pieces(key):
                offsets = (start, *[0] * (empty.dim() - 1)) if empty.dim() else ()
                span = self._sending.add(tensor_bytes(rows))
                pieces.append(Piece(offsets=offsets, sizes=tuple(rows.shape), span=span))
            self._tensors[_name((MODEL, key))] = _record(empty, pieces)
        return self._committed(chain, skeleton)

    def _skeleton(self, values: Mapping[str, Any]) -> bytes:
        if not values:
            raise InvalidStateError(f"{self._settings.source} holds none of {sorted(self._settings.only)}")
        return take_apart(values).skeleton

    def _claimed(self) -> CommitChain:
        """The chain of the id, once it is known to be free."""
        settings = self._settings
        owned(self._objects, settings.job_id, settings.project, 0)
        chain = CommitChain(self._objects, self._writer)
        try:
            chain.claim(time.time())
        except StaleEpochError as error:
            raise InvalidStateError(f"{settings.job_id} is a job that ran; import under another id, and submit with --from") from error
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
        files = sorted((self._folder / RANKS).glob("*.pt")) if self._facts else []
        contents = [path.read_bytes() for path in files]
        for path, content in zip(files, contents, strict=True):
            try:
                unpack(content)
            except Exception as error:
                raise InvalidStateError(f"{path} is no state of a rank ({type(error).__name__})") from error
        return contents or [pack({}, "own state")]

    def _committed(self, chain: CommitChain, skeleton: bytes) -> Manifest:
        structure = self._sending.add(skeleton)
        ranks = tuple(self._sending.add(content) for content in self._own_states())
        chunks = self._sending.close()
        if time.time() - self._began_s > GRACE_S / 2:
            raise SaveFailedError(f"{self._settings.source}: the import took more than half of retention's grace: not committed; try again")
        manifest, _ = chain.append(lambda n: self._manifest(n, structure, ranks, chunks))
        return manifest

    def _manifest(self, commit: int, structure: Span, ranks: tuple[Span, ...], chunks: Any) -> Manifest:
        step = self._facts.get("step", 0) if self._settings.step is None else self._settings.step
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
            metrics=self._facts.get("metrics", {}),
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


def _by_name(optimizer: Any) -> Any:
    """The state of an optimizer in Trainhouse's form, of that or as torch's `get_optimizer_state_dict` gives it: settings by parameter.

    DCP folders hold no empty dictionaries, so that these are put back.
    """
    groups = optimizer.get("param_groups") if isinstance(optimizer, Mapping) else None
    if isinstance(groups, list) and all(isinstance(name, str) for group in groups for name in group.get("params", ())):
        groups = {name: {k: v for k, v in group.items() if k != "params"} for group in groups for name in group["params"]}
    return {"state": {}, "tied": {}, **optimizer, "param_groups": groups} if isinstance(groups, dict) else optimizer


def _provenance(folder: Path) -> dict[str, Any]:
    """Facts that an export of Trainhouse left beside it; none for other folders."""
    try:
        found = orjson.loads((folder / PROVENANCE).read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return {}
    return found if isinstance(found, dict) and isinstance(found.get("step"), int) and isinstance(found.get("metrics"), dict) else {}

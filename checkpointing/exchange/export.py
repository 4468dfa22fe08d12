"""Export of one checkpoint into a format that other programs read, with its provenance beside it.

Holds: memory is bounded (`file_writer.MEMORY_BYTES`, beside the names and shapes of tensors). A folder appears under its name only when it
is complete, `trainhouse.json` last; what a killed export left lies beside it under another name, and the next one removes it. In an object
store `trainhouse.json` is written last, and a prefix without it is not complete.
Never: exports into a folder that has something in it.
"""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Any

import orjson

from trainhouse.checkpointing.chain.chunks import ChunkStore
from trainhouse.checkpointing.chain.manifest import Manifest
from trainhouse.checkpointing.errors import ExportError, InvalidStateError
from trainhouse.checkpointing.exchange import dcp_format, safetensors_format, torch_format
from trainhouse.checkpointing.exchange.contents import Contents, StoredTensor
from trainhouse.checkpointing.exchange.file_plan import FilePlan
from trainhouse.checkpointing.exchange.file_writer import FileWriter, WrittenFile
from trainhouse.checkpointing.exchange.new_folder import disk_errors, free_place, partial_folder, sync_folder
from trainhouse.checkpointing.state.state_tree import is_mark
from trainhouse.checkpointing.stores.s3 import S3ObjectStore

PROVENANCE = "trainhouse.json"
RANKS = "ranks"
SHARD_BYTES = 5 * 10**9
CONFIG_PARTS = ("config", "extra.config")
"""Parts of a state that are a model's configuration."""


class Format(StrEnum):
    """Formats of an export."""

    SAFETENSORS = "safetensors"
    HF = "hf"
    DCP = "dcp"
    TORCH = "torch"


@dataclass(frozen=True)
class Plan:
    """Files of an export, and what of the checkpoint is in none of them."""

    files: list[FilePlan]
    left_out: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Exported:
    """A finished export. `left_out`: parts and values of the checkpoint that the format does not hold."""

    where: str
    files: tuple[WrittenFile, ...]
    left_out: tuple[str, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of all files but the provenance."""
        return sum(file.size_bytes for file in self.files)


def plan_of(contents: Contents, kind: Format, shard_bytes: int = SHARD_BYTES, facts: Mapping[str, str] | None = None) -> Plan:
    """Plans the files. `facts`: texts for the metadata of safetensors files. Raises InvalidStateError for a state that the format cannot
    hold."""
    if kind is Format.SAFETENSORS:
        flat = contents.flat()
        return Plan(safetensors_format.plans(flat.tensors, shard_bytes, facts or {}), [*flat.others, *_ranks_left_out(contents)])
    if kind is Format.HF:
        return _hf(contents, shard_bytes, facts or {})
    if kind is Format.DCP:
        files = dcp_format.plans(contents.flat(whole=True), shard_bytes)
        return Plan([*_ranks(contents), *files])
    file = FilePlan("checkpoint.pt")
    torch_format.append_value(file, contents.nested())
    return Plan([*_ranks(contents), file])


def export_to_folder(manifest: Manifest, chunks: ChunkStore, plan: Plan, kind: Format, out: Path) -> Exported:
    """Writes the files into a new folder. Raises DamagedError, ExportError (folder in use, no space), ObjectStoreUnavailableError."""
    with disk_errors(out):
        out = free_place(out)
    with disk_errors(out), partial_folder(out) as folder:
        writer = FileWriter(manifest, chunks)
        written = tuple(writer.write(file, folder) for file in plan.files)
        with (folder / PROVENANCE).open("xb") as file:
            file.write(provenance(manifest, kind, written, plan.left_out))
            file.flush()
            os.fsync(file.fileno())
        folder.rename(out)
        sync_folder(out.parent)
    return Exported(str(out), written, tuple(plan.left_out))


def export_to_store(
    manifest: Manifest, chunks: ChunkStore, plan: Plan, kind: Format, target: S3ObjectStore, prefix: str, spool: Path
) -> Exported:
    """Writes the files under a prefix of an object store, one after the other through a folder on disk. Raises as `export_to_folder`."""
    where = target.uri(prefix)
    if next(iter(target.list(prefix)), None) is not None:
        raise ExportError(f"{where} has objects under it; name another prefix, or remove them")
    writer, written = FileWriter(manifest, chunks), []
    with disk_errors(spool):
        for file in plan.files:
            written.append(writer.write(file, spool))
            path = spool / file.name
            with path.open("rb") as content:
                target.put_file(f"{prefix}{file.name}", content)
            path.unlink()
    target.put(f"{prefix}{PROVENANCE}", provenance(manifest, kind, tuple(written), plan.left_out))
    return Exported(where, tuple(written), tuple(plan.left_out))


def provenance(
    manifest: Manifest | None, kind: Format, files: tuple[WrittenFile, ...], left_out: list[str], more: Mapping[str, Any] | None = None
) -> bytes:
    """The facts of an export, as JSON: the checkpoint's from its manifest, if it is of one, the files with their hashes, and `more`."""
    facts: dict[str, Any] = {}
    if manifest is not None:
        without = {"structure", "ranks", "tensors", "chunks", "kind", "format", "writer", "bytes_new"}
        facts = {
            "checkpoint": f"{manifest.job_id}@{manifest.commit}",
            **manifest.model_dump(mode="json", exclude=without),
            "tensors": len(manifest.tensors),
            "chunks": sorted({chunk.sha256 for chunk in manifest.chunks}),
        }
    return orjson.dumps(
        {
            "trainhouse": version("trainhouse"),
            "format": kind.value,
            **facts,
            "files": [asdict(file) for file in files],
            "left_out": left_out,
            **(more or {}),
        },
        option=orjson.OPT_INDENT_2,
    )


def _hf(contents: Contents, shard_bytes: int, facts: Mapping[str, str]) -> Plan:
    """Weights of the model, and its configuration where one is tracked."""
    nested = contents.nested()
    where = f"{contents.manifest.job_id}@{contents.manifest.commit}"
    weights = nested.get("model")
    if not isinstance(weights, dict):
        raise InvalidStateError(f"{where} holds {contents.parts}, and no model; use --format safetensors, dcp or torch")
    tensors = {str(name): value for name, value in weights.items() if isinstance(value, StoredTensor)}
    if not tensors:
        raise InvalidStateError(f"the model of {where} is not a dictionary of tensors; use --format dcp or torch")
    files = safetensors_format.plans(tensors, shard_bytes, facts)
    config = next((part for part in CONFIG_PARTS if part in nested and _is_plain(nested[part])), None)
    if config is not None:
        plan = FilePlan("config.json")
        plan.append(json.dumps(nested[config], indent=2).encode())  # integers beyond 64 bits, too
        files.insert(0, plan)
    left_out = [part for part in contents.parts if part not in ("model", config)]
    left_out += [f"model.{name}" for name in weights if name not in tensors]
    return Plan(
        files,
        [*left_out, *(["config.json: no configuration that JSON holds is tracked"] if config is None else []), *_ranks_left_out(contents)],
    )


def _ranks(contents: Contents) -> list[FilePlan]:
    """A file for each rank's own state, as it was saved: `torch.load` reads it."""
    plans = []
    for rank, span in enumerate(contents.manifest.ranks):
        plan = FilePlan(f"{RANKS}/{rank:05d}.pt")
        plan.append_span(f"the own state of rank {rank}", span)
        plans.append(plan)
    return plans


def _ranks_left_out(contents: Contents) -> list[str]:
    return [f"own states of {len(contents.manifest.ranks)} ranks (random generators, loaders)"]


def _is_plain(value: Any) -> bool:
    """True for what JSON holds."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(inner) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return not is_mark(value) and all(map(_is_plain, value))
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, str | int)

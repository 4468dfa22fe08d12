"""Checks of a DCP folder's metadata, before memory is taken for what it describes."""

import math
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, TensorStorageMetadata

from trainhouse.checkpointing.errors import InvalidStateError
from trainhouse.checkpointing.exchange.coverage import misfit
from trainhouse.checkpointing.exchange.dcp_format import METADATA
from trainhouse.checkpointing.exchange.source_folder import inside

MAX_PLACE = 2**20
"""Largest place in a list that a path may name: torch fills lists up to it."""
Keys = tuple[str | int, ...]


def paths_of(folder: Path, described: Metadata) -> dict[str, Keys]:
    """The path of each name in the nested state. Raises InvalidStateError."""
    paths = {} if described.planner_data is None else described.planner_data
    if not isinstance(paths, dict):
        raise InvalidStateError(f"{folder / METADATA}: its planner_data is a {type(paths).__name__}, not the paths of names; save it anew")
    found = {name: paths.get(name, (name,)) for name in described.state_dict_metadata}
    for name, path in found.items():
        if not isinstance(path, tuple) or not path or not all(map(_is_key, path)) or not isinstance(path[0], str):
            raise InvalidStateError(f"{folder / METADATA}: the path of {str(name)[:100]} is {str(path)[:100]}, which is none; save it anew")
    return found


def check_metadata(folder: Path, described: Metadata) -> None:
    """Raises InvalidStateError unless pieces fill every tensor exactly once, and files of the folder can hold them."""
    if not described.state_dict_metadata:
        raise InvalidStateError(f"{folder / METADATA} describes no tensors; nothing is imported")
    stored = described.storage_data
    if not isinstance(stored, dict) or not all(isinstance(info, _StorageInfo) for info in stored.values()):
        raise InvalidStateError(f"{folder / METADATA} does not say where its values lie; save it anew with dcp.save")
    files = {info.relative_path: inside(folder, info.relative_path) for info in stored.values()}
    size_bytes = {name: path.stat().st_size if path.is_file() else 0 for name, path in files.items()}
    for name, tensor in described.state_dict_metadata.items():
        if isinstance(tensor, TensorStorageMetadata):
            if problem := misfit(name, tensor):
                raise InvalidStateError(
                    f"{folder / METADATA}: the pieces of {name} do not fill it exactly once ({problem[:300]}); save it anew"
                )
            infos = [stored[index] for chunk in tensor.chunks if (index := MetadataIndex(name, chunk.offsets)) in stored]
            packed = any(info.transform_descriptors for info in infos)
            held = sum(size_bytes[file] for file in {info.relative_path for info in infos})
            needed = math.prod(tensor.size) * tensor.properties.dtype.itemsize
            if needed > held and not packed:
                raise InvalidStateError(
                    f"{folder / METADATA}: {name} of {tuple(tensor.size)} takes {needed} bytes, and its files hold {held}: not whole"
                )


def _is_key(key: Any) -> bool:
    return isinstance(key, str) or (type(key) is int and 0 <= key < MAX_PLACE)

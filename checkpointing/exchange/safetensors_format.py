"""Plans of safetensors files: a JSON header and the tensors after it, sharded with an index where they are large, as Hugging Face does.

The layout: https://huggingface.co/docs/safetensors. Holds: tensors lie without gaps, those of larger elements first.
"""

import struct
from collections.abc import Mapping

import orjson

from trainhouse.checkpointing.errors import InvalidStateError
from trainhouse.checkpointing.exchange.contents import StoredTensor
from trainhouse.checkpointing.exchange.file_plan import FilePlan

INDEX = "model.safetensors.index.json"
DTYPES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "uint16": "U16",
    "int16": "I16",
    "uint32": "U32",
    "int32": "I32",
    "uint64": "U64",
    "int64": "I64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "complex64": "C64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0",
}
"""Names by torch's."""
_LENGTH = struct.Struct("<Q")


def plans(tensors: Mapping[str, StoredTensor], shard_bytes: int, facts: Mapping[str, str]) -> list[FilePlan]:
    """The files for these tensors, the index last where there are several. `facts`: texts for the metadata of each file.

    Raises InvalidStateError for a dtype that it cannot hold.
    """
    for name, tensor in tensors.items():
        if tensor.record.dtype not in DTYPES:
            raise InvalidStateError(f"{name} is of {tensor.record.dtype}, which safetensors files cannot hold; use --format dcp or torch")
    shards = _shards(tensors, shard_bytes)
    if len(shards) == 1:
        return [_plan("model.safetensors", shards[0], facts)]
    names = [f"model-{number + 1:05d}-of-{len(shards):05d}.safetensors" for number in range(len(shards))]
    weights = {tensor: name for name, shard in zip(names, shards, strict=True) for tensor in shard}
    total = sum(tensor.size_bytes for tensor in tensors.values())
    index = FilePlan(INDEX)
    index.append(orjson.dumps({"metadata": {"total_size": total}, "weight_map": weights}, option=orjson.OPT_INDENT_2))
    return [*(_plan(name, shard, facts) for name, shard in zip(names, shards, strict=True)), index]


def _shards(tensors: Mapping[str, StoredTensor], shard_bytes: int) -> list[dict[str, StoredTensor]]:
    shards: list[dict[str, StoredTensor]] = [{}]
    size = 0
    for name, tensor in tensors.items():
        if shards[-1] and size + tensor.size_bytes > shard_bytes:
            shards.append({})
            size = 0
        shards[-1][name] = tensor
        size += tensor.size_bytes
    return shards


def _plan(name: str, tensors: Mapping[str, StoredTensor], facts: Mapping[str, str]) -> FilePlan:
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].item_bytes, item[0]))
    header: dict[str, object] = {"__metadata__": {"format": "pt", **facts}}
    offset = 0
    for key, tensor in ordered:
        end = offset + tensor.size_bytes
        header[key] = {"dtype": DTYPES[tensor.record.dtype], "shape": tensor.record.shape, "data_offsets": (offset, end)}
        offset = end
    content = orjson.dumps(header)
    content += b" " * (-len(content) % 8)
    plan = FilePlan(name)
    plan.append(_LENGTH.pack(len(content)) + content)
    for _, tensor in ordered:
        plan.append_tensor(tensor.name, tensor.record, tensor.item_bytes)
    return plan

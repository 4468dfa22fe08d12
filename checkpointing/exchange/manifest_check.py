"""Check that a manifest's numbers fit each other, before files are made of them.

Holds: pieces of a sound manifest lie within their tensor, cover it without overlap, and are as long as the bytes that they name.
"""

from trainhouse.checkpointing.chain.manifest import Manifest, Span, TensorRecord
from trainhouse.checkpointing.errors import DamagedError
from trainhouse.checkpointing.exchange.coverage import misfit
from trainhouse.checkpointing.state.dcp_storage import check_piece, tensor_metadata_of


def check_manifest(manifest: Manifest) -> None:
    """Raises DamagedError that names the tensor, or the rank."""
    spans = {"structure": manifest.structure, **{f"own state of rank {rank}": span for rank, span in enumerate(manifest.ranks)}}
    where = f"{manifest.job_id}@{manifest.commit}"
    for name, span in spans.items():
        if problem := _misplaced(manifest, span):
            raise DamagedError(f"{where}: {name}: {problem}")
    for name, record in manifest.tensors.items():
        try:
            _check_tensor(manifest, name, record)
        except DamagedError as error:
            raise DamagedError(f"{where}: {name}: {error}") from error


def _check_tensor(manifest: Manifest, name: str, record: TensorRecord) -> None:
    if min(record.shape, default=0) < 0:
        raise DamagedError(f"it cannot have the shape {record.shape}")
    for piece in record.pieces:
        if problem := _misplaced(manifest, piece.span):
            raise DamagedError(problem)
        check_piece(record, piece, manifest.chunks[piece.span.chunk].size_bytes)
    if problem := misfit(name, tensor_metadata_of(record)):
        raise DamagedError(problem)


def _misplaced(manifest: Manifest, span: Span) -> str | None:
    if span.chunk >= len(manifest.chunks):
        return f"it is in chunk {span.chunk}, of {len(manifest.chunks)}"
    size_bytes = manifest.chunks[span.chunk].size_bytes
    if span.offset + span.size_bytes > size_bytes:
        return f"{span.size_bytes} bytes at {span.offset} cannot be in a chunk of {size_bytes}"
    return None

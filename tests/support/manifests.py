"""Manifests of checkpoints without tensors, for tests of the chain and of retention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainhouse.checkpointing.chain.commits import Writer
from trainhouse.checkpointing.chain.manifest import Chunk, Manifest, Span

SPAN = Span(chunk=0, offset=0, size_bytes=0)


def bare_manifest(writer: Writer, commit: int, metrics: Mapping[str, float], chunks: Sequence[Chunk] = ()) -> Manifest:
    """The manifest of one rank whose step is its number in the chain."""
    return Manifest(
        job_id=writer.job_id,
        commit=commit,
        epoch=writer.epoch,
        attempt=writer.attempt,
        writer=writer.writer,
        created_at_s=0,
        step=commit,
        world_size=1,
        spec_hash="s",
        structure=SPAN,
        ranks=(SPAN,),
        tensors={},
        chunks=tuple(chunks),
        bytes_new=0,
        metrics=dict(metrics),
    )

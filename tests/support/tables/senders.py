"""Senders for tables that are made without a bus."""

from __future__ import annotations

from trainhouse.projections.ingest.node_keys import NodeKeys
from trainhouse.projections.ingest.placements import Placements
from trainhouse.projections.ingest.senders import Senders


def senders_of(keys: NodeKeys | None = None) -> Senders:
    """Returns senders with keys as given and no placements; unsigned records count."""
    return Senders(keys or NodeKeys(), Placements(lambda _: ()))

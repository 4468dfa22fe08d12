"""Report of this node's isolation: the agent's log, and a file that `trainhouse up` and `ps` read.

Holds: said at every registration, logged once. Details are in the registration, for `trainhouse nodes NODE`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from trainhouse.workers.agent.atomic_files import write_atomically
from trainhouse.workers.untrusted import text_or_empty

if TYPE_CHECKING:
    from trainhouse.events.model.node import NodeIsolation

FILE = "isolation.json"
NAMESPACES = "namespaces"


class IsolationReporter:
    """Called as what it wraps, which says how a node confines jobs."""

    def __init__(self, folder: Path, node_id: str, report: Callable[[], NodeIsolation]) -> None:
        self._folder = folder
        self._node_id = node_id
        self._report = report
        self._logged = False

    def __call__(self) -> NodeIsolation:
        """Blocks the first time, while layers are tried."""
        found = self._report()
        if not self._logged:
            import structlog  # `ps` reads the file without it

            log = structlog.get_logger(__name__)
            self._logged = True
            warning = lacking(self._node_id, found)
            if warning:
                log.warning(warning, lacking=found.reason or _reasons(found))
            else:
                log.info("jobs are isolated", node=self._node_id, lacking=_reasons(found))
            try:
                write_atomically(self._folder / FILE, orjson.dumps({"text": warning}), durable=False)
            except OSError as error:
                log.warning("`trainhouse ps` cannot say how jobs are isolated", error=str(error))
        return found


def lacking(node_id: str, isolation: NodeIsolation) -> str:
    """One line for a person; empty where jobs are isolated whole. Pure."""
    if isolation.complete:
        return ""
    if not isolation.layers:
        return f"jobs are not isolated on node {node_id}: the setting `isolation` is {isolation.mode}"
    missing = ", ".join(f"no {layer.name}" for layer in isolation.layers if not layer.on)
    without_view = any(layer.name == NAMESPACES and not layer.on for layer in isolation.layers)
    return f"jobs are {'not isolated' if without_view else 'isolated in part'} on node {node_id}: {missing}"


def last_warning(folder: Path) -> str:
    """Reads the last report of the agent of this folder; empty where jobs are isolated whole, or there is none."""
    try:
        found = orjson.loads(text_or_empty(folder / FILE))
    except orjson.JSONDecodeError:
        return ""
    text = found.get("text") if isinstance(found, dict) else None
    return text if isinstance(text, str) else ""


def _reasons(isolation: NodeIsolation) -> str:
    return "; ".join(f"{layer.name}: {layer.reason}" for layer in isolation.layers if not layer.on)

"""The fleet of a simulation: `80x8`, `16x8:V100,64x8:A100`, or a CSV file of nodes or of pools.

Holds: node ids differ; a node has at least one GPU (others are left out, counted).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainhouse.scheduler.sim.table import FileError, Row, Table, read_table
from trainhouse.scheduler.sim.types import SimNode

NODE_COLUMNS = ("node_id", "gpus")
NODE_OPTIONAL = (
    *("gpu_type", "rack", "switch", "pool", "cpu_milli", "memory_mib", "memory_gib"),
    *("pod", "aggregation", "core", "spot"),
)
POOL_COLUMNS = ("pool", "nodes", "gpus_per_node")
MAX_NODES = 100_000
MAX_NODE_GPUS = 1024
GROUP = re.compile(r"(\d+)x(\d+)(?::([^,:]+))?")


@dataclass(frozen=True, slots=True)
class Fleet:
    """The nodes, and what there is to say of them."""

    nodes: tuple[SimNode, ...]
    notes: tuple[str, ...] = ()

    @property
    def gpus(self) -> int:
        """All of them."""
        return sum(n.gpus for n in self.nodes)

    @property
    def name(self) -> str:
        """For titles."""
        return f"{len(self.nodes):,} nodes, {self.gpus:,} GPUs"


def read_fleet(text: str, gpus_per_node: int | None = None) -> Fleet:
    """A fleet from what `--nodes` says. `gpus_per_node`: for files that leave that empty. Raises FileError."""
    groups = text.replace(" ", "").split(",")
    if all(GROUP.fullmatch(g) for g in groups):
        return _of_groups(text, groups)
    path = Path(text)
    if not path.is_file():
        raise FileError(path, "is no file, and no fleet such as 80x8 (nodes x GPUs of each) or 16x8:V100,64x8:A100")
    columns = read_table(path, ()).columns
    nodes = _of_pools(path) if "gpus_per_node" in columns else _of_nodes(path, gpus_per_node)
    return _checked(path, nodes)


def _of_groups(text: str, groups: list[str]) -> Fleet:
    found = [GROUP.fullmatch(g) for g in groups]
    wanted = [(int(m[1]), int(m[2]), m[3] or "") for m in found if m is not None]
    total = sum(count for count, _, _ in wanted)
    if not all(count and 0 < gpus <= MAX_NODE_GPUS for count, gpus, _ in wanted) or total > MAX_NODES:
        raise FileError(Path(text), f"a fleet has 1 to {MAX_NODES:,} nodes of 1 to {MAX_NODE_GPUS:,} GPUs each")
    width = len(str(total - 1))
    kinds = [(gpus, kind) for count, gpus, kind in wanted for _ in range(count)]
    return Fleet(tuple(SimNode(f"n{n:0{width}}", gpus, kind) for n, (gpus, kind) in enumerate(kinds)))


def _of_nodes(path: Path, gpus_per_node: int | None) -> list[SimNode]:
    table = read_table(path, NODE_COLUMNS, NODE_OPTIONAL)
    lines: dict[str, int] = {}
    nodes = []
    for row in _bounded(table):
        node_id = row.name("node_id")
        earlier = lines.setdefault(node_id, row.line)
        if earlier != row.line:
            raise FileError(path, f"{node_id!r} is already the node of line {earlier}; ids must differ", row.line, "node_id")
        nodes.append(_node(row, gpus_per_node))
    return nodes


def _node(row: Row, gpus_per_node: int | None) -> SimNode:
    if not row.text("gpus") and gpus_per_node is None:
        raise FileError(row.path, "the file does not say how many GPUs a node has; say it with --gpus-per-node 8", row.line, "gpus")
    return SimNode(
        node_id=row.name("node_id"),
        gpus=row.whole("gpus", 0, MAX_NODE_GPUS) if row.text("gpus") else gpus_per_node or 0,
        gpu_type=row.text("gpu_type"),
        rack=row.text("rack"),
        switch=row.text("switch"),
        pool=row.text("pool"),
        cpu_milli=row.whole_or("cpu_milli", 0),
        memory_mib=row.whole_or("memory_mib", 0),
        memory_gib=row.whole_or("memory_gib", 0),
        pod=row.text("pod") or row.text("aggregation"),
        spot=row.yes("spot"),
    )


def _of_pools(path: Path) -> list[SimNode]:
    nodes: list[SimNode] = []
    for row in _bounded(read_table(path, POOL_COLUMNS)):
        pool, gpus = row.name("pool"), row.whole("gpus_per_node", 1, MAX_NODE_GPUS)
        count = row.whole("nodes", 1, MAX_NODES)
        nodes.extend(SimNode(f"{pool}-{n:0{len(str(count - 1))}}", gpus, pool=pool) for n in range(count))
    return nodes


def _bounded(table: Table) -> Iterator[Row]:
    for number, row in enumerate(table.rows):
        if number >= MAX_NODES:
            raise FileError(table.path, f"more than {MAX_NODES:,} nodes", row.line)
        yield row


def _checked(path: Path, nodes: list[SimNode]) -> Fleet:
    kept = tuple(n for n in nodes if n.gpus)
    if not kept:
        raise FileError(path, "no node has a GPU")
    if len(kept) > MAX_NODES:
        raise FileError(path, f"{len(kept):,} nodes; at most {MAX_NODES:,}")
    ids = {n.node_id for n in kept}
    if len(ids) != len(kept):
        raise FileError(path, "a pool is named twice; keep one row of it")
    bare = len(nodes) - len(kept)
    return Fleet(kept, (f"left out {bare:,} nodes without a GPU",) if bare else ())

"""Shapes for tests and benches."""

from trainhouse.scheduler.core.cluster.shape import Block, Shape


def simple(pool: str, ranks: int, device_type: str = "", **more: object) -> Shape:
    """A gang of `ranks` equal ranks, of one device type or any."""
    return Shape(pool, (Block(ranks, (device_type,) if device_type else ()),), **more)  # type: ignore[arg-type]

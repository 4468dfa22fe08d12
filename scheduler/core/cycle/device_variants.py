"""A gang that takes any device type, as gangs of each type that could serve it: where a team's quota stops one type, another may do.

Holds: a placement of a variant is one of the gang itself; variants come in the order of their types.
Never: counts what is held.
"""

from dataclasses import replace

from trainhouse.scheduler.core.cluster.shape import Shape
from trainhouse.scheduler.core.cycle.book import Book


def variants(book: Book, shape: Shape) -> tuple[Shape, ...]:
    """The gang by type; empty where its type is chosen already, where there is one only, or where it has roles."""
    if len(shape.blocks) != 1 or len(shape.blocks[0].types) == 1:
        return ()
    (needs,) = book.cluster.layout.plan(shape).needs
    types = sorted({need.device_type for need in needs})
    return tuple(replace(shape, blocks=(replace(shape.blocks[0], types=(t,)),)) for t in types)

"""Assignment of a placement's ranks to their needs: for the cpus and memory that a gang holds of each node.

Holds: stretches come in the order of ranks and cover all of them.
"""

from trainhouse.scheduler.core.cluster.shape import Block, Placement


def by_block(placement: Placement, blocks: tuple[Block, ...]) -> list[tuple[int, Block, int]]:
    """(node, block, ranks) for each stretch of ranks on one node with one block's needs."""
    out: list[tuple[int, Block, int]] = []
    at, left = 0, blocks[0].ranks
    for part in placement:
        ranks = part.ranks
        while ranks:
            if not left and at + 1 < len(blocks):
                at += 1
                left = blocks[at].ranks
                continue
            here = min(ranks, left) if left else ranks
            out.append((part.node, blocks[at], here))
            ranks, left = ranks - here, max(0, left - here)
    return out

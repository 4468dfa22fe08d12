"""On which nodes a gang goes, and how many ranks on each, when only numbers of free devices matter.

Holds: an answer is the whole gang or None; each node appears once; nothing is changed. All functions see nodes through `by`:
`by[c]` is the mask of nodes that can take exactly c ranks.
"""

from collections.abc import Iterable, Sequence

from trainhouse.scheduler.core.cluster.free_index import count_in
from trainhouse.scheduler.core.cluster.topology import Domain, Level, Topology

Chosen = list[tuple[int, int]]
"""(node, ranks) in the order of ranks."""


def lowest(nodes: int) -> int:
    """The lowest index in a mask that is not empty."""
    return (nodes & -nodes).bit_length() - 1


def tightest(by: Sequence[int], ranks: int) -> tuple[int, int] | None:
    """The smallest number of free devices that suffices, and the mask of nodes with it."""
    for count in range(ranks, len(by)):
        if by[count]:
            return count, by[count]
    return None


def fewest_nodes(by: Sequence[int], nodes: int, ranks: int) -> int:
    """Returns the least number of these nodes that a gang needs; 0: they do not suffice."""
    needed, left = 0, ranks
    for count in range(len(by) - 1, 0, -1):
        found = by[count] & nodes
        if not found:
            continue
        here, want = found.bit_count(), -(-left // count)
        if here >= want:
            return needed + want
        needed, left = needed + here, left - here * count
    return 0


def spread(by: Sequence[int], nodes: int, ranks: int, unit: int = 1) -> Chosen | None:
    """A gang on the fewest of these nodes: equal ranks on each if it divides, else the emptiest ones and the tightest for what is left.

    `unit`: ranks that must stay together; all of `by` are multiples of it.
    """
    needed = fewest_nodes(by, nodes, ranks)
    if not needed:
        return None
    each, odd = divmod(ranks, needed)
    if not odd and each % unit == 0:
        even = _take_up(by, nodes, each, needed)
        if even is not None:
            return even
    return _take_down(by, nodes, ranks)


def _take_up(by: Sequence[int], nodes: int, each: int, needed: int) -> Chosen | None:
    """So many nodes with `each` ranks, the fullest first."""
    out: Chosen = []
    for count in range(each, len(by)):
        found = by[count] & nodes
        while found:
            low = found & -found
            out.append((low.bit_length() - 1, each))
            if len(out) == needed:
                return out
            found ^= low
    return None


def _take_down(by: Sequence[int], nodes: int, ranks: int) -> Chosen:
    """The emptiest nodes first; the last part goes on the tightest node that takes it. The nodes suffice."""
    out: Chosen = []
    left, rest = ranks, nodes
    for count in range(len(by) - 1, 0, -1):
        found = by[count] & rest
        while found and left > count:
            low = found & -found
            out.append((low.bit_length() - 1, count))
            found ^= low
            rest ^= low
            left -= count
        if found:
            break
    for count in range(left, len(by)):
        found = by[count] & rest
        if found:
            out.append((lowest(found), left))
            return out
    return out


def in_domains(
    by: Sequence[int], topology: Topology, ranks: int, rooms: Sequence[int], *, unit: int = 1, least: str = "", most: str = ""
) -> Chosen | None:
    """A gang of several nodes in the fewest and narrowest domains, in order of nearness; None: there is no room.

    `rooms` by domain number. `least`: the narrowest level that is worth anything to the gang ("": all are). `most`: the gang must not
    reach beyond one domain of this level ("": it may).
    """
    wide = topology.wide
    start = next((at for at, level in enumerate(wide) if level.name == least), 0)
    stop = next((at for at, level in enumerate(wide) if level.name == most), -1) + 1 if most else len(wide)
    nodes, at = -1, len(wide)
    for index in range(min(start, max(0, stop - 1)), stop):
        domains = wide[index].domains
        if most and index < stop - 1:
            domains = tuple(d for d in domains if topology.within(d, wide[stop - 1]))
        home = best_domain(by, domains, ranks, rooms)
        if home is not None:
            nodes, at = home.nodes, index
            break
    else:
        if most:
            return None
    for level in reversed(wide[start:at]):
        nodes = _fewest(by, level, nodes, ranks)
    chosen = spread(by, nodes, ranks, unit)
    return None if chosen is None else in_order(topology, chosen, unit)


def best_domain(by: Sequence[int], domains: Iterable[Domain], ranks: int, rooms: Sequence[int]) -> Domain | None:
    """The domain that takes the gang on the fewest nodes; of those the one with the least room; then the first."""
    fits = [(rooms[d.number], d.first, d) for d in domains if rooms[d.number] >= ranks]
    if not fits:
        return None
    fits.sort(key=lambda f: f[:2])
    top = next((c for c in range(len(by) - 1, 0, -1) if by[c]), 1)
    bound = -(-ranks // top)
    best, best_nodes = fits[0][2], 0
    for _, _, domain in fits:
        needed = fewest_nodes(by, domain.nodes, ranks)
        if needed == bound:
            return domain
        if needed and (not best_nodes or needed < best_nodes):
            best, best_nodes = domain, needed
    return best if best_nodes else None


def _fewest(by: Sequence[int], level: Level, nodes: int, ranks: int) -> int:
    """Returns those of `nodes` in the fewest domains of a level which together take the gang; all, if the level does not suffice."""
    found = sorted(((-count_in(by, d.nodes & nodes), d.first, d.nodes) for d in level.domains if d.nodes & nodes), key=lambda f: f[:2])
    union, left = 0, ranks
    for at, (room, _, inside) in enumerate(found):
        if -room >= left:
            last = min((f for f in found[at:] if -f[0] >= left), key=lambda f: (-f[0], f[1]))
            return (union | last[2]) & nodes
        union |= inside
        left += room
    return nodes


def in_order(topology: Topology, chosen: Chosen, unit: int = 1) -> Chosen:
    """Neighbours in rank on near nodes; a part that ends within a group comes last, so that no other group is cut."""
    if len(chosen) > 1:
        position = topology.position
        chosen.sort(key=lambda c: (c[1] % unit, position[c[0]]))
    return chosen


def consolidated(by: Sequence[int], empty: int, per_node: int, ranks: int) -> Chosen | None:
    """The rule that published simulators share: one node with room, the fullest; or wholly empty nodes and the emptiest other for the rest.

    `empty`: nodes with nothing taken, of `per_node` devices each. Lowest index on every tie.
    """
    if ranks <= per_node:
        found = tightest(by, ranks)
        return None if found is None else [(lowest(found[1]), ranks)]
    out: Chosen = []
    whole, rest = divmod(ranks, per_node)
    if empty.bit_count() < whole:
        return None
    taken = 0
    for _ in range(whole):
        low = empty & -empty
        out.append((low.bit_length() - 1, per_node))
        taken |= low
        empty ^= low
    if rest:
        for count in range(len(by) - 1, rest - 1, -1):
            found_last = by[count] & ~taken
            if found_last:
                out.append((lowest(found_last), rest))
                return out
        return None
    return out

"""Chance that can be repeated: a number drawn from a seed and names, the same in every run and whatever happens in between.

Holds: equal arguments give equal numbers. Never: keeps a state.
"""

import hashlib

_SCALE = float(1 << 53)


def draw(seed: int, *names: object) -> float:
    """A number in [0, 1), uniform over seeds and names."""
    text = "\x1f".join((str(seed), *map(str, names)))
    return (int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 11) / _SCALE


def pick(seed: int, count: int, *names: object) -> int:
    """Random integer in 0 … count - 1."""
    return min(count - 1, int(draw(seed, *names) * count))

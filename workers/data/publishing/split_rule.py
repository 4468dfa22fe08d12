"""Rule by which samples go to splits: by the hash of a key. Pure.

Holds: equal keys are in one split, whatever else is published with them; shares are exact fractions, so that every machine draws the
same lines.
"""

import hashlib
import re
from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from math import ceil
from typing import Final

import orjson

from trainhouse.events.model.dataset import MOST_SPLITS
from trainhouse.events.model.version_names import SPLIT_PATTERN
from trainhouse.workers.data.errors import InvalidDataError
from trainhouse.workers.data.publishing.bounded_files import is_utf_8

OF_SAMPLE: Final = "sample"
OF_FOLDER: Final = "folder"
# Few digits: the number of an exponent such as 1e-99999999 takes minutes to make.
_SHARE: Final = re.compile(r"[0-9]{1,18}/[0-9]{1,18}|(?:[0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})(?:[eE]-?[0-9]{1,2})?")
_HASH_BYTES: Final = 8
_ALL: Final = 1 << (8 * _HASH_BYTES)


@dataclass(frozen=True)
class SplitRule:
    """Shares of splits by name, and the key whose hash decides.

    `by`: `sample`, each sample by itself; `folder`, all samples of one folder together; else a column of the sample's `json`.
    """

    shares: tuple[tuple[str, Fraction], ...] = (("train", Fraction(1)),)
    by: str = OF_SAMPLE

    @classmethod
    def parse(cls, text: str, by: str = OF_SAMPLE) -> "SplitRule":
        """Reads `train=0.9,validation=0.1`. Raises InvalidDataError."""
        if not is_utf_8(by):
            raise InvalidDataError(f"splits by column {by!r}: its name is not in UTF-8")
        shares: dict[str, Fraction] = {}
        for part in text.split(","):
            name, _, share = part.strip().partition("=")
            try:
                value = Fraction(share) if _SHARE.fullmatch(share) else Fraction(0)
            except ZeroDivisionError:
                value = Fraction(0)
            if not re.fullmatch(SPLIT_PATTERN, name) or not 0 < value <= 1 or name in shares:
                raise InvalidDataError(f"split {part.strip()!r}: write each split once, with its share, as train=0.9,validation=0.1")
            shares[name] = value
        if len(shares) > MOST_SPLITS:
            raise InvalidDataError(f"splits {text[:80]}: {len(shares)} of them, at most {MOST_SPLITS} are taken")
        total = sum(shares.values())
        if total != 1:
            raise InvalidDataError(f"splits {text}: the shares make {float(total):g} together; they have to make 1")
        return cls(tuple(sorted(shares.items())), by)

    @property
    def names(self) -> tuple[str, ...]:
        """The splits, by name."""
        return tuple(name for name, _ in self.shares)

    @classmethod
    def of_json(cls, text: str) -> "SplitRule":
        """The rule of a manifest."""
        written = orjson.loads(text)
        return cls(tuple(sorted((name, Fraction(share)) for name, share in written["shares"].items())), written["by"])

    def canonical_json(self) -> str:
        """The rule as a manifest has it."""
        return orjson.dumps({"by": self.by, "shares": {n: str(s) for n, s in self.shares}}, option=orjson.OPT_SORT_KEYS).decode()

    def split_of(self, key: bytes) -> str:
        """The split that a key belongs to."""
        if len(self.shares) == 1:
            return self.shares[0][0]
        drawn = int.from_bytes(hashlib.sha256(b"split\0" + key).digest()[:_HASH_BYTES])
        return self.shares[bisect_right(self._lines, drawn)][0]

    @cached_property
    def _lines(self) -> list[int]:
        """The first hash that is no longer of each split."""
        return [ceil(reached * _ALL) for reached in accumulate(share for _, share in self.shares)]

"""Data shard named in a rank's error text."""

import re
from collections.abc import Sequence
from typing import Final

_URI: Final = re.compile(r"(?:s3|gs|az|hf|https?|hdfs)://[^\s'\"<>()\[\],]+")
_FILE: Final = re.compile(
    r"[\w./=@+-]*[\w-]\.(?:tar(?:\.gz|\.zst)?|tgz|parquet|arrow|feather|mds(?:\.zstd?)?|jsonl?(?:\.gz|\.zst)?|npy|npz|bin|idx|h5|hdf5|tfrecords?|"
    r"zst|gz|zip|lmdb|csv|txt|jpe?g|png|webp|flac|wav|mp3|mp4)\b"
)


def shard_in(text: str, known: Sequence[str] = ()) -> str | None:
    """The last shard that a text names: one that is known, or a URI, or a file that looks like data."""
    for shard in known:
        if shard and shard in text:
            return shard
    for pattern in (_URI, _FILE):
        found = pattern.findall(text)
        if found:
            return str(found[-1]).rstrip(".:,;")
    return None

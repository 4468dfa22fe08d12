"""WebDataset and MDS over the samples of the bench `loader_shards`: python webdataset|mds FILE OFFSETS SHARDS MDS BATCH WORKERS BATCHES."""

import json
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.bench.peers.stateful_loader import as_list, samples_per_s


def endless(loader: Any) -> Iterator[Any]:
    """Pass after pass."""
    while True:
        yield from loader


def webdataset_loader(shards: Path, batch: int, workers: int) -> Any:
    """WebDataset's usual pipeline: shards in shuffled order, a buffer of 1,000 samples."""
    import webdataset

    files = sorted(map(str, shards.glob("*.tar")))
    dataset = webdataset.WebDataset(files, shardshuffle=len(files)).shuffle(1000).batched(batch, collation_fn=as_list, partial=False)
    return webdataset.WebLoader(dataset, batch_size=None, num_workers=workers)


def mds_loader(file: Path, offsets: Path, folder: Path, batch: int, workers: int) -> Any:
    """MDS written from the same samples, shuffled as it is by default."""
    from array import array

    from streaming import MDSWriter, StreamingDataset
    from torch.utils.data import DataLoader

    ends = array("q")
    ends.frombytes(offsets.read_bytes())
    with MDSWriter(out=str(folder), columns={"bin": "bytes"}) as writer, file.open("rb") as data:
        for first, after in pairwise(ends):
            writer.write({"bin": data.read(after - first)})
    dataset = StreamingDataset(local=str(folder), shuffle=True, batch_size=batch)
    return DataLoader(dataset, batch_size=batch, num_workers=workers, collate_fn=as_list, persistent_workers=True)


def main() -> None:
    kind, file, offsets, shards, mds, *numbers = sys.argv[1:]
    batch, workers, batches = map(int, numbers)
    if kind == "webdataset":
        loader = webdataset_loader(Path(shards), batch, workers)
    else:
        loader = mds_loader(Path(file), Path(offsets), Path(mds), batch, workers)
    print(json.dumps({"samples_per_s": samples_per_s(endless(loader), batches, batch)}))


if __name__ == "__main__":
    main()

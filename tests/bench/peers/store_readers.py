"""WebDataset and MDS off an S3 store, for the bench `loader_store`: python mds-write FILE OFFSETS FOLDER, or python webdataset|mds
SHARDS FOLDER BATCH WORKERS BATCHES, where SHARDS is a file of signed addresses, or the remote folder."""

import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.bench.peers.shard_readers import endless
from tests.bench.peers.stateful_loader import as_list, samples_per_s


def write_mds(file: str, offsets: str, folder: str) -> dict[str, float]:
    """Writes the samples in MDS's format."""
    from array import array

    from streaming import MDSWriter

    ends = array("q")
    ends.frombytes(Path(offsets).read_bytes())
    with MDSWriter(out=folder, columns={"bin": "bytes"}) as writer, open(file, "rb") as data:
        for first, after in pairwise(ends):
            writer.write({"bin": data.read(after - first)})
    return {}


def webdataset_loader(addresses: Path, batch: int, workers: int) -> Any:
    """WebDataset's usual pipeline, each shard through curl."""
    import webdataset

    shards = [f"pipe:curl -s -f '{line}'" for line in addresses.read_text().split()]
    dataset = webdataset.WebDataset(shards, shardshuffle=len(shards)).shuffle(1000).batched(batch, collation_fn=as_list, partial=False)
    return webdataset.WebLoader(dataset, batch_size=None, num_workers=workers)


def mds_loader(remote: str, folder: str, batch: int, workers: int) -> Any:
    """MDS, shuffled as it is by default, with an empty local folder."""
    from streaming import StreamingDataset
    from torch.utils.data import DataLoader

    dataset = StreamingDataset(remote=remote, local=folder, shuffle=True, batch_size=batch)
    return DataLoader(dataset, batch_size=batch, num_workers=workers, collate_fn=as_list, persistent_workers=True)


def main() -> None:
    kind, *arguments = sys.argv[1:]
    if kind == "mds-write":
        print(json.dumps(write_mds(*arguments)))
        return
    shards, folder, *numbers = arguments
    batch, workers, batches = map(int, numbers)
    loader = webdataset_loader(Path(shards), batch, workers) if kind == "webdataset" else mds_loader(shards, folder, batch, workers)
    print(json.dumps({"samples_per_s": samples_per_s(endless(loader), batches, batch)}))


if __name__ == "__main__":
    main()

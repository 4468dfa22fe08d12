"""Shards of a dataset: an open format that is read by WebDataset, and at any sample.

A shard is an uncompressed tar. Consecutive members `KEY.EXT` with the same KEY are one sample, EXT its fields in the order of their names
(WebDataset's rule: the key ends at the first dot after the last slash). The bytes follow from the samples alone: USTAR headers with
owner 0, mode 0644 and time 0; pax headers only for a name that USTAR cannot hold. Its name is the SHA-256 of these bytes, `<sha256>.tar`.

Beside it lies `<sha256>.idx`: the key of each sample, the place of each of its fields, and a hash and a checksum of the sample: SHA-256,
cut to 16 bytes, and CRC-32 of the bytes of the tar from the first field's first to the last field's last. All numbers are little-endian:

    magic "TRHIDX1\\n" | sha256 of the tar, 32 bytes | bytes of the tar, samples, fields, bytes of the extensions: u64 each
    first field of each sample, and the number of fields: u64 [samples + 1]
    first byte of each key among the keys, and their bytes: u64 [samples + 1]
    offset of each field in the tar: u64 [fields];  its length: u64 [fields]
    hash of each sample: 16 bytes [samples];  its CRC-32, which each read is compared with: u32 [samples]
    extension of each field, by number: u16 [fields]
    the extensions, each ended by a line feed: UTF-8
    the keys: UTF-8

Holds: one sample is read by one `pread` or one ranged GET, once its shard's index is in memory, or mapped from a local folder.
Never: writes where, when or by whom a shard was made into it.
"""

from trainhouse.workers.data.shards.index import ShardIndex
from trainhouse.workers.data.shards.sample import Sample, ShardFile, read_sample
from trainhouse.workers.data.shards.writer import Shard, ShardWriter

__all__ = ["Sample", "Shard", "ShardFile", "ShardIndex", "ShardWriter", "read_sample"]

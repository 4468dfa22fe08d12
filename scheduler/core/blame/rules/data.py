"""Lines that say that a piece of the data cannot be read. The group `shard` names it, where the line does."""

from typing import Final

from trainhouse.events import FailureCategory
from trainhouse.scheduler.core.blame.rules.rule import Rule

_A: Final = FailureCategory.DATA
_NAMED: Final = r"[^'\"\n]*['\"](?P<shard>[^'\"\n]+)['\"]"

DATA: Final = (
    Rule("data-image", r"cannot identify image file(?: <[^'\n]*| )'(?P<shard>[^'\n]+)'", _A, "an image cannot be read"),
    Rule(
        "data-image-unnamed",
        r"cannot identify image file|image file is truncated|broken (?:PNG|data stream)|broken JPEG|Corrupt JPEG data",
        _A,
        "an image cannot be read",
    ),
    Rule(
        "data-parquet",
        r"(?:Could not open Parquet input source|Error creating dataset\. Could not read schema from) '(?P<shard>[^'\n]+)'",
        _A,
        "a Parquet file cannot be read",
    ),
    Rule(
        "data-arrow",
        r"Parquet magic bytes not found|ArrowInvalid: (?:Not an Arrow file|.*corrupt|.*truncated|"
        r"Expected to (?:be able to )?read)|ArrowIOError: Invalid parquet",
        _A,
        "an Arrow or Parquet file cannot be read",
    ),
    Rule(
        "data-shard-index",
        r"Relative sample index \d+ is not present in the (?P<shard>\S+) file",
        _A,
        "a shard holds less than its index says",
    ),
    Rule("data-tar", r"tarfile\.ReadError|tarfile\.\w*HeaderError|unexpected end of data", _A, "an archive of data cannot be read"),
    Rule(
        "data-compressed",
        r"zlib\.error|BadGzipFile|CRC check failed|Compressed file ended before the end-of-stream|zstd decompress error|"
        r"zstd\.Error|Decompression error|lzma\.LZMAError|Invalid data stream|BadZipFile",
        _A,
        "compressed data cannot be read",
    ),
    Rule(
        "data-checksum",
        r"(?i:checksum (?:mismatch|failed|error)|hash mismatch|digest mismatch)",
        _A,
        "data are not what their checksum says",
    ),
    Rule("data-records", r"DataLossError|corrupted record at|truncated record at|Invalid TFRecord", _A, "a file of records is damaged"),
    Rule(
        "data-hdf5",
        r"truncated file: eof|file signature not found|Unable to (?:synchronously )?open file \(",
        _A,
        "an HDF5 file cannot be read",
    ),
    Rule(
        "data-numpy",
        r"No data left in file|cannot reshape array of size|Failed to interpret file .{0,200} as a pickle|magic string is not correct",
        _A,
        "an array's file cannot be read",
    ),
    Rule("data-json", r"JSONDecodeError", _A, "a piece of JSON cannot be read"),
    Rule("data-text", r"UnicodeDecodeError", _A, "a text is not in the encoding that was expected"),
    Rule(
        "data-media",
        r"moov atom not found|Invalid data found when processing input|LibsndfileError|Error opening .{0,200}: Format not recognised",
        _A,
        "a recording cannot be read",
    ),
    Rule(
        "data-decoder",
        r"\b\w*Decod(?:e|ing|er)\w*(?:Error|Exception)\b|cv2\.error: .{0,200}!_src\.empty\(\)|av\.error\.\w+|"
        r"Could not push packet to decoder",
        _A,
        "a sample cannot be decoded",
    ),
    Rule("data-pickle", r"UnpicklingError|EOFError: Ran out of input", _A, "a pickled sample cannot be read"),
    Rule(
        "data-database",
        r"lmdb\.(?:Corrupted|Page\w+|Bad\w+|Version\w+)?Error|database disk image is malformed|ChunkCorrupt\w*|"
        r"CorruptedFile\w*|Corrupt\w*Error",
        _A,
        "a database of samples is damaged",
    ),
)

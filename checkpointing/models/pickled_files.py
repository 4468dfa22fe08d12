"""Files that are pickles, or have some inside, by their names and beginnings: a pickle runs code where it is loaded.

Holds: what is looked at is bounded, however large a file is, or says that its parts are. NumPy's arrays are files of numbers, unless their
elements are objects.
Never: proves that a file has none: a pickle of an old protocol under another name begins as any text does, and nothing is unpacked.
"""

import re
import zipfile
import zlib
from typing import IO, Final

from trainhouse.checkpointing.errors import InvalidStateError

_PICKLES: Final = re.compile(
    r".*\.(?:pkl|pickle|cloudpickle|joblib|dill|pt|pth|ckpt|bin\.index)(?:\.(?:gz|bz2|xz|lzma|z|lz4|zst))?", re.IGNORECASE | re.DOTALL
)
_PICKLE_HEAD: Final = re.compile(rb"\x80[\x02-\x05]")
_ARRAY: Final = ".npy"
_ARRAYS: Final = ".npz"
_ARRAY_HEAD: Final = re.compile(rb"\x93NUMPY(?:\x01\x00(?P<short>..)|[\x02\x03]\x00(?P<long>....))", re.DOTALL)
_OBJECTS: Final = re.compile(rb"O|object|\\")
"""In an array's header: each way to name a type of objects, an escape among them. Else only the name of a field may have a capital O."""
HEAD_BYTES: Final = 64 << 10
MOST_ARRAYS: Final = 10_000
_PACKED: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Of others a few bytes may unpack to any number at once."""


def check_no_pickle(path: str, opened: IO[bytes], way_out: str) -> None:
    """Raises InvalidStateError for a file that is a pickle, or has one in it. `way_out`: what to do."""
    head = opened.read(HEAD_BYTES)
    is_pickle = _is_pickle(path, head)
    try:
        # Whatever its head: an archive is found by its end, and may begin with anything.
        if not is_pickle and zipfile.is_zipfile(opened):
            with zipfile.ZipFile(opened) as archive:
                is_pickle = _has_pickle(archive)
        elif not is_pickle:
            is_pickle = path.lower().endswith(_ARRAYS)
    except (zipfile.BadZipFile, RuntimeError, ValueError, EOFError, zlib.error) as error:
        raise InvalidStateError(f"{path} is an archive whose list of files cannot be read ({error}); write it again") from error
    if is_pickle:
        raise InvalidStateError(f"{path} is a pickle, which runs code where it is loaded; {way_out}")


def _is_pickle(name: str, head: bytes) -> bool:
    if name.lower().endswith(_ARRAY):
        return not _is_plain_array(head)
    return _PICKLES.fullmatch(name) is not None or _PICKLE_HEAD.match(head) is not None


def _is_plain_array(head: bytes) -> bool:
    """Whether NumPy reads it as numbers; what has not its head it takes for a pickle."""
    found = _ARRAY_HEAD.match(head)
    if found is None:
        return False
    end = found.end() + int.from_bytes(found["short"] or found["long"], "little")
    return end <= len(head) and _OBJECTS.search(head, found.end(), end) is None


def _has_pickle(archive: zipfile.ZipFile) -> bool:
    """Whether an archive has a pickle by its name, or an array of objects. Raises ValueError where it cannot be known."""
    if any(_PICKLES.fullmatch(member.filename) for member in archive.infolist()):
        return True
    arrays = [member for member in archive.infolist() if member.filename.lower().endswith(_ARRAY)]
    if len(arrays) > MOST_ARRAYS:
        raise ValueError(f"it has {len(arrays)} arrays, and {MOST_ARRAYS} are looked at")
    for member in arrays:
        if member.compress_type not in _PACKED:
            raise ValueError(f"{member.filename[:200]} is packed neither by deflate nor not at all")
        with archive.open(member) as opened:
            if _is_pickle(member.filename, opened.read(HEAD_BYTES)):
                return True
    return False

"""Token ids of texts, as the contents of `.npy` fields.

Holds: contents are those that `numpy.save` writes.
"""

import io
import sys
from array import array
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from trainhouse.workers.data.errors import InvalidDataError
from trainhouse.workers.data.prepare.preparation import Preparation

_MOST_HEADERS: Final = 8192


class Encoder(Protocol):
    """Part of a tokenizer that is needed: that of Hugging Face's."""

    def encode_batch_fast(self, input: list[str]) -> Sequence[Any]: ...


def open_tokenizer(rules: Preparation, folder: Path) -> Encoder | None:
    """The tokenizer that the preparation names, if it does. Raises InvalidDataError."""
    if rules.tokenise is None:
        return None
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise InvalidDataError(
            "to tokenise needs the package tokenizers: pip install 'trainhouse[data]' in the job's environment"
        ) from error
    path = folder / rules.tokenise.tokenizer
    try:
        tokenizer: Encoder = Tokenizer.from_file(str(path))
    except Exception as error:  # of Rust: all it raises is Exception
        raise InvalidDataError(f"{path}: no tokenizer in Hugging Face's format: {error}") from error
    return tokenizer


def token_fields(encoder: Encoder, texts: list[str], most: int | None) -> list[bytes]:
    """The ids of each text, `most` at most, as the content of a `.npy` field of unsigned 32-bit numbers."""
    # The fast way finds no offsets of tokens in the text, which nothing here reads; ids are the same.
    return [_npy(encoded.ids if most is None else encoded.ids[:most]) for encoded in encoder.encode_batch_fast(texts)]


def _npy(ids: list[int]) -> bytes:
    numbers = array("I", ids)  # 4 bytes on all machines that torch runs on
    if sys.byteorder == "big":
        numbers.byteswap()
    return _header(len(ids)) + numbers.tobytes()


@lru_cache(_MOST_HEADERS)
def _header(count: int) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<u4", "fortran_order": False, "shape": (count,)})
    return file.getvalue()

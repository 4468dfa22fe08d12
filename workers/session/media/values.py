"""Values beside numbers that a training program logs: Image, Table, Histogram, Text, Audio.

Holds: a value that has no such shape is refused where it is made. `stage` copies what the program may change, and what it returns encodes
that copy in another thread; neither draws a random number.
Never: imports torch or Pillow before a value needs them; encodes more than the bounds here.
"""

from __future__ import annotations

import io
import itertools
import math
import wave
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np
import orjson
from numpy.typing import NDArray

from trainhouse.workers.session.errors import InvalidUseError

MOST_PIXELS: Final = 4096 * 4096
MOST_COLUMNS: Final = 1000
MOST_ROWS: Final = 10_000
MOST_TEXT_CHARS: Final = 1_000_000
MOST_BINS: Final = 512
MOST_AUDIO_SAMPLES: Final = 8_000_000
_GREATEST: Final = float(np.finfo(np.float64).max)
_LEAST_SPANS: Final = 1e6
Array = NDArray[Any]
Encode = Callable[[], bytes]


class MediaError(ValueError):
    """A value that cannot be encoded: what is wrong with it."""


class Media(ABC):
    """A value that is a file of its own. `folder`, `ending`: of its path; `staged_bytes`: memory that its copy takes."""

    folder: ClassVar[str]
    ending: ClassVar[str]

    @property
    @abstractmethod
    def staged_bytes(self) -> int: ...

    @abstractmethod
    def stage(self) -> Encode:
        """Copies what the program may change. What is returned gives the file's content, in any thread; it raises MediaError."""


class Image(Media):
    """An image: of Pillow, a figure of matplotlib, or an array or tensor of height × width, × 1, 3 or 4 channels (last, or first).

    Integers are 0 to 255, floats 0 to 1; what is outside is clipped, and an image with NaN or infinities is dropped. Stored as PNG.
    """

    folder, ending = "images", "png"

    def __init__(self, data: Any) -> None:
        self._data = data
        self._shape: tuple[int, ...] = () if _is_drawn(data) else _image_shape(data)

    @property
    def staged_bytes(self) -> int:
        if hasattr(self._data, "savefig"):
            return 1 << 20
        if _is_drawn(self._data):
            return int(self._data.width * self._data.height * len(self._data.getbands()))
        return _bytes_of(self._data)

    def stage(self) -> Encode:
        if hasattr(self._data, "savefig"):  # it is drawn at once: matplotlib's figures are not safe to draw beside the program
            drawn = io.BytesIO()
            self._data.savefig(drawn, format="png")
            return drawn.getvalue
        pixels = self._data.width * self._data.height if _is_drawn(self._data) else self._shape[0] * self._shape[1]
        if pixels > MOST_PIXELS:
            raise MediaError(f"it has {pixels} pixels, and may have {MOST_PIXELS}; scale it down")
        if _is_drawn(self._data):
            copied = self._data.copy()
            return lambda: _png(copied)
        array, shape = _copied(self._data), self._shape
        return lambda: _png(_drawn(array, shape))


class Table(Media):
    """A table: columns and rows of them, a mapping of columns, or a DataFrame. Stored as JSON that pandas and MLflow read (`split`).

    At most MOST_COLUMNS columns; of more than MOST_ROWS rows the first are kept.
    """

    folder, ending = "tables", "json"

    def __init__(self, columns: Any, rows: Iterable[Sequence[Any]] | None = None) -> None:
        if rows is None and hasattr(columns, "columns") and hasattr(columns, "itertuples"):
            columns, rows = [str(name) for name in columns.columns], columns.itertuples(index=False, name=None)
        elif rows is None and isinstance(columns, Mapping):
            columns, rows = list(columns), zip(*columns.values(), strict=True)
        if rows is None or isinstance(columns, str):
            raise InvalidUseError("Table: give columns and rows, a mapping of columns, or a DataFrame")
        self.columns = [_text(name, 1000) for name in columns]
        if not 0 < len(self.columns) <= MOST_COLUMNS:
            raise InvalidUseError(f"Table: {len(self.columns)} columns, and a table has 1 to {MOST_COLUMNS}; choose some, or log a file")
        self.rows: list[tuple[Any, ...]] = []
        self.left_out = 0
        self._chars = sum(map(len, self.columns))
        for row in rows:
            if len(row) != len(self.columns):
                raise InvalidUseError(f"Table: row {len(self.rows)} has {len(row)} values for {len(self.columns)} columns")
            if len(self.rows) < MOST_ROWS:
                self.rows.append(tuple(_plain(value) for value in row))
                self._chars += sum(len(cell) for cell in self.rows[-1] if isinstance(cell, str))
            else:
                self.left_out += 1

    @property
    def staged_bytes(self) -> int:
        return 64 * len(self.rows) * len(self.columns) + self._chars

    def stage(self) -> Encode:
        # The cells were copied when the table was made.
        content = {"columns": self.columns, "data": self.rows} | ({"left_out_rows": self.left_out} if self.left_out else {})
        return lambda: orjson.dumps(content)


class Histogram(Media):
    """A distribution of values: `bins` counts between their least and greatest, or counts with their `edges`, one more than they are.

    Values that are not finite are counted by themselves. A tensor on an accelerator is counted there.
    """

    folder, ending = "histograms", "json"

    def __init__(self, values: Any, bins: int = 64, *, edges: Sequence[float] | None = None) -> None:
        if not 0 < bins <= MOST_BINS:
            raise InvalidUseError(f"Histogram(bins={bins}): give 1 to {MOST_BINS}")
        self._values, self._bins, self._edges = values, bins, edges
        if edges is None:
            _check_numbers(values, "Histogram")
            return
        limits, counts = [float(edge) for edge in edges], [float(count) for count in values]
        if not 0 < len(counts) <= MOST_BINS or len(limits) != len(counts) + 1:
            raise InvalidUseError(f"Histogram: {len(counts)} counts and {len(limits)} edges; give 1 to {MOST_BINS} counts, one edge more")
        rising = all(low < high for low, high in itertools.pairwise(limits))
        if not rising or not all(math.isfinite(edge) for edge in limits) or not all(0 <= count < math.inf for count in counts):
            raise InvalidUseError("Histogram: edges rise and are finite, and counts are 0 or more")
        self._values, self._edges = counts, limits

    @property
    def staged_bytes(self) -> int:
        return 0 if self._edges is not None or _is_on_device(self._values) else _bytes_of(self._values)

    def stage(self) -> Encode:
        if self._edges is not None:
            known = {"edges": self._edges, "counts": self._values, "not_finite": 0}
            return lambda: orjson.dumps(known)
        if _is_on_device(self._values):
            counted = _counted_there(self._values, self._bins)
            return lambda: orjson.dumps(counted)
        array, bins = _copied(self._values), self._bins
        return lambda: orjson.dumps(_counted(array, bins))


class Text(Media):
    """A text, such as a generated sample; its first MOST_TEXT_CHARS characters are kept."""

    folder, ending = "texts", "txt"

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise InvalidUseError(f"Text: give a str, not {type(text).__name__}")
        self._text = text if len(text) <= MOST_TEXT_CHARS else f"{text[:MOST_TEXT_CHARS]}…"

    @property
    def staged_bytes(self) -> int:
        return len(self._text)

    def stage(self) -> Encode:
        return lambda: self._text.encode("utf-8", "replace")


class Audio(Media):
    """Sound: samples, or channels × samples (or samples × channels) of at most 8 channels; floats of -1 to 1, or 16-bit integers.

    Stored as a WAV of 16 bits; what is outside is clipped, and samples with NaN or infinities are dropped.
    """

    folder, ending = "audio", "wav"

    def __init__(self, data: Any, sample_rate: int) -> None:
        _check_numbers(data, "Audio")
        shape = tuple(int(size) for size in np.shape(data))
        if not 0 < len(shape) <= 2 or 0 in shape or (len(shape) == 2 and min(shape) > 8):
            raise InvalidUseError(f"Audio: shape {shape} is no sound; give samples, or channels × samples with at most 8 channels")
        if not 1 <= sample_rate <= 768_000:
            raise InvalidUseError(f"Audio(sample_rate={sample_rate}): give samples a second, 1 to 768000")
        self._data, self._rate, self._shape = data, int(sample_rate), shape

    @property
    def staged_bytes(self) -> int:
        return _bytes_of(self._data)

    def stage(self) -> Encode:
        if math.prod(self._shape) > MOST_AUDIO_SAMPLES:
            raise MediaError(f"it has {math.prod(self._shape)} samples, and may have {MOST_AUDIO_SAMPLES}; cut it")
        array = _copied(self._data)
        return lambda: _wav(array, self._rate)


def is_media(value: Any) -> bool:
    """Whether a value is one of these, or a list of them."""
    if type(value) in (list, tuple):
        return bool(value) and all(isinstance(one, Media) for one in value)
    return isinstance(value, Media)


def _is_drawn(data: Any) -> bool:
    """Whether it is an image of Pillow or a figure of matplotlib."""
    return hasattr(data, "savefig") or (hasattr(data, "getbands") and hasattr(data, "save"))


def _image_shape(data: Any) -> tuple[int, int, int, bool]:
    """Height, width, channels, and whether these come first. Raises InvalidUseError."""
    _check_numbers(data, "Image")
    shape = tuple(int(size) for size in np.shape(data))
    if len(shape) == 2 and 0 not in shape:
        return shape[0], shape[1], 1, False
    if len(shape) == 3 and 0 not in shape and shape[2] in (1, 3, 4):
        return shape[0], shape[1], shape[2], False
    if len(shape) == 3 and 0 not in shape and shape[0] in (1, 3, 4):
        return shape[1], shape[2], shape[0], True
    raise InvalidUseError(f"Image: shape {shape} is no image; give height × width, or that with 1, 3 or 4 channels last or first")


def _check_numbers(data: Any, kind: str) -> None:
    dtype = str(getattr(data, "dtype", None) if hasattr(data, "dtype") else np.asarray(data).dtype).removeprefix("torch.")
    if not dtype.startswith(("float", "bfloat", "int", "uint", "bool")):
        raise InvalidUseError(f"{kind}: values of {dtype}; give numbers, as an array or a tensor")


def _is_on_device(data: Any) -> bool:
    return hasattr(data, "detach") and data.device.type != "cpu"


def _bytes_of(data: Any) -> int:
    """Bytes of an array or a tensor; of lists, 8 a number."""
    if hasattr(data, "element_size"):
        return int(data.numel() * data.element_size())
    return int(data.nbytes) if hasattr(data, "nbytes") else 8 * math.prod(np.shape(data))


def _copied(data: Any) -> Array:
    """A copy in main memory that nothing else changes."""
    if hasattr(data, "detach"):
        found = data.detach()
        if found.dtype.is_floating_point and found.dtype.itemsize < 4:  # numpy has no bfloat16
            found = found.float()
        found = found.cpu()
        return np.array(found.numpy(), copy=True)
    return np.array(data, copy=True)


def _drawn(array: Array, shape: tuple[int, ...]) -> Any:
    """An image of Pillow. Raises MediaError."""
    from PIL import Image as Pillow

    if shape[3]:
        array = np.moveaxis(array, 0, -1)
    array = array.reshape(shape[:3])
    if array.dtype.kind == "f":
        if not np.isfinite(array).all():
            raise MediaError("it has pixels that are no finite number")
        array = (np.clip(array, 0.0, 1.0) * 255.0 + 0.5).astype(np.uint8)
    elif array.dtype.kind == "b":
        array = array.astype(np.uint8) * np.uint8(255)
    else:
        array = np.clip(array, 0, 255).astype(np.uint8)
    return Pillow.fromarray(np.ascontiguousarray(array[..., 0] if shape[2] == 1 else array))


def _png(image: Any) -> bytes:
    out = io.BytesIO()
    (image if image.mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16") else image.convert("RGB")).save(out, format="PNG")
    return out.getvalue()


def _wav(array: Array, rate: int) -> bytes:
    """WAV of 16 bits. Raises MediaError."""
    if array.ndim == 2 and array.shape[0] <= 8 and array.shape[0] < array.shape[1]:
        array = array.T
    if array.dtype.kind == "f":
        if not np.isfinite(array).all():
            raise MediaError("it has samples that are no finite number")
        array = np.clip(array, -1.0, 1.0) * 32767.0
    samples = np.ascontiguousarray(np.clip(array, -32768, 32767).astype("<i2"))
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1 if samples.ndim == 1 else samples.shape[1])
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.tobytes())
    return out.getvalue()


def _counted(array: Array, bins: int) -> dict[str, Any]:
    flat = array.reshape(-1).astype(np.float64, copy=False)
    finite = flat[np.isfinite(flat)]
    if not finite.size:
        return {"edges": [0.0, 1.0], "counts": [0], "not_finite": int(flat.size)}
    edges = _edges(float(finite.min()), float(finite.max()), bins)
    try:  # even bins are counted several times faster, where numpy can place values in them
        with np.errstate(all="raise"):
            counts, edges = np.histogram(finite, bins=len(edges) - 1, range=(edges[0], edges[-1]))
    except (ValueError, FloatingPointError):
        counts, _ = np.histogram(finite, bins=edges)
    return {"edges": edges.tolist(), "counts": counts.tolist(), "not_finite": int(flat.size - finite.size)}


def _counted_there(tensor: Any, bins: int) -> dict[str, Any]:
    """Counts a tensor on its device; only the counts are copied from there."""
    import torch

    flat = tensor.detach().reshape(-1)
    flat = flat if flat.dtype == torch.float64 else flat.float()
    is_finite = torch.isfinite(flat)
    count = int(is_finite.sum())
    if not count:
        return {"edges": [0.0, 1.0], "counts": [0], "not_finite": flat.numel()}
    finite = flat[is_finite]
    edges = _edges(float(finite.min()), float(finite.max()), bins)
    low, half_span = float(edges[0]), float(edges[-1]) / 2 - float(edges[0]) / 2
    if half_span < _LEAST_SPANS * torch.finfo(flat.dtype).tiny:  # its inverse is no number of that type
        edges = edges[[0, -1]]
        counts = [count]
    else:
        # Halves: the whole span may be infinite. torch.histc, and bincount with weights, raise on CUDA under deterministic algorithms.
        places = (finite / 2 - low / 2) / half_span * (len(edges) - 1)
        counts = torch.bincount(places.long().clamp_(0, len(edges) - 2), minlength=len(edges) - 1).tolist()
    return {"edges": edges.tolist(), "counts": counts, "not_finite": flat.numel() - count}


def _edges(low: float, high: float, bins: int) -> Array:
    """`bins` + 1 rising, finite edges; those of one bin where values are too close for more."""
    if low == high:
        room = max(0.5, abs(low) * 1e-6)
        low, high = max(low - room, -_GREATEST), min(high + room, _GREATEST)
    found = np.linspace(low / 2, high / 2, bins + 1) * 2  # of halves: the whole span may be infinite
    found[0], found[-1] = low, high
    return found if np.isfinite(found).all() and (np.diff(found / 2) > 0).all() else np.array([low, high])


def _plain(value: Any) -> Any:
    """A cell as JSON has it: numbers, texts, booleans, nothing; else its text, cut."""
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        value = value.item()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return _text(value, 10_000)


def _text(value: Any, most_chars: int) -> str:
    """Its text, cut; what UTF-8 cannot hold, such as half of a surrogate pair, is a question mark."""
    return str(value)[:most_chars].encode("utf-8", "replace").decode()

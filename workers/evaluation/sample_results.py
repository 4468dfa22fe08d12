"""Results by sample of one evaluation, as a Parquet file that is named by the hash of its bytes.

Holds: each sample once, by its key in the split; numbers are finite float64, groups are text; equal results have equal bytes.
"""

import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from trainhouse.workers.evaluation.errors import InvalidEvaluationError
from trainhouse.workers.evaluation.result import EvaluationResult

SAMPLE: Final = "sample"
FILE_NAME: Final = "samples.parquet"
_ROWS_OF_GROUP: Final = 65_536


@dataclass(frozen=True)
class SampleResults:
    """Arrays of shape (samples,), in the order of `keys`. `numbers`: by column; `groups`: text by column."""

    keys: Sequence[str]
    numbers: Mapping[str, NDArray[np.float64]]
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not len(self.keys):
            raise InvalidEvaluationError("no sample was evaluated: name a split that has some")
        seen = set[str]()
        for key in self.keys:
            if key in seen:
                raise InvalidEvaluationError(f"sample {key!r} is there twice: give each sample of the split once")
            seen.add(key)
        sizes = [(name, len(each)) for name, each in self.numbers.items()] + [(name, len(each)) for name, each in self.groups.items()]
        for name, size in sizes:
            if size != len(self.keys):
                raise InvalidEvaluationError(f"column {name} has {size} values of {len(self.keys)} samples: give one for each sample")
        for name, column in self.numbers.items():
            bad = np.flatnonzero(~np.isfinite(column))
            if len(bad):
                raise InvalidEvaluationError(
                    f"{name} of sample {self.keys[bad[0]]!r} is {column[bad[0]]} ({len(bad)} such in all): the model's output or the "
                    "target is no number; correct the model or leave the sample out of the split"
                )

    def parquet(self) -> bytes:
        """The file's bytes."""
        columns: dict[str, pa.Array] = {SAMPLE: pa.array(list(self.keys), pa.string())}
        columns |= {name: pa.array(self.numbers[name], pa.float64()) for name in sorted(self.numbers)}
        columns |= {name: pa.array(list(self.groups[name]), pa.string()) for name in sorted(self.groups)}
        target = io.BytesIO()
        pq.write_table(pa.table(columns), target, compression="zstd", row_group_size=_ROWS_OF_GROUP)
        return target.getvalue()

    @classmethod
    def of_parquet(cls, content: bytes, source: str) -> "SampleResults":
        """Reads a file's bytes. `source`: name in messages. Raises InvalidEvaluationError."""
        try:
            table = pq.read_table(io.BytesIO(content))
        except (pa.ArrowInvalid, OSError) as error:
            raise InvalidEvaluationError(f"{source} is no Parquet file ({error}): evaluate that version again") from error
        names = [name for name in table.column_names if name != SAMPLE]
        if SAMPLE not in table.column_names or any(table.column(name).null_count for name in table.column_names):
            raise InvalidEvaluationError(f"{source} has no column {SAMPLE!r}, or empty cells: write each sample's key, and a value in each")
        numbers, groups = dict[str, NDArray[np.float64]](), dict[str, list[str]]()
        for name in names:
            column = table.column(name)
            if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
                groups[name] = column.to_pylist()
            else:
                numbers[name] = np.asarray(column.cast(pa.float64()).to_numpy(), np.float64)
        return cls(table.column(SAMPLE).cast(pa.string()).to_pylist(), numbers, groups)


def load_sample_results(path: Path, result: EvaluationResult) -> SampleResults:
    """The results by sample of a document that lies at `path`: the file beside it that has the hash. Raises InvalidEvaluationError."""
    if result.by_sample is None:
        raise InvalidEvaluationError(f"{path} has no results by sample: only a suite that writes them can be compared")
    for candidate in (path.parent / FILE_NAME, path.parent / f"{result.by_sample}.parquet", path.with_suffix(".parquet")):
        if candidate.is_file():
            content = candidate.read_bytes()
            if hashlib.sha256(content).hexdigest() == result.by_sample:
                return SampleResults.of_parquet(content, str(candidate))
    raise InvalidEvaluationError(
        f"{path}: no file beside it is the results by sample with hash {result.by_sample[:12]}…: put {FILE_NAME} of that evaluation there"
    )

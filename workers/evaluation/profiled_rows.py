"""Profiles of the columns of a Parquet file: sketches of numbers, counts of texts and truth values.

Holds: NaN and null are missing, as is every infinite number.
"""

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trainhouse.events.model.dataset_profile import MOST_DISTINCT, MOST_TOP_VALUES, MOST_VALUE_CHARS, FieldProfile, ValueCounts
from trainhouse.workers.evaluation.drift import ProfiledRows, sketch_of
from trainhouse.workers.evaluation.errors import InvalidEvaluationError


def profiled_file(path: Path) -> ProfiledRows:
    """Reads a file whole. Raises InvalidEvaluationError."""
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise InvalidEvaluationError(f"{path} cannot be read as Parquet: {error}") from error
    if not table.num_rows:
        raise InvalidEvaluationError(f"{path} has no rows: give values that were observed")
    return ProfiledRows(table.num_rows, {name: profile_of(table.column(name)) for name in table.column_names})


def profile_of(column: pa.ChunkedArray) -> FieldProfile:
    """The profile of one column. Of a type that has no distribution, such as a list, only how many rows have it."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        numbers = np.asarray(column.drop_null().cast(pa.float64(), safe=False).to_numpy(), np.float64)
        finite = numbers[np.isfinite(numbers)]
        return FieldProfile(samples=len(finite), numbers=sketch_of(finite) if len(finite) else None)
    present = len(column) - column.null_count
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_boolean(kind) or pa.types.is_dictionary(kind)):
        return FieldProfile(samples=present)
    counts = Counter(str(each)[:MOST_VALUE_CHARS] for each in column.drop_null().to_pylist())
    if not counts:
        return FieldProfile(samples=0)
    top = dict(sorted(counts.items(), key=lambda each: (-each[1], each[0]))[:MOST_TOP_VALUES])
    return FieldProfile(
        samples=present,
        values=ValueCounts(distinct=min(len(counts), MOST_DISTINCT + 1), top=top if len(counts) <= MOST_DISTINCT else {}),
    )

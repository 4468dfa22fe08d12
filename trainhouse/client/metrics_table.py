"""Points of metrics as one Arrow table.

Holds: the columns and their types are the same whoever answered, and however many points there are; pure.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow


def schema() -> "pyarrow.Schema":
    """metric, step, rank, attempt, epoch (the fence of the attempt), time (UTC, to the millisecond), value."""
    import pyarrow as pa

    numbers = [("step", pa.int64()), ("rank", pa.int32()), ("attempt", pa.int32()), ("epoch", pa.int64())]
    return pa.schema([("metric", pa.string()), *numbers, ("time", pa.timestamp("ms", tz="UTC")), ("value", pa.float64())])


def table_of(streams: Iterable[bytes]) -> "pyarrow.Table":
    """One table of answers in Arrow's stream format, in their order."""
    import pyarrow as pa

    parts = [pa.ipc.open_stream(s).read_all().select(schema().names).cast(schema()) for s in streams if s]
    return pa.concat_tables(parts) if parts else schema().empty_table()

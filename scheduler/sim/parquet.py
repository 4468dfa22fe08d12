"""The jobs of several simulations as one Parquet file: one row for each job under each policy.

Holds: one row group a policy or more, so that memory stays bounded by one policy; units last in column names.
"""

from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

import pyarrow as pa
import pyarrow.parquet as pq

from trainhouse.scheduler.sim.types import JobRow

NUMBERS = ("wait_s", "run_s", "attempts", "preemptions", "faults", "lost_gpu_s")
SCHEMA = pa.schema(
    [
        pa.field("policy", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("job_id", pa.string(), nullable=False),
        pa.field("tenant", pa.string(), nullable=False),
        pa.field("user", pa.string(), nullable=False),
        *(pa.field(name, pa.int64(), nullable=False) for name in ("gpus", "submit_s", "duration_s")),
        *(pa.field(name, pa.int64()) for name in ("first_start_s", "end_s", "jct_s")),
        *(pa.field(name, pa.int64(), nullable=False) for name in NUMBERS),
        pa.field("nodes", pa.string(), nullable=False),
        pa.field("refused", pa.string(), nullable=False),
    ]
)


class JobsFile:
    """A Parquet file that grows policy by policy; it is whole when the block is left."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writer = pq.ParquetWriter(path, SCHEMA, compression="zstd")

    def __enter__(self) -> "JobsFile":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._writer.close()

    def write(self, policy: str, rows: Iterable[JobRow]) -> None:
        """Adds the jobs of one policy."""
        kept = list(rows)
        columns = {name: [getattr(r, name) for r in kept] for name in SCHEMA.names if name != "policy"}
        policies = pa.array([policy] * len(kept), pa.string()).dictionary_encode()
        self._writer.write_table(pa.table({"policy": policies, **columns}, schema=SCHEMA))

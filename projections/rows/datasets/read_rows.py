"""Reads of steps to `data_positions_rows` and `shard_steps_rows`: one row a run of steps, and one a shard in a stretch of steps.

Holds: a run that goes on is the same row with more steps; a shard in a stretch that a later attempt reports again is replaced. An attempt
has one begin, and as many loaders as a session counts: queries join a job's begins to each of its rows, and a rank may report anything.
Never: compares the versions that a rank names with the job's spec: the node's agent, which signs the report, leaves others out.
"""

from collections.abc import Iterator
from typing import Any, Final

from trainhouse.events.model.bounds import MOST_COUNT
from trainhouse.events.model.data_read import DataRead
from trainhouse.events.model.skipped_data import SkippedData
from trainhouse.events.wire.envelope import Envelope
from trainhouse.projections.record import Record, Row, clamp_ms

POSITIONS: Final = "data_positions_rows"
SHARDS: Final = "shard_steps_rows"
MOST_LOADERS: Final = 16
"""Of an attempt, as `workers/session/steps/data_reads.py` has them."""
_BITS_OF_STEP: Final = 32


def rows(envelope: Envelope, record: Record) -> Iterator[Row]:
    """The rows of one report; nothing for other events."""
    event = envelope.event
    if not isinstance(event, DataRead) or event.loader >= MOST_LOADERS:
        return
    about = {"job_id": str(event.job_id), "loader": event.loader, "tracked": int(event.tracked), "at": clamp_ms(event.at_ms)}
    yield Row(POSITIONS, about | _of_order(event) | _began(event))
    for run in event.runs:
        if run.epoch > event.epoch:  # no rank knows what a later attempt does
            continue
        values = {"epoch": int(run.epoch), "fact": "read", "padded": int(run.padded)}
        values |= {name: getattr(run, name) for name in ("first_step", "steps", "first_position", "per_step")}
        yield Row(POSITIONS, about | _of_order(event) | values)
    for skip in event.skipped:
        yield Row(POSITIONS, about | _of_order(event) | _skipped(skip))
    if event.stretch is not None and event.stretch.epoch <= event.epoch:
        yield from _shards(event, about)


def _of_order(event: DataRead) -> dict[str, Any]:
    parts = event.parts
    return {
        "samples": event.samples,
        "seed": event.seed,
        "data_order": event.order,
        "dataset_versions": [part.version for part in parts],
        "splits": [part.split for part in parts],
        "part_samples": [part.samples for part in parts],
        "weights": [part.weight for part in parts],
        "end_position": 0,
        "reason": "",
    }


def _skipped(skip: SkippedData) -> dict[str, Any]:
    """Positions that are left out; reported by each attempt that leaves them out, as one row."""
    steps = skip.end_step - skip.first_step
    values = {"fact": "skipped", "epoch": int(skip.epoch), "padded": 0, "steps": steps, "reason": skip.reason}
    values |= {name: getattr(skip, name) for name in ("first_step", "first_position", "end_position")}
    return values | {"per_step": (skip.end_position - skip.first_position) // max(1, steps)}


def _began(event: DataRead) -> dict[str, Any]:
    """The begin of the attempt, which is reported with everything, so that no order of arrival loses it. Of several, that with the most
    `steps` stays, so these are counted down from MOST_COUNT: the least step."""
    nothing = dict.fromkeys(("loader", "first_step", "first_position", "per_step", "padded"), 0)
    return nothing | {"fact": "began", "epoch": int(event.epoch), "steps": MOST_COUNT - event.began_step}


def _shards(event: DataRead, about: dict[str, Any]) -> Iterator[Row]:
    stretch = event.stretch
    assert stretch is not None
    for read in stretch.shards:
        if len(read.first_steps) != len(read.steps):  # no rank of ours writes that
            continue
        part = event.parts[read.part] if read.part < len(event.parts) else None
        yield Row(
            SHARDS,
            about
            | {
                "shard": str(read.shard),
                "part": read.part,
                "dataset_version": part.version if part else "",
                "split": part.split if part else "",
                "epoch": int(stretch.epoch),
                "first_step": stretch.first_step,
                "end_step": stretch.end_step,
                # The checkpoint knows better than the attempt that was killed; of one attempt, the later report.
                "version": (int(event.epoch) << _BITS_OF_STEP) + min(stretch.end_step, 2**_BITS_OF_STEP - 1),
                "samples": read.samples,
                "run_first_steps": list(read.first_steps),
                "run_steps": list(read.steps),
            },
        )

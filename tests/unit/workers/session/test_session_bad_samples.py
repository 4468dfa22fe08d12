"""Bad samples of a gang: all ranks leave at one step, whichever of them has the count or the loader, and each reports a few shards."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.support.gloo_gang import run_gang
from tests.unit.workers.session.test_session_boundary import SavedInMemory
from trainhouse.events.model.ids import JobId
from trainhouse.events.model.spec import DataReference
from trainhouse.workers import Session
from trainhouse.workers.data.batches import Share
from trainhouse.workers.data.data_loader import Loader, Reading, make_loader
from trainhouse.workers.data.sharded_dataset import BadSample
from trainhouse.workers.session.context import Context
from trainhouse.workers.session.errors import EXIT_BAD_DATA, Stopped
from trainhouse.workers.session.logging.sink import open_sink
from trainhouse.workers.session.process_groups import Gang
from trainhouse.workers.session.steps.bad_samples import BadSamples

CONTEXT = Context(world_size=2, backend="gloo", job_id=JobId("j"), alike=False)


class Events:
    """A sink of this process's events."""

    def __init__(self) -> None:
        self.fields: list[dict[str, Any]] = []

    def event(self, name: str, fields: dict[str, Any], *_: Any) -> None:
        self.fields.append(fields)


def few_bad() -> Loader:
    """A loader of 40 samples, of which 2 may be bad in each pass."""
    return make_loader(list(range(40)), Share(4), 5, False, None, Reading(0, max_bad=0.05))


def _exchanges(store: Any, groups: Any) -> dict[Any, Any]:
    context = Context(**vars(CONTEXT) | {"rank": dist.get_rank()})
    gang = Gang(context, timeout_s=60.0)
    both = BadSamples(context, gang, Events(), lambda: 5)  # type: ignore[arg-type]
    results = {}
    one = few_bad()
    both.track((one,) if context.rank == 1 else ())
    one.bad_here = 7
    results["one has a loader"] = both.exchange()
    ahead = few_bad()
    ahead.bad_here = 2 if context.rank == 0 else 1
    both.track((ahead,))
    for _ in range(10 + context.rank):
        next(ahead)
    results["one is a pass ahead"] = both.exchange()
    few = few_bad()
    few.bad_here = context.rank
    both.track((few,))
    results["few are bad"] = both.exchange()
    return results


def test_all_ranks_have_too_many_or_none_has(tmp_path: Path) -> None:
    one, other = run_gang(_exchanges, tmp_path, __name__, world=2)
    assert one == other
    assert (one["one has a loader"].bad, one["one has a loader"].allowed, one["one has a loader"].samples) == (7, 2, 40)
    assert one["one is a pass ahead"].bad == 3 and one["few are bad"] is None


def test_a_rank_reports_a_few_shards_and_each_once() -> None:
    """A gang of a thousand ranks whose shards are all bad is no flood of reports."""
    version = f"numbers@sha256:{'0' * 64}"
    context = Context(job_id=JobId("j"), data=DataReference(dataset=version, quarantined=(f"{0:064x}",)))
    samples = BadSamples(context, Gang(context), events := Events(), lambda: 5)  # type: ignore[arg-type]
    for number in range(20):
        for index in range(2):
            samples.found(BadSample(index, "", shard=f"{number:064x}", version=version, split="train"))
    assert [int(fields["shard"], 16) for fields in events.fields] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("of_spec", "of_program", "allowed"),
    [(None, None, 1), (None, 0.05, 5), (None, 0.0, 0), (0.1, None, 10), (0.1, 0.0, 10), (0.0, 0.05, 0)],
)
def test_a_program_does_not_undo_what_the_spec_allows(
    tmp_path: Path, of_spec: float | None, of_program: float | None, allowed: int
) -> None:
    """A review with --max-bad replaces the spec's; a program that names its own would stop at the same place in each attempt."""
    data = DataReference(dataset=f"numbers@sha256:{'0' * 64}", max_bad=of_spec)
    context = Context(job_id=JobId("j"), data=data, spool=tmp_path / "spool.jsonl")
    session = Session(context, Gang(context), open_sink(context), SavedInMemory())
    loader = session.loader(list(range(100)), batch=4, max_bad=of_program)
    loader.bad_here = allowed
    assert loader.excess() is None
    loader.bad_here = allowed + 1
    found = loader.excess()
    assert found is not None and found.allowed == allowed


def _leaves(store: Any, groups: Any) -> dict[Any, Any]:
    rank = dist.get_rank()
    context = Context(**vars(CONTEXT) | {"rank": rank})
    session = Session(context, Gang(context, timeout_s=60.0), open_sink(context), SavedInMemory())
    loader = few_bad()
    session.track(model=torch.nn.Linear(1, 1), loader=loader if rank == 0 else None)
    step = 0
    try:
        for step in session.steps(1000):
            if rank == 0 and step == 2:
                loader.bad_here = 7
            dist.barrier()
    except Stopped as stopped:
        return {"code": stopped.code, "step": step}
    return {"code": 0, "step": step}


@pytest.mark.timeout(300)
def test_a_rank_without_a_loader_leaves_with_the_others(tmp_path: Path) -> None:
    one, other = run_gang(_leaves, tmp_path, __name__, world=2)
    assert one == other and one["code"] == EXIT_BAD_DATA, (one, other)

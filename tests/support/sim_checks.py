"""Judges of a simulation that know nothing of how it was decided: they read segments, rows and promises only."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from trainhouse.scheduler.core.cycle.book import Book
from trainhouse.scheduler.core.queue.entries import Action, Reserve, Start, Unreserve
from trainhouse.scheduler.sim.types import SimNode, SimResult, TraceJob


def no_device_twice(result: SimResult) -> None:
    """At no time are two gangs on one device. (Of whole devices; shares are for the meter.)"""
    by_device: dict[tuple[str, int], list[tuple[int, int, str]]] = defaultdict(list)
    for segment in result.segments:
        for position in range(segment.devices.bit_length()):
            if segment.devices >> position & 1:
                by_device[segment.node_id, position].append((segment.from_s, segment.to_s, segment.job_id))
    for device, uses in by_device.items():
        uses.sort()
        for (_, end, one), (start, _, other) in pairwise(uses):
            assert start >= end, f"{one} and {other} are both on {device} at {start} s"


def no_partial_gang(result: SimResult, jobs: Sequence[TraceJob]) -> None:
    """Whenever a gang runs, it has all of its devices (an elastic one at least its least, at most its most)."""
    wanted = {job.job_id: (job.min_gpus or job.gpus, job.gpus) for job in jobs}
    at: dict[tuple[str, int, int], int] = defaultdict(int)
    for segment in result.segments:
        at[segment.job_id, segment.from_s, segment.to_s] += segment.devices.bit_count()
    for (job_id, start, _), devices in at.items():
        least, most = wanted[job_id]
        assert least <= devices <= most, f"{job_id} runs on {devices} devices from {start} s; it wants {least}..{most}"


def all_end(result: SimResult) -> None:
    """Every job that was not refused has ended, and its times add up."""
    for row in result.rows:
        if row.refused:
            assert row.first_start_s is None
            continue
        assert row.end_s is not None and row.jct_s is not None, f"{row.job_id} never ended"
        assert row.wait_s + row.run_s == row.jct_s, f"{row.job_id} waited {row.wait_s} and ran {row.run_s} of {row.jct_s} s"


def within_capacity(result: SimResult, nodes: Sequence[SimNode]) -> None:
    """No node gives devices that it does not have."""
    size = {node.node_id: node.gpus for node in nodes}
    for segment in result.segments:
        assert segment.devices < 1 << size[segment.node_id], f"{segment.job_id} has devices that {segment.node_id} does not have"


class PromiseKeeper:
    """Follows the actions of cycles: a promised start may come earlier, and is never replaced by a later one, nor missed.

    For runs with exact run times, no faults, and an order in which newcomers are last.
    """

    def __init__(self) -> None:
        self.promised: dict[str, int] = {}
        self.kept = 0

    def see(self, actions: Sequence[Action], book: Book, now_ms: int) -> None:
        """After each cycle."""
        for action in actions:
            match action:
                case Reserve(reservation):
                    old = self.promised.get(reservation.job_id, reservation.start_ms)
                    assert reservation.start_ms <= old, f"{reservation.job_id} was promised {old} and is put off to {reservation.start_ms}"
                    self.promised[reservation.job_id] = reservation.start_ms
                case Start(job_id):
                    if job_id in self.promised:
                        assert now_ms <= self.promised.pop(job_id), f"{job_id} starts at {now_ms}, later than was promised"
                        self.kept += 1
                case Unreserve(job_id):
                    assert job_id in self.promised
                case _:
                    pass
        for job_id, start_ms in self.promised.items():
            assert start_ms > now_ms, f"{job_id} was promised {start_ms} and still waits at {now_ms}"
            assert job_id in book.reservations, f"the promise of {job_id} is gone though it waits"

"""`profile` where the gateway is the only way in: it asks the agents, says how far they are, and has the traces."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from trainhouse.cli.jobs.rank_inspection import STEPLESS, chosen_ranks, print_traces
from trainhouse.cli.shared.exit_codes import CliError, Exit

if TYPE_CHECKING:
    from trainhouse.client.gateway.backend import ByGateway
    from trainhouse.client.gateway.rank_traces import RankTrace

STORING_S = 125.0
"""For traces to be stored, and to be in the tables that the gateway reads; as of client.kafka.operations."""


def record(job: str, ranks: str, steps: int, out: Path | None, timeout_s: float, *, json: bool) -> None:
    """Records, follows and fetches. Blocks. Raises CliError, ClientError."""
    from trainhouse.cli.jobs.job_status import find
    from trainhouse.client import TrainhouseClient
    from trainhouse.client.gateway import rank_traces
    from trainhouse.client.gateway.backend import ByGateway

    client = TrainhouseClient.from_settings()
    way, status = client.way, find(client, job)
    assert isinstance(way, ByGateway)
    if status.state != "RUNNING":
        raise CliError(f"{job} runs on no node now: it is {status.state}", Exit.NOT_FOUND)
    if status.step is None:
        raise CliError(f"{job} has reported no step yet: {STEPLESS}", Exit.NOT_FOUND)
    chosen = chosen_ranks(ranks, status.world_size or 0, job)
    profile = way.run(rank_traces.record(job, chosen, steps, timeout_s))
    found = _followed(way, job, profile, chosen, timeout_s + STORING_S, quiet=json)
    stored = [rank for rank, trace in found.items() if trace.state == "stored"]
    files = {rank: _fetched(way, job, profile, rank, out) for rank in stored} if out is not None else {}
    rows = [
        {"job_id": job, "rank": rank, "path": trace.path, "file": str(files[rank]) if rank in files else None, "text": trace.reason}
        for rank, trace in found.items()
    ]
    print_traces(rows, len(chosen), out, json=json)


def _followed(way: "ByGateway", job: str, profile: str, chosen: list[int], limit_s: float, *, quiet: bool) -> "dict[int, RankTrace]":
    """The end of each rank's recording. Raises CliError where some have none in time."""
    from trainhouse.client.gateway import rank_traces

    shown: dict[int, RankTrace] = {}
    until_s = time.monotonic() + limit_s
    while not all(rank in shown and shown[rank].ended for rank in chosen):
        if time.monotonic() > until_s:
            missing = ", ".join(str(rank) for rank in chosen if rank not in shown or not shown[rank].ended)
            why = "is its node's agent up? See `trainhouse nodes`; a trace that is stored later is on the job's page"
            raise CliError(f"no trace of rank {missing} within {limit_s:.0f} s: {why}", Exit.UNAVAILABLE)
        for trace in way.run(rank_traces.progress(job, profile)):
            if trace != shown.get(trace.rank) and not quiet:
                sys.stdout.write(f"{_sentence(trace)}\n")
                sys.stdout.flush()
            shown[trace.rank] = trace
    return {rank: shown[rank] for rank in chosen}


def _sentence(trace: "RankTrace") -> str:
    if trace.state == "stored":
        return f"rank {trace.rank}: {(trace.size_bytes or 0) / 2**20:.1f} MiB: {trace.path}"
    if trace.state == "recording":
        return f"rank {trace.rank} records"
    return trace.reason if trace.reason.startswith(f"rank {trace.rank}") else f"rank {trace.rank}: {trace.state}: {trace.reason}"


def _fetched(way: "ByGateway", job: str, profile: str, rank: int, out: Path) -> Path:
    from trainhouse.client.gateway import rank_traces
    from trainhouse.events.model.tracking import trace_file

    content = way.run(rank_traces.trace(job, profile, rank))
    if content is None:
        raise CliError(f"the trace of rank {rank} of {job} is not in the object store any more", Exit.FAILED)
    out.mkdir(parents=True, exist_ok=True)
    file = out / trace_file(rank)
    file.write_bytes(content)
    return file

"""Profiles of a job's ranks over the gateway: asked for, followed, fetched.

Holds: pure flows; whoever runs them keeps the time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from trainhouse.client.gateway.exchange import Flow, NotFoundError, Request, ask
from trainhouse.client.gateway.reads import job_path, of_job

LOOK_S = 1.0
ENDED = frozenset({"stored", "failed", "refused"})


@dataclass(frozen=True)
class RankTrace:
    """Progress of one rank: `state` as the gateway has it, with the reason where there is no trace."""

    rank: int
    state: str
    reason: str = ""
    path: str | None = None
    size_bytes: int | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self.state in ENDED


def record(job_id: str, ranks: Sequence[int], steps: int, timeout_s: float) -> Flow[str]:
    """Asks for a profile; returns its id. Raises UnknownJobError, AccessDeniedError, ChangeRefusedError (nothing to record)."""
    body = {"ranks": list(ranks), "steps": steps, "timeout_s": timeout_s}
    answer = yield from of_job(job_id, Request("POST", job_path(job_id, "profiles"), body=body))
    return str(answer.json()["profile"])


def progress(job_id: str, profile: str, pause_s: float = LOOK_S) -> Flow[list[RankTrace]]:
    """Progress of the ranks that an agent has answered for."""
    path = job_path(job_id, f"profiles/{quote(profile, safe='')}")
    answer = yield from of_job(job_id, Request("GET", path, pause_s=pause_s))
    known = ("rank", "state", "reason", "path", "size_bytes")
    return [RankTrace(**{name: row.get(name) for name in known}) for row in answer.json()["ranks"]]


def trace(job_id: str, profile: str, rank: int) -> Flow[bytes | None]:
    """The trace of one rank, compressed by gzip; None where the store does not have it."""
    try:
        return (yield from ask(Request("GET", job_path(job_id, f"profiles/{quote(profile, safe='')}/{rank}")))).content
    except NotFoundError:
        return None

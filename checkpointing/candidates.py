"""Which checkpoints a restore may choose from, best first.

Holds: a job's own chain first, from the newest backwards, without what a claim passed over; then what `resume_from` names. A named
commit or step stands alone: if it is damaged, nothing else of that job is taken in its place.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from trainhouse.checkpointing.commits import commit_key, entries_newest_first, not_passed_over
from trainhouse.checkpointing.errors import Damaged, InvalidState, NoCheckpoint
from trainhouse.checkpointing.manifest import Manifest
from trainhouse.checkpointing.objects import ObjectStore
from trainhouse.checkpointing.reports import DamagedCheckpoint

_URI = re.compile(r"^[a-z0-9]+://(?:[^/]+/)?jobs/(?P<job>[^/]+)/commits/(?P<commit>\d+)$")
_SHORT = re.compile(r"^(?P<job>[^/]+)(?:/(?:(?:step/)?(?P<step>\d+)|commit/(?P<commit>\d+)))?$")


@dataclass(frozen=True)
class ResumeFrom:
    """Another job's checkpoint: its newest healthy one, or exactly the one of this step or commit."""

    job_id: str
    step: int | None = None
    commit: int | None = None

    def __str__(self) -> str:
        at = "" if self.exact is False else f"/step/{self.step}" if self.step is not None else f"/commit/{self.commit}"
        return f"{self.job_id}{at}"

    @property
    def exact(self) -> bool:
        """Whether one checkpoint is named, not the newest healthy one."""
        return self.step is not None or self.commit is not None


def parse_resume_from(text: str, objects: ObjectStore) -> ResumeFrom:
    """`JOB`, `JOB/STEP`, `JOB/step/STEP`, `JOB/commit/N` or a checkpoint's URI in this store. Raises InvalidState that says so."""
    uri = _URI.match(text)
    if uri is not None and objects.uri(commit_key(uri["job"], int(uri["commit"]))) != text:
        raise InvalidState(f"resume_from {text!r} is in another store than ours ({objects.address}); copy it here, or name one of ours")
    found = uri or _SHORT.match(text)
    if found is None:
        raise InvalidState(f"resume_from {text!r}: write JOB, JOB/STEP, JOB/commit/N, or the uri of a checkpoint")
    parts = found.groupdict()
    step, commit = parts.get("step"), parts.get("commit")
    return ResumeFrom(parts["job"], int(step) if step else None, int(commit) if commit else None)


class Candidates:
    """Offers manifests one by one; what could not be read on the way is in `damaged`. Blocks on the store."""

    def __init__(self, objects: ObjectStore, job_id: str, resume_from: ResumeFrom | None) -> None:
        self._objects = objects
        self._job_id = job_id
        self._resume_from = resume_from
        self._offers = self._all()
        self.damaged: list[DamagedCheckpoint] = []

    def next(self) -> Manifest | None:
        """The next best; None when there is no other. Raises NoCheckpoint if `resume_from` named one and it is not to be had."""
        return next(self._offers, None)

    def reject(self, manifest: Manifest, reason: str) -> None:
        """Notes that an offered one turned out damaged."""
        self._note(str(manifest.job_id), manifest.commit, reason)

    def _all(self) -> Iterator[Manifest]:
        yield from self._chain(self._job_id, None)
        wanted = self._resume_from
        if wanted is None or (wanted.job_id == self._job_id and not wanted.exact):
            return
        yield from self._chain(wanted.job_id, wanted)
        passed = "; ".join(str(d) for d in self.damaged) or "it has none"
        raise NoCheckpoint(f"resume_from {wanted}: no such healthy checkpoint ({passed}); name another, or leave resume_from out")

    def _chain(self, job_id: str, wanted: ResumeFrom | None) -> Iterator[Manifest]:
        chain = entries_newest_first(self._objects, job_id)
        for commit, entry in chain if wanted is not None and wanted.exact else not_passed_over(chain):
            if wanted is not None and wanted.commit not in (None, commit):
                continue
            if isinstance(entry, Damaged):
                self._note(job_id, commit, str(entry))
            elif isinstance(entry, Manifest) and (wanted is None or wanted.step in (None, entry.step)):
                yield entry
                if wanted is not None and wanted.exact:
                    return

    def _note(self, job_id: str, commit: int, reason: str) -> None:
        self.damaged.append(DamagedCheckpoint(commit, self._objects.uri(commit_key(job_id, commit)), reason))

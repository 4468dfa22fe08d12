"""Checkpoints that a restore may choose from, best first.

Holds: a job's own chain first, from the newest backwards, without what a claim passed over; then what `resume_from` names. A named
commit or step, or the best one, stands alone: if it is damaged, nothing else of that job is taken in its place.
"""

import math
import warnings
from collections.abc import Iterator

from trainhouse.checkpointing.chain.commits import commit_key, entries_newest_first, not_passed_over
from trainhouse.checkpointing.chain.manifest import LOSS, Manifest, Pruned
from trainhouse.checkpointing.chain.references import BEST, begin_from, begun_from, tagged
from trainhouse.checkpointing.errors import DamagedError, InvalidStateError, NoCheckpointError, ObjectStoreRefusedError
from trainhouse.checkpointing.results import DamagedCheckpoint
from trainhouse.checkpointing.stores.object_store import ObjectStore
from trainhouse.events.model.ids import JobId
from trainhouse.events.model.resume_ref import ResumeFrom, parse_resume_from


def resume_from_of(text: str) -> ResumeFrom:
    """Returns the checkpoint that `resume_from` names. Raises InvalidStateError that says what to write."""
    try:
        return parse_resume_from(text)
    except ValueError as error:
        raise InvalidStateError(str(error)) from error


def checkpoint_named(objects: ObjectStore, wanted: ResumeFrom) -> Manifest:
    """The newest checkpoint that `wanted` names whose manifest is readable. Raises NoCheckpointError. Writes nothing; blocks."""
    return next(Candidates(objects, wanted.job_id, wanted).named(wanted))


class Candidates:
    """Offers manifests one by one; what could not be read on the way is in `damaged`. Blocks on the store."""

    def __init__(self, objects: ObjectStore, job_id: str, resume_from: ResumeFrom | None) -> None:
        self._objects = objects
        self._job_id = job_id
        self._resume_from = resume_from
        self._offers = self._all()
        self.damaged: list[DamagedCheckpoint] = []

    def next(self) -> Manifest | None:
        """The next best; None when there is no other. One of another job is noted there as begun from, so that retention keeps it.

        Raises NoCheckpointError if `resume_from` named one and it is not to be had.
        """
        manifest = next(self._offers, None)
        if manifest is not None and manifest.job_id != self._job_id:
            self._keep(manifest)
        return manifest

    def reject(self, manifest: Manifest, reason: str) -> None:
        """Notes that an offered one turned out damaged."""
        self._note(str(manifest.job_id), manifest.commit, reason)

    def _all(self) -> Iterator[Manifest]:
        yield from self._chain(self._job_id, None)
        wanted = self._resume_from
        if wanted is None or (wanted.job_id == self._job_id and not wanted.exact):
            return
        yield from self.named(wanted)

    def named(self, wanted: ResumeFrom) -> Iterator[Manifest]:
        """Checkpoints that `wanted` names. Raises NoCheckpointError after the last."""
        yield from self._best(wanted.job_id) if wanted.best else self._chain(wanted.job_id, wanted)
        none = f"of {wanted.job_id} none has a finite loss" if wanted.best else "it has none"
        passed = "; ".join(str(d) for d in self.damaged) or none
        raise NoCheckpointError(f"resume_from {wanted}: no such healthy checkpoint ({passed}); name another, or leave resume_from out")

    def _chain(self, job_id: str, wanted: ResumeFrom | None) -> Iterator[Manifest]:
        chain = entries_newest_first(self._objects, job_id)
        for commit, entry in chain if wanted is not None and wanted.exact else not_passed_over(chain):
            if wanted is not None and wanted.commit not in (None, commit):
                continue
            if (
                isinstance(entry, Pruned)
                and wanted is not None
                and wanted.exact
                and wanted.step in (None, entry.step)
                and self._began_from(job_id, commit)
            ):
                # Given up in the instant in which an earlier attempt began from it: a sweep puts it back.
                entry = entry.manifest or entry
            if isinstance(entry, DamagedError):
                self._note(job_id, commit, str(entry))
            elif isinstance(entry, Manifest) and (wanted is None or wanted.step in (None, entry.step)):
                yield entry
                if wanted is not None and wanted.exact:
                    return

    def _began_from(self, job_id: str, commit: int) -> bool:
        try:
            return begun_from(self._objects, job_id, self._job_id) == commit
        except ObjectStoreRefusedError:
            return False  # of an agent from before, which notes nothing

    def _best(self, job_id: str) -> Iterator[Manifest]:
        """The one with the tag `best`, else the one with the lowest loss, of equals the newest."""
        if (commit := self._tagged_best(job_id)) is not None:
            yield from self._chain(job_id, ResumeFrom(JobId(job_id), commit=commit))
            return
        found = [m for m in self._chain(job_id, None) if math.isfinite(m.metrics.get(LOSS, math.nan))]
        if found:
            yield min(found, key=lambda m: (m.metrics[LOSS], -m.commit))

    def _tagged_best(self, job_id: str) -> int | None:
        try:
            return tagged(self._objects, job_id, BEST)
        except ObjectStoreRefusedError:
            return None  # of an agent from before, which lets a job read no tags of another

    def _keep(self, manifest: Manifest) -> None:
        try:
            begin_from(self._objects, manifest.job_id, manifest.commit, self._job_id)
        except ObjectStoreRefusedError as error:
            # Of an agent from before: training goes on, as it did then.
            warnings.warn(f"{manifest.job_id}@{manifest.commit} is not kept for as long as {self._job_id} needs it: {error}", stacklevel=2)

    def _note(self, job_id: str, commit: int, reason: str) -> None:
        self.damaged.append(DamagedCheckpoint(commit, self._objects.uri(commit_key(job_id, commit)), reason))

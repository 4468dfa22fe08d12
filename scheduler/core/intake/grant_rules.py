"""Rules of grants: who may be given one, and whether a job may use another project's dataset.

Holds: pure. A dataset's own project needs no grant. A job whose project holds none is refused in the same words as a job that names a
dataset which is not there, so that a refusal confirms no name.
"""

import shlex
from collections.abc import Iterable, Mapping
from typing import Any, Final

from trainhouse.events import (
    DatasetAccessRefused,
    DatasetGranted,
    DatasetGrantRevoked,
    EventId,
    GrantDataset,
    JobSpec,
    JobSubmitted,
    ProjectApplied,
    RevokeDatasetGrant,
)
from trainhouse.events.model.dataset_grant import GrantKey
from trainhouse.events.model.default_project import DEFAULT_PROJECT
from trainhouse.events.model.version_names import VersionName
from trainhouse.scheduler.core.intake.dataset_grants import size_of
from trainhouse.scheduler.core.intake.datasets import MAX_LISTED, Datasets, VersionFacts, unknown_version

MAX_GRANTS: Final = 1_024
"""Of a dataset."""


def why_not_granted(datasets: Datasets, projects: Mapping[str, ProjectApplied], asked: GrantDataset) -> str:
    """Returns the reason for which a grant is not given; empty if it is, or was."""
    key = GrantKey.of(asked)
    if reason := _no_such_dataset(datasets, key, "granted"):
        return reason
    owner = datasets.owner(asked.dataset)
    assert owner is not None, "a dataset that is known has an owner"
    if asked.project == owner:
        return f"dataset {asked.dataset} belongs to project {owner}: its jobs need no grant"
    if asked.project not in projects and asked.project != DEFAULT_PROJECT:
        return (
            f"there is no project {asked.project}; `trainhouse project list` shows what there is, and "
            f"`trainhouse project set {shlex.quote(asked.project)}.yaml` declares one. Nothing was granted"
        )
    if reason := _unfit_version(datasets, key, owner):
        return reason
    grants = datasets.grants(asked.dataset)
    if key in grants.keys:
        return ""
    if len(grants.keys) >= MAX_GRANTS:
        return (
            f"{key.reference} is not granted: dataset {asked.dataset} has {MAX_GRANTS} grants already; revoke one "
            f"(`trainhouse data grants {asked.dataset}`), or grant all versions at once by the dataset's name"
        )
    if datasets.full_with(owner, 0, size_of(key)):
        return f"{key.reference} is not granted: so much is known of datasets that no grant fits; revoke one that is not used"
    return ""


def _no_such_dataset(datasets: Datasets, key: GrantKey, done: str) -> str:
    if datasets.owner(key.dataset) is None:
        return f"there is no dataset {key.dataset}; `trainhouse data list` shows what there is. Nothing was {done}"
    if key.sha256 and datasets.get(key.dataset, key.sha256) is None:
        return unknown_version(key.reference, done)
    return ""


def _unfit_version(datasets: Datasets, key: GrantKey, owner: str) -> str:
    """The reason for which no job could use what is to be granted: it is deprecated, or for other purposes."""
    facts = datasets.get(key.dataset, key.sha256) if key.sha256 else None
    if facts is not None and facts.deprecated is not None:
        return f"{key.reference} is deprecated: {facts.deprecated}. No new job may use it; nothing was granted"
    versions: Iterable[VersionFacts] = datasets.versions(key.dataset)
    allowed = [each.purposes for each in (datasets.same_contents(owner, key.sha256).values() if key.sha256 else versions)]
    fits = [not purposes or key.purpose in purposes for purposes in allowed]
    # What is named alike must all allow it; of all versions, one that does is enough.
    if (all if key.sha256 else any)(fits):
        return ""
    listed = _listed(sorted({purpose for purposes in allowed for purpose in purposes}))
    which = key.reference if key.sha256 else f"every version of {key.dataset}"
    return f"{key.purpose} is none of the purposes that {which} may be used for: {listed}. Nothing was granted"


def why_not_revoked(datasets: Datasets, asked: RevokeDatasetGrant) -> str:
    """Returns the reason for which a grant is not revoked; empty if it is."""
    key = GrantKey.of(asked)
    if reason := _no_such_dataset(datasets, key, "revoked"):
        return reason
    grants = datasets.grants(asked.dataset)
    if key in grants.keys:
        return ""
    what = f"project {key.project} has no grant of {key.reference} for purpose {key.purpose}"
    if key.of_all in grants.keys:
        return f"{what}, but one of all versions of {key.dataset}: revoke that: `trainhouse data revoke {_options(key.of_all)}`"
    held = _held(grants.of(key.project))
    return f"{what}; it has: {held or 'none'}. `trainhouse data grants {key.dataset}` shows all. Nothing was revoked"


def why_no_access(datasets: Datasets, spec: JobSpec) -> str:
    """Returns the reason for which a job's project may not use the dataset that it names; empty if it may, or names none."""
    data = spec.data
    if data is None or data.dataset is None:
        return ""
    name = VersionName.parse(data.dataset)
    owner, purpose = datasets.owner(name.dataset), data.purpose or spec.purpose
    if owner == spec.project:
        return ""
    held = datasets.grants(name.dataset).of(spec.project) if owner is not None else []
    asks = f"`trainhouse data grant {data.dataset} --project {shlex.quote(spec.project)} --purpose {shlex.quote(purpose or 'PURPOSE')}`"
    missing = f"project {spec.project} holds no grant of {data.dataset} for {f'purpose {purpose}' if purpose else 'any purpose'}"
    if not held:
        return (
            f"spec.data.dataset: there is no dataset {name.dataset}; publish it: `trainhouse data publish {name.dataset} PATH`. "
            f"If it is another project's, {missing}; its owner gives one: {asks}"
        )
    if purpose is None:
        return (
            f"spec.data.purpose: project {spec.project} uses dataset {name.dataset} by grants, each for a purpose: name one as "
            f"data.purpose, or as purpose of the job. It holds: {_held(held)}"
        )
    sha256 = name.sha256 or datasets.tagged(name.dataset, name.semver) or ""
    if datasets.grants(name.dataset).covers(GrantKey(name.dataset, sha256, spec.project, purpose)):
        return ""
    return f"spec.data.dataset: {missing}; it holds: {_held(held)}. Its owner, project {owner}, gives one: {asks}"


def access_refused(
    datasets: Datasets, submitted: JobSubmitted, submission_id: EventId, reason: str, now_ms: int
) -> DatasetAccessRefused | None:
    """The record of a refusal of another project's dataset, for the audit; None where that is not why the job is refused."""
    spec = submitted.spec
    if spec.data is None or spec.data.dataset is None or reason != why_no_access(datasets, spec):
        return None
    owner = datasets.owner(VersionName.parse(spec.data.dataset).dataset)
    if owner is None:
        return None
    return DatasetAccessRefused(
        reference=spec.data.dataset,
        owner=owner,
        project=spec.project,
        purpose=spec.data.purpose or spec.purpose,
        user=spec.user,
        job_id=submitted.job_id,
        submission_id=submission_id,
        reason=reason,
        refused_at_ms=now_ms,
    )


def granted_by(datasets: Datasets, asked: GrantDataset, now_ms: int) -> DatasetGranted:
    """A grant as it is asked for; sent again to partitions alone where it holds already."""
    resent = GrantKey.of(asked) in datasets.grants(asked.dataset).keys
    return DatasetGranted(**_of_change(datasets, asked), granted_at_ms=now_ms, resent=resent)


def revoked_by(datasets: Datasets, asked: RevokeDatasetGrant, now_ms: int) -> DatasetGrantRevoked:
    """A revocation as it is asked for."""
    return DatasetGrantRevoked(**_of_change(datasets, asked), revoked_at_ms=now_ms)


def _of_change(datasets: Datasets, asked: GrantDataset | RevokeDatasetGrant) -> dict[str, Any]:
    """Fields that both kinds of change have: those of the request, the owner of the dataset, and the number of this change."""
    return {
        "dataset": asked.dataset,
        "sha256": asked.sha256,
        "owner": datasets.owner(asked.dataset) or "",
        "project": asked.project,
        "purpose": asked.purpose,
        "user": asked.user,
        "reason": asked.reason,
        "number": datasets.grants(asked.dataset).number + 1,
        "admission_partitions": asked.admission_partitions,
    }


def _held(keys: list[GrantKey]) -> str:
    return _listed([f"{key.reference} for {key.purpose}" for key in keys])


def _listed(texts: list[str]) -> str:
    return ", ".join(texts[:MAX_LISTED]) + (" …" if len(texts) > MAX_LISTED else "")


def _options(key: GrantKey) -> str:
    return f"{key.reference} --project {shlex.quote(key.project)} --purpose {shlex.quote(key.purpose)}"

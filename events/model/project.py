"""Events about projects: who may do what in one, what its jobs may be for, and how much it may take.

Holds: a project is what its newest ProjectApplied says; a request that does not count is answered by a rejection under its own id, and
all stays as it was. Who approved a purpose, and when, is said by intake, never by the request.
Never: a secret.
"""

from enum import StrEnum
from typing import Final

from pydantic import Field, field_validator

from trainhouse.events.model.absence import is_absent
from trainhouse.events.model.base import Event, Model
from trainhouse.events.model.bounds import MOST_COUNT, CutText, ShortText, SmallCount, TimestampMs
from trainhouse.events.model.labels import Label

EVERY_OTHER: Final = "*"
"""Names what holds for each project that was never declared."""
MAX_MEMBERS: Final = 512
MAX_PURPOSES: Final = 64
MAX_TEXT_CHARS: Final = 65_536
HIGHEST_PRIORITY: Final = 1
"""Of a project that says nothing of it: priority 0 is for projects that were given it."""


GIB: Final = 1 << 30


def storage_refusal(project: str, used_bytes: int, limit_gib: float | None, more_bytes: int = 0) -> str:
    """Returns the reason that a project may not store `more_bytes` on top of what it has, and what to do; empty where it may. `more_bytes`
    0: whether it may store anything at all."""
    if limit_gib is None or used_bytes + max(more_bytes, 1) <= limit_gib * GIB:
        return ""
    more = f", and {more_bytes / GIB:.3g} more were to come" if more_bytes else ""
    return (
        f"project {project} has {used_bytes / GIB:.3g} GiB in the object store and may have {limit_gib:g}{more}: delete artifacts, keep "
        "fewer checkpoints (checkpoint.keep_last), or ask an operator for more"
    )


class MemberRole(StrEnum):
    """Permissions of a member in its project: read; submit and change jobs; manage members and purposes."""

    VIEWER = "viewer"
    SUBMITTER = "submitter"
    MAINTAINER = "maintainer"

    @property
    def submits(self) -> bool:
        """True if the role may submit jobs."""
        return self is not MemberRole.VIEWER


class Purpose(Model):
    """Approved purpose of a project's jobs. Intake fills in the approver and the time, whatever a request contains."""

    description: str = Field("", max_length=1024, description="what it means, for people")
    approved_by: str = Field("", max_length=128, description="who approved it")
    approved_at_ms: TimestampMs | None = Field(None, description="time of that, in milliseconds since 1970")


class ProjectLimits(Model):
    """Limits of a project. `highest_priority`: the lowest number that its jobs may have as `priority`. Absent: no limit.

    `running` and `queued`: jobs of it that have devices, and that wait, in each pool at once. Where "*" has them they count for each
    project that was never declared by itself. `cost_per_month` stops nothing: the alert cost-over-budget fires beyond it.
    """

    highest_priority: int = Field(
        HIGHEST_PRIORITY, ge=0, le=100, description="lowest number that its jobs may have as priority; 0 is the highest, 100 the lowest"
    )
    submissions_per_minute: int | None = Field(None, ge=1, le=1_000_000, description="most submissions in a minute")
    requests_per_minute: int | None = Field(None, ge=1, le=100_000_000, description="most requests to a gateway in a minute")
    storage_gib: float | None = Field(None, gt=0, le=1e9, description="most storage of checkpoints, code and files, in GiB")
    running: int | None = Field(None, ge=1, le=1_000_000, exclude_if=is_absent, description="most jobs that have devices, in each pool")
    queued: int | None = Field(None, ge=1, le=1_000_000, exclude_if=is_absent, description="most jobs that wait, in each pool")
    cost_per_month: float | None = Field(
        None,
        gt=0,
        le=1e12,
        exclude_if=is_absent,
        description="cost in a month, by the prices of policies and in their currency, beyond which an alert fires; stops nothing",
    )


class Project(Model):
    """One project. `members` absent: tokens alone say who may do what; empty: operators alone may. `closed`: takes no new job.

    `name` "*": what holds for every project that was never declared.
    """

    name: Label = Field(description='name of the project; "*": all that were never declared')
    description: str = Field("", max_length=1024, description="what it is, for people")
    members: dict[Label, MemberRole] | None = Field(
        None, max_length=MAX_MEMBERS, description="roles by user; absent: tokens alone say who may do what, empty: only operators may"
    )
    purposes: dict[Label, Purpose] = Field(
        default_factory=dict, max_length=MAX_PURPOSES, description="approved purposes by name; with any, each job names one"
    )
    limits: ProjectLimits = Field(ProjectLimits(), description="how much it may take")
    closed: bool = Field(False, description="whether it takes no new job")

    @field_validator("purposes", mode="before")
    @classmethod
    def _described(cls, given: object) -> object:
        """A purpose may be given by its description alone, as people write it."""
        if not isinstance(given, dict):
            return given
        return {name: {"description": value or ""} if value is None or isinstance(value, str) else value for name, value in given.items()}


class ChangeProject(Event, type="trainhouse.project.change.v1", public_input=True):
    """Request of an operator to declare or change a project.

    `text` is the file as it was written. `admission_partitions` is filled in by intake.
    """

    project: Project = Field(description="project as it shall be")
    replaces: int | None = Field(
        None, ge=0, le=MOST_COUNT, description="version that the change was made from, 0 for none; any other current one refuses it"
    )
    text: str = Field("", max_length=MAX_TEXT_CHARS, description="file as it was written")
    user: str = Field("unknown", max_length=128)
    reason: str = Field("", max_length=1024)
    admission_partitions: int = Field(1, ge=1, le=1024, description="partitions of admission; filled in by intake")

    def subject(self) -> str:
        return self.project.name


class ProjectApplied(Event, type="trainhouse.project.applied.v1"):
    """New state of a project. `version` counts its changes, 1 being the first."""

    project: Project = Field(description="project as it is from here on")
    version: SmallCount = Field(ge=1, description="number of its changes, from 1")
    text: str = Field("", max_length=MAX_TEXT_CHARS, description="file as it was written")
    user: ShortText = "unknown"
    reason: CutText = ""
    applied_at_ms: TimestampMs = Field(description="time from which it counts, in milliseconds since 1970")
    admission_partitions: int = Field(1, ge=1, le=1024, description="partitions of admission")

    def subject(self) -> str:
        return self.project.name


class ProjectLimited(Event, type="trainhouse.project.limited.v1"):
    """So many jobs of a project may run, and wait, in each pool from here on; what runs or waits beyond that stays.

    `project` "*": of each that was never declared. `version` is the project's; a lower one says nothing new.
    """

    project: Label = Field(description='name of the project; "*": each that was never declared')
    version: SmallCount = Field(ge=1, description="version of the project; a lower one says nothing new")
    running: SmallCount | None = Field(None, ge=1, description="most jobs that have devices, in each pool")
    queued: SmallCount | None = Field(None, ge=1, description="most jobs that wait, in each pool")

    def subject(self) -> str:
        return self.project

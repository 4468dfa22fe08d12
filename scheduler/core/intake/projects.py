"""Whether a project takes a job: its purposes, its members, the priorities and the rate that it was given.

Holds: pure; a project that was never declared is as the rule "*" says, and open where there is no such rule; each refusal names the field,
what is wrong with it and what to do. Of one project, its rate is shared out evenly to the partitions of the directory: together they let
through what the project was given over time, and each of them so many at once.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from trainhouse.events import ChangeProject, JobSpec, Project, ProjectApplied, ProjectLimited, Purpose
from trainhouse.events.model.project import EVERY_OTHER
from trainhouse.scheduler.core.intake.bucket import Bucket, Rate, wait_s

# With these roles a gateway lets in people who look after the whole platform: they need be no members.
OPERATORS: Final = frozenset({"operator", "admin"})
MAX_LISTED: Final = 20
# Every partition of the directory keeps every rule, in its state and in each snapshot: 512 members and a file that lists them fit.
MAX_RULE_BYTES: Final = 48 * 1024
MAX_ALL_RULES_BYTES: Final = 4 * 1024 * 1024
Projects = Mapping[str, ProjectApplied]


def rule_of(projects: Projects, name: str) -> ProjectApplied | None:
    """Returns the rule that applies to a project; None: there is none."""
    return projects.get(name) or projects.get(EVERY_OTHER)


def why_not_in(rule: ProjectApplied | None, spec: JobSpec, asked_as: str | None) -> str:
    """Returns the reason for which a project does not take a job; empty if it does."""
    if rule is None:
        return ""
    project = rule.project
    return _closed(project, spec) or _purpose(project, spec) or why_not_priority(project, spec.priority) or _member(project, spec, asked_as)


def why_not_priority(project: Project, priority: int | None) -> str:
    """Returns the reason for which a priority is not the project's to ask for; empty if it is."""
    highest = project.limits.highest_priority
    if priority is None or priority >= highest:
        return ""
    return (
        f"priority: {priority} is higher than {_called(project)} may ask for: its highest is {highest} (0 is the highest of all). "
        f"Use {highest} to 100, or ask an operator to raise the project's limits.highest_priority"
    )


def rate_of(rule: ProjectApplied | None) -> Rate | None:
    """Returns the rate of submissions that one partition of the directory lets through for a project; None: unlimited."""
    if rule is None or rule.project.limits.submissions_per_minute is None:
        return None
    per_minute = rule.project.limits.submissions_per_minute
    return Rate(per_minute, burst=per_minute, shares=rule.admission_partitions)


def too_many(rule: ProjectApplied, rate: Rate, bucket: Bucket | None, now_ms: int) -> str:
    """The sentence for a submission beyond the rate."""
    again_s = max(1, wait_s(rate, bucket, now_ms))
    return (
        f"spec.project: {_called(rule.project)} may submit {rate.per_minute} jobs a minute, and has: submit again in {again_s} s, "
        "or ask an operator to raise the project's limits.submissions_per_minute"
    )


def approved(asked: Project, before: Project | None, user: str, now_ms: int) -> Project:
    """A project with who approved each purpose: as before where the purpose is as before, else the user now."""
    purposes = {}
    for name, purpose in asked.purposes.items():
        known = before.purposes.get(name) if before is not None else None
        if known is None or known.description != purpose.description:
            known = Purpose(description=purpose.description, approved_by=user, approved_at_ms=now_ms)
        purposes[name] = known
    return asked.model_copy(update={"purposes": purposes})


def rule_bytes(applied: ProjectApplied) -> int:
    """Returns the size of a rule, its file's text included, as JSON."""
    return len(applied.model_dump_json().encode())


def why_too_large(projects: Projects, wanted: ProjectApplied) -> str:
    """Returns the reason for which a rule is too large; empty if it is not, or is smaller than the one before."""
    name, size = wanted.project.name, rule_bytes(wanted)
    known = projects.get(name)
    before = rule_bytes(known) if known is not None else 0
    if size <= before:
        return ""
    if size > MAX_RULE_BYTES:
        return (
            f"project {name}: it takes {size} bytes, and at most {MAX_RULE_BYTES} are kept of a project and its file together: make its "
            "descriptions and comments shorter, or divide it"
        )
    others = sum(rule_bytes(applied) for other, applied in projects.items() if other != name)
    if others + size > MAX_ALL_RULES_BYTES:
        return (
            f"project {name}: it takes {size} bytes, and all projects together may have {MAX_ALL_RULES_BYTES}, of which {others} are "
            "taken: make it, or others, shorter"
        )
    return ""


def as_asked(asked: ChangeProject, applied: ProjectApplied) -> bool:
    """Whether a project and its file's text are as a person asks for."""
    return approved(asked.project, applied.project, asked.user, 0) == applied.project and asked.text == applied.text


def same(asked: ChangeProject, applied: ProjectApplied | None) -> bool:
    """Whether a project is as it is asked to be already."""
    return applied is not None and as_asked(asked, applied) and asked.admission_partitions == applied.admission_partitions


def limits_to_publish(projects: Projects, changed: str, before: ProjectApplied | None) -> list[ProjectLimited]:
    """Returns the limits to publish once a project changed. When "*" first bounds jobs: all projects, since it does not hold for those."""
    rule = projects[changed]
    first = changed == EVERY_OTHER and _bounds_jobs(rule) and (before is None or not _bounds_jobs(before))
    names = sorted(projects) if first else [changed]
    return limits_of(projects, names)


def limits_of(projects: Projects, names: Sequence[str]) -> list[ProjectLimited]:
    """Returns the limits of these projects, as schedulers get them."""
    return [
        ProjectLimited(project=name, version=applied.version, running=applied.project.limits.running, queued=applied.project.limits.queued)
        for name in names
        if (applied := projects[name])
    ]


def _bounds_jobs(rule: ProjectApplied) -> bool:
    limits = rule.project.limits
    return limits.running is not None or limits.queued is not None


def _called(project: Project) -> str:
    return "a project that was never declared" if project.name == EVERY_OTHER else f"project {project.name}"


def _closed(project: Project, spec: JobSpec) -> str:
    if not project.closed:
        return ""
    if project.name == EVERY_OTHER:
        return (
            f"spec.project: there is no project {spec.project}, and only declared projects may submit here. Name one of those that "
            f"`trainhouse project list` shows, or ask an operator to declare it: `trainhouse project set {spec.project}.yaml`"
        )
    return f"spec.project: project {project.name} is closed: it takes no new job. Name another project, or ask an operator to open it"


def _purpose(project: Project, spec: JobSpec) -> str:
    listed = ", ".join(sorted(project.purposes)[:MAX_LISTED]) + (" …" if len(project.purposes) > MAX_LISTED else "")
    way_out = f"Name one of: {listed}" if listed else "Leave it out"
    if spec.purpose is None:
        return f"spec.purpose: {_called(project)} needs to know what a job is for. {way_out}" if project.purposes else ""
    if spec.purpose in project.purposes:
        return ""
    return (
        f"spec.purpose: {spec.purpose} is not approved for {_called(project)}. {way_out}, or ask for it: "
        f"`trainhouse project purpose approve {project.name} {spec.purpose}`"
    )


def _member(project: Project, spec: JobSpec, asked_as: str | None) -> str:
    """Only a name that a gateway vouches for is held against the members: what others say of themselves proves nothing."""
    if project.members is None or asked_as is None or asked_as in OPERATORS:
        return ""
    role = project.members.get(spec.user)
    if role is None:
        return f"spec.user: {spec.user} is no member of {_called(project)}. Ask one of its maintainers or an operator to be added"
    if not role.submits:
        return f"spec.user: {spec.user} is a {role} of {_called(project)}, and may not submit. Ask to be made a submitter"
    return ""


def next_version(asked: ChangeProject, before: ProjectApplied | None, now_ms: int) -> ProjectApplied:
    """A project as it is asked to be."""
    return ProjectApplied(
        project=approved(asked.project, before.project if before else None, asked.user, now_ms),
        version=before.version + 1 if before else 1,
        text=asked.text,
        user=asked.user,
        reason=asked.reason,
        applied_at_ms=now_ms,
        admission_partitions=asked.admission_partitions,
    )

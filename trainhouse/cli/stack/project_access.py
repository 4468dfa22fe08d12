"""`trainhouse project …`: who may do what in a project, what its jobs may be for, and how much it may take.

Holds: a file is checked whole before anything is sent, with its line; a change is made from the version that was read, so that of two at
once one is refused; what is printed as applied is what intake said.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import Json, KafkaDir, Timeout

if TYPE_CHECKING:
    from trainhouse.events import Project, ProjectApplied

NameArgument = Annotated[str, typer.Argument(metavar="PROJECT", help="Name of the project; * for all undeclared ones.", show_default=False)]
UserArgument = Annotated[str, typer.Argument(metavar="USER", help="As in their tokens.", show_default=False)]
PurposeArgument = Annotated[str, typer.Argument(metavar="PURPOSE", show_default=False)]
Reason = Annotated[str, typer.Option(help="Kept with the change.")]
TRIES = 5


def register(app: typer.Typer) -> None:
    """Adds the group. Other commands about projects are added here."""
    group = typer.Typer(no_args_is_help=True, help="Declare and show projects: members, what jobs may be for, and limits.")
    for name, command in (("set", set_project), ("show", show), ("list", list_projects)):
        group.command(name)(command)
    members = typer.Typer(no_args_is_help=True, help="Add and remove members of a project.")
    members.command("add")(add_member)
    members.command("remove")(remove_member)
    group.add_typer(members, name="members")
    purpose = typer.Typer(no_args_is_help=True, help="Approve and revoke what jobs of a project may be for.")
    purpose.command("approve")(approve)
    purpose.command("revoke")(revoke)
    group.add_typer(purpose, name="purpose")
    app.add_typer(group, name="project")


def set_project(
    file: Annotated[Path, typer.Argument(metavar="FILE.yaml", help="The project as it shall be.", show_default=False)],
    reason: Reason = "",
    timeout: Timeout = 30.0,
    json: Json = False,
    data_dir: KafkaDir = None,
) -> None:
    """Declare a project, or make it what a file says, and wait until it counts.

    \b
    trainhouse project set vision.yaml

    \b
    # vision.yaml; without `members` tokens alone say who may do what
    name: vision
    members: {ana: maintainer, bo: submitter, eve: viewer}
    purposes:
      defect-detection: finding faults on the line
    limits: {highest_priority: 20, submissions_per_minute: 30,
             requests_per_minute: 6000, storage_gib: 500, running: 8,
             queued: 100, cost_per_month: 20000}

    A file with `name: "*"` and `closed: true` refuses the jobs of every project that was never declared.
    """
    project, text = read(file)
    _print_applied(_changed(project.name, lambda _: project, reason, timeout, text), json=json, file=str(file))


def show(name: NameArgument, json: Json = False, data_dir: KafkaDir = None) -> None:
    """Show a project as it is now: a file to change and set again; its version on standard error.

    \b
    trainhouse project show vision > vision.yaml
    """
    from trainhouse.cli.shared import output

    applied = _known(name)
    if json:
        output.json_lines([applied.model_dump(mode="json")])
        return
    why = f": {applied.reason}" if applied.reason else ""
    output.remark(f"project {name}: version {applied.version}, set {output.clock(applied.applied_at_ms)} UTC by {applied.user}{why}")
    for purpose, approval in applied.project.purposes.items():
        output.remark(f"purpose {purpose}: approved {output.clock(approval.approved_at_ms)} UTC by {approval.approved_by}")
    sys.stdout.write(applied.text if applied.text.strip() else as_yaml(_model_of(applied).project))


def list_projects(json: Json = False, data_dir: KafkaDir = None) -> None:
    """List declared projects, with their limits.

    \b
    trainhouse project list --json
    """
    from trainhouse.cli.shared import output

    found = [applied for _, applied in sorted(_projects().items())]
    if json:
        output.json_lines(applied.model_dump(mode="json") for applied in found)
        return
    if not found:
        output.remark("no project was declared: every one is open; `trainhouse project set FILE.yaml` declares one")
        return
    limits = ("highest", "jobs/min", "requests/min", "storage GiB", "running", "queued", "cost/month")
    columns = ("project", "members", "purposes", *limits, "closed", "version", "set by")
    output.table(columns, map(_cells, found), right=("members", *limits, "version"), drop=("set by", "version", "purposes", *limits))


def add_member(
    name: NameArgument,
    user: UserArgument,
    role: Annotated[str, typer.Option(help="viewer reads; submitter submits jobs; maintainer looks after the project.")] = "submitter",
    reason: Reason = "",
    timeout: Timeout = 30.0,
    json: Json = False,
    data_dir: KafkaDir = None,
) -> None:
    """Add a member, or give a member another role.

    \b
    trainhouse project members add vision bo --role submitter
    """
    from trainhouse.events import MemberRole

    if role not in list(MemberRole):
        raise CliError(f"{role!r} is no role of a member; there are {', '.join(MemberRole)}", Exit.USAGE)

    def change(project: "Project") -> dict[str, Any]:
        if project.members is None:
            raise CliError(
                f"project {name} has no list of members: tokens alone say who may do what. Give it one first, with everybody who "
                f"shall stay: `trainhouse project show {name} > {name}.yaml`, add `members:`, `trainhouse project set {name}.yaml`",
                Exit.USAGE,
            )
        return {"members": {**project.members, user: role}}

    _print_applied(_altered(name, change, reason, timeout), json=json)


def remove_member(
    name: NameArgument, user: UserArgument, reason: Reason = "", timeout: Timeout = 30.0, json: Json = False, data_dir: KafkaDir = None
) -> None:
    """End a membership: gateways refuse the project to tokens of this user within a second, and end their streams.

    \b
    trainhouse project members remove vision bo
    """

    def change(project: "Project") -> dict[str, Any]:
        members = project.members or {}
        if user not in members:
            raise CliError(f"{user} is no member of project {name}; its members: {', '.join(sorted(members)) or 'none'}", Exit.NOT_FOUND)
        return {"members": {member: role for member, role in members.items() if member != user}}

    _print_applied(_altered(name, change, reason, timeout), json=json)


def approve(
    name: NameArgument,
    purpose: PurposeArgument,
    description: Annotated[str, typer.Option(help="What it means; people read it.")] = "",
    reason: Reason = "",
    timeout: Timeout = 30.0,
    json: Json = False,
    data_dir: KafkaDir = None,
) -> None:
    """Allow jobs of a project to be for this; you are recorded as the approver.

    \b
    trainhouse project purpose approve vision defect-detection \\
        --description "finding faults on the line"
    """

    def change(project: "Project") -> dict[str, Any]:
        purposes = {p: approval.model_dump() for p, approval in project.purposes.items()}
        return {"purposes": {**purposes, purpose: {"description": description}}}

    _print_applied(_altered(name, change, reason, timeout), json=json)


def revoke(
    name: NameArgument,
    purpose: PurposeArgument,
    reason: Reason = "",
    timeout: Timeout = 30.0,
    json: Json = False,
    data_dir: KafkaDir = None,
) -> None:
    """Allow no new job of a project to be for this; those that were admitted go on.

    \b
    trainhouse project purpose revoke vision defect-detection
    """

    def change(project: "Project") -> dict[str, Any]:
        if purpose not in project.purposes:
            listed = ", ".join(sorted(project.purposes)) or "none"
            raise CliError(f"{purpose} is no purpose of project {name}; it has: {listed}", Exit.NOT_FOUND)
        return {"purposes": {p: approval.model_dump() for p, approval in project.purposes.items() if p != purpose}}

    _print_applied(_altered(name, change, reason, timeout), json=json)


def read(file: Path) -> "tuple[Project, str]":
    """A valid project and its text. Raises CliError with file, line and field."""
    from pydantic import ValidationError

    from trainhouse.cli.jobs import spec_file
    from trainhouse.events import Project
    from trainhouse.events.wire.validation_messages import explain_each
    from trainhouse.scheduler.core.intake.projects import MAX_RULE_BYTES

    found = spec_file.read(file)
    size = file.stat().st_size
    if size > MAX_RULE_BYTES:
        raise CliError(f"{file}: it has {size} bytes, and at most {MAX_RULE_BYTES} are kept of a project\nnothing was sent", Exit.USAGE)
    try:
        return Project.model_validate(found.data), file.read_text()
    except ValidationError as error:
        problems = [f"{file}:{found.line(path)}: {text}" for path, text in explain_each(error, Project)]
        raise CliError("\n".join(problems) + "\nnothing was sent", Exit.USAGE) from error


def as_yaml(project: "Project") -> str:
    """A project as a file; who approved what is left out, since a file cannot say it."""
    import yaml

    fields = project.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    fields |= {"purposes": {name: purpose.description for name, purpose in project.purposes.items()}} if project.purposes else {}
    fields |= {"limits": project.limits.model_dump(mode="json", exclude_none=True)}
    return str(yaml.safe_dump(fields, sort_keys=False, allow_unicode=True))


def _altered(name: str, change: Callable[["Project"], dict[str, Any]], reason: str, timeout_s: float) -> "ProjectApplied | None":
    """Changes fields of a project that there is."""
    from trainhouse.events import Project

    def changed(applied: "ProjectApplied | None") -> "Project":
        if applied is None:
            raise _unknown(name)
        return Project.model_validate(applied.project.model_dump() | change(applied.project))

    return _changed(name, changed, reason, timeout_s)


def _changed(
    name: str, change: Callable[["ProjectApplied | None"], "Project"], reason: str, timeout_s: float, text: str = ""
) -> "ProjectApplied | None":
    """Asks for a change until it is made from the newest version; None: all is so already. Raises CliError."""
    import getpass

    from trainhouse.client import ChangeRefusedError, TrainhouseClient
    from trainhouse.events import ChangeProject
    from trainhouse.scheduler.core.intake.projects import approved

    fleet, user = TrainhouseClient.from_settings().fleet(), getpass.getuser()
    for attempt in range(TRIES):
        known = fleet.projects().get(name)
        wanted = change(known)
        if known is not None and known.text == text and approved(wanted, known.project, user, 0) == known.project:
            return None
        asked = ChangeProject(project=wanted, replaces=known.version if known else 0, text=text, user=user, reason=reason)
        try:
            return fleet.change_project(asked, timeout_s)
        except ChangeRefusedError as refused:
            if "was made from version" not in str(refused) or attempt == TRIES - 1:
                raise CliError(f"project {name} stays as it was: {refused}", Exit.REJECTED) from refused
    raise AssertionError("the last attempt returns or raises")


def _print_applied(applied: "ProjectApplied | None", *, json: bool, file: str = "") -> None:
    from trainhouse.cli.shared import output

    if applied is None:
        output.remark(f"{file or 'the project'} is so already: nothing changed")
    elif json:
        output.json_lines([applied.model_dump(mode="json", exclude={"text"})])
    else:
        project = applied.project
        members = "no list of members" if project.members is None else f"{len(project.members)} members"
        summary = f"project {project.name}: version {applied.version}, {members}, {len(project.purposes)} purposes"
        sys.stdout.write(f"{summary}{', closed' if project.closed else ''}\n")


def _projects() -> "dict[str, ProjectApplied]":
    from trainhouse.client.quick.quick_reads import from_topics
    from trainhouse.events.wire.topics import PROJECTS

    return from_topics(
        lambda topics: {applied.project.name: applied for applied in topics.newest_of(PROJECTS, "trainhouse.project.applied.v1")},
        lambda client: client.fleet().projects(),
    )


def _model_of(applied: "ProjectApplied") -> "ProjectApplied":
    """The model, where it was read plainly."""
    from trainhouse.events import ProjectApplied

    return applied if isinstance(applied, ProjectApplied) else ProjectApplied.model_validate(applied.model_dump(mode="json"))


def _known(name: str) -> "ProjectApplied":
    found = _projects().get(name)
    if found is None:
        raise _unknown(name)
    return found


def _unknown(name: str) -> CliError:
    return CliError(f"project {name} was never declared; `trainhouse project set FILE.yaml` declares it", Exit.NOT_FOUND)


def _cells(applied: "ProjectApplied") -> tuple[Any, ...]:
    project = applied.project
    limits = project.limits
    return (
        project.name,
        "by tokens" if project.members is None else len(project.members),
        ", ".join(sorted(project.purposes)),
        limits.highest_priority,
        limits.submissions_per_minute,
        limits.requests_per_minute,
        limits.storage_gib,
        limits.running,
        limits.queued,
        limits.cost_per_month,
        "yes" if project.closed else "",
        applied.version,
        applied.user,
    )

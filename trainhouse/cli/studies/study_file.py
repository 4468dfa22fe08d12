"""A study as a YAML file: its name, its project and its spec, with errors that name file, line and field.

Holds: pure but for the reading; `job:` takes what a job's spec file takes.
"""

import copy
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from trainhouse.cli.jobs import spec_file
from trainhouse.cli.jobs.spec_file import SpecFile
from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.events.model.default_project import DEFAULT_PROJECT

if TYPE_CHECKING:
    from trainhouse.events import StudySpec

_FIELD: Final = re.compile(r"[A-Za-z_][\w-]*(\.[\w-]+)*")
_OF_STUDY: Final = ("name", "project")


@dataclass(frozen=True)
class WrittenStudy:
    """A study as a file and the options on top of it have it."""

    project: str
    name: str
    spec: "StudySpec"


def read_study(path: Path, name: str | None, project: str | None, user: str) -> WrittenStudy:
    """Reads a file; `name` and `project` go on top of it. Raises CliError with a sentence and a line for each problem."""
    file = spec_file.read(path)
    fields = copy.deepcopy(file.data)
    about = {"name": name, "project": project}
    for field in _OF_STUDY:
        given = fields.pop(field, None)
        about[field] = _label(file, field, about[field] if about[field] is not None else given)
    owner = about["project"] or DEFAULT_PROJECT
    if about["name"] is None:
        raise CliError(f"{file.name}: name: required, but missing; write `name: …`, or use --name", Exit.USAGE)
    _complete(file, fields, owner, about["name"], user)
    return WrittenStudy(owner, about["name"], _valid(file, fields))


def _label(file: SpecFile, field: str, value: Any) -> str | None:
    from pydantic import TypeAdapter, ValidationError

    from trainhouse.events.model.labels import Label
    from trainhouse.events.model.study import StudyName

    if value is None:
        return None
    try:
        return str(TypeAdapter(StudyName if field == "name" else Label).validate_python(value))
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False)[0]["msg"]
        raise CliError(f"{file.name}:{file.line((field,))}: {field}: {problem} (got {str(value)[:80]!r})", Exit.USAGE) from error


def _complete(file: SpecFile, fields: dict[str, Any], project: str, name: str, user: str) -> None:
    """Fills in what the job has of the study. Raises CliError where it is of another project."""
    job = fields.get("job")
    if not isinstance(job, dict):
        return  # validation names it
    if job.get("project", project) != project:
        line = file.line(("job", "project"))
        raise CliError(
            f"{file.name}:{line}: job.project is {job['project']}, and the study's project is {project}; leave it out", Exit.USAGE
        )
    for field, value in (("name", name), ("user", user), ("project", project)):
        job.setdefault(field, value)


def _valid(file: SpecFile, fields: dict[str, Any]) -> "StudySpec":
    from pydantic import ValidationError

    from trainhouse.events import StudySpec
    from trainhouse.events.model.study_shorthand import spelled_out
    from trainhouse.events.wire.validation_messages import explain_each

    try:
        return StudySpec.model_validate(spelled_out(fields))
    except ValidationError as error:
        placed = (_placed(file, path, text) for path, text in explain_each(error, StudySpec))
        problems = "\n".join(f"  {line}" for line in dict.fromkeys(placed))
        raise CliError(f"the study is not valid:\n{problems}", Exit.USAGE) from error


def _placed(file: SpecFile, path: tuple[str | int, ...], text: str) -> str:
    # What is wrong between fields is found at none of them: then the text begins with the field.
    named = _FIELD.match(text)
    words = tuple(named[0].split(".") if named else ())
    space = file.data.get("space")
    if isinstance(space, dict) and words[:1] and words[0] in space:
        words = ("space", *words)
    found = path or words
    return f"{file.name}:{file.line(found)}: {text}"

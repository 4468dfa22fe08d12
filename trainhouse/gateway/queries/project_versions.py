"""Versions of projects as the tables have them: the one that a request made, also where others have changed the project since."""

from __future__ import annotations

from trainhouse.events import ChangeProject, Project
from trainhouse.events.model.project import ProjectLimits
from trainhouse.events.security.sensitive import masked_json
from trainhouse.gateway.queries.sql_reader import Row, SqlReader

_VERSION = "SELECT * FROM projects_rows FINAL WHERE project = {project:String} AND version = {version:UInt32} LIMIT 1"


async def version_made(reader: SqlReader, asked: ChangeProject) -> int | None:
    """Returns the version that a request made of the one it was made from; None: it made none, or the tables do not have it yet."""
    if asked.replaces is None:
        return None
    version = asked.replaces + 1
    found = await reader.one(_VERSION, {"project": asked.project.name, "version": version})
    if found is None or found["user"] != asked.user or shown(_project(found)) != shown(_unapproved(asked.project)):
        return None
    return version


def _project(row: Row) -> Project:
    """The project of a row, without the approvals of its purposes. Tables of before lack some limits."""
    limits = {name: row.get(name) for name in ProjectLimits.model_fields}
    members = dict(zip(row["member_names"], row["member_roles"], strict=True)) if row["by_members"] else None
    purposes = dict(zip(row["purpose_names"], row["purpose_descriptions"], strict=True))
    about = {"name": row["project"], "description": row["description"], "closed": bool(row["closed"])}
    return Project.model_validate(about | {"members": members, "purposes": purposes, "limits": limits})


def shown(project: Project) -> Project:
    """A project as the tables show it within events: a purpose named `env` is masked there, like the `env` of a spec."""
    return Project.model_validate_json(masked_json(project.model_dump_json()))


def _unapproved(project: Project) -> Project:
    purposes = {name: purpose.description for name, purpose in project.purposes.items()}
    return Project.model_validate(project.model_dump() | {"purposes": purposes})

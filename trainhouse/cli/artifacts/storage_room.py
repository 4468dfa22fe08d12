"""Limit of a project's space in the object store, checked before `trainhouse artifact put` stores anything.

Holds: the limit and what the project has are those of the tables; where these do not answer, a line says that it was not checked. A
project that was never declared has the limit of `*`.
"""

from typing import TYPE_CHECKING, Final

from trainhouse.cli.shared.exit_codes import CliError, Exit

if TYPE_CHECKING:
    from trainhouse.client.backend_protocol import Sql

_SQL: Final = """
SELECT storage_gib, (SELECT sum(total_bytes) FROM project_storage WHERE project = {project:String}) AS total_bytes
FROM projects WHERE project IN ({project:String}, '*') ORDER BY project = '*' LIMIT 1
"""


def check_room(tables: "Sql", project: str, more_bytes: int) -> None:
    """Raises CliError where the project may not store so many bytes more. `more_bytes` 0: it has all of them. Blocks."""
    from trainhouse.cli.shared import output
    from trainhouse.client.errors import ClientError
    from trainhouse.events.model.project import storage_refusal

    if not more_bytes:
        return
    try:
        rows = tables.table(_SQL, {"project": project}).dicts()
    except ClientError as error:
        output.remark(f"the storage limit of project {project} is not checked: {error}")
        return
    for row in rows:
        if why := storage_refusal(project, int(row["total_bytes"]), row["storage_gib"], more_bytes):
            raise CliError(f"{why}\nnothing was stored", Exit.REJECTED)

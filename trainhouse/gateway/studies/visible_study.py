"""One study as its asker may see it: a study of another project does not exist for it."""

from typing import Annotated, Final

from fastapi import Path, Query

from trainhouse.gateway.auth.roles import Principal
from trainhouse.gateway.context import Gateway
from trainhouse.gateway.problems import not_found
from trainhouse.gateway.queries.sql_reader import Row
from trainhouse.projections.study_listing import OF_STUDY, STUDY_COLUMNS, study_row

NamePath = Annotated[str, Path(description="The study's name.", min_length=1, max_length=128)]
ProjectQuery = Annotated[str, Query(description="Project that the study belongs to.", min_length=1, max_length=128)]
_ONE: Final = f"SELECT {STUDY_COLUMNS}, spec FROM studies WHERE {OF_STUDY}"


async def visible_study(here: Gateway, principal: Principal, project: str, name: str) -> Row:
    """Returns a study. Raises ProblemError 404 where the asker may not see it."""
    found = await here.reader.one(_ONE, {"project": project, "study": name}) if principal.sees(project) else None
    if found is None:
        raise not_found(f"study {name}")
    return study_row(found)

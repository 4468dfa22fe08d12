"""Studies and trials as the tables have them, or as the gateway gives them: the same rows by both ways, without models.

Holds: a study that is not there, or not the asker's to see, is an UnknownStudyError.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from trainhouse.client.errors import UnknownStudyError
from trainhouse.client.gateway.exchange import Flow, NotFoundError, Request, ask, everything

if TYPE_CHECKING:
    from trainhouse.client.backend_protocol import Row, Sql
    from trainhouse.client.gateway.sql import FlowRunner

STUDIES: Final = "/v1/hpo/studies"
_PAGE: Final = 1000


@dataclass(frozen=True)
class StudyReads:
    """Reads by one way: `sql` of the tables, or `gateway`, whose routes know what their asker may see. Each blocks."""

    sql: "Sql | None" = None
    gateway: "FlowRunner | None" = None

    def studies(self, project: str | None) -> "list[Row]":
        """Studies with their best trials, the newest first."""
        if self.gateway is not None:
            about = {"project": project} if project is not None else {}
            return self.gateway.run(everything(STUDIES, about | {"limit": _PAGE}))
        from trainhouse.projections.study_listing import STUDY_COLUMNS, study_row

        where = "WHERE project = {project:String} " if project is not None else ""
        query = f"SELECT {STUDY_COLUMNS} FROM studies {where}ORDER BY created_at DESC, project, study"
        return [study_row(row) for row in self._rows(query, {} if project is None else {"project": project})]

    def study(self, project: str, name: str) -> "Row":
        """One study with its spec and, as `cost`, what its trials took by state. Raises UnknownStudyError."""
        if self.gateway is not None:
            return self.gateway.run(_study(project, name))
        from trainhouse.projections.study_listing import COST_COLUMNS, OF_STUDY, STUDY_COLUMNS, study_row

        of = {"project": project, "study": name}
        found = self._rows(f"SELECT {STUDY_COLUMNS}, spec FROM studies WHERE {OF_STUDY}", of)
        if not found:
            raise UnknownStudyError(project, name)
        cost = self._rows(f"SELECT {COST_COLUMNS} FROM study_cost WHERE {OF_STUDY} ORDER BY state", of)
        return study_row(found[0]) | {"cost": cost}

    def why(self, project: str, name: str) -> "Row":
        """Spending of a study: on which trials, the savings of early stopping, and the bound that comes next. Raises UnknownStudyError."""
        if self.gateway is not None:
            return self.gateway.run(_study(project, name, "why"))
        from trainhouse.projections.study_spending import RUNNING_DEVICE_S, spending

        study = self.study(project, name)
        [running] = self._rows(RUNNING_DEVICE_S, {"project": project, "study": name})
        return spending(study, study["cost"], running["device_s"], time.time_ns() // 1_000_000)

    def trials(self, project: str, name: str) -> "list[Row]":
        """Trials of a study by number."""
        if self.gateway is not None:
            return self.gateway.run(everything(study_path(name, "trials"), {"project": project, "limit": _PAGE}))
        from trainhouse.projections.study_listing import OF_STUDY, TRIAL_COLUMNS, trial_row

        query = f"SELECT {TRIAL_COLUMNS} FROM trials WHERE {OF_STUDY} ORDER BY trials.trial"
        return [trial_row(row) for row in self._rows(query, {"project": project, "study": name})]

    def facts(self, project: str, name: str) -> "list[Row]":
        """Decisions about trials of a study, oldest first."""
        if self.gateway is not None:
            return self.gateway.run(everything(study_path(name, "facts"), {"project": project, "limit": _PAGE}))
        from trainhouse.projections.study_listing import FACT_COLUMNS, FACT_WHERE, OF_STUDY, fact_row

        query = f"SELECT {FACT_COLUMNS} FROM study_facts FINAL WHERE {OF_STUDY} AND {FACT_WHERE} ORDER BY study_facts.number"
        return [fact_row(row) for row in self._rows(query, {"project": project, "study": name})]

    def query(self, statement: str) -> "list[Row]":
        """Rows of a statement, which over a gateway is for those who see all projects. Raises QueryError, AccessDeniedError."""
        if self.gateway is not None:
            from trainhouse.client.gateway.sql import GatewaySql

            return GatewaySql(self.gateway).table(statement).dicts()
        return self._rows(statement, {})

    def _rows(self, query: str, values: Mapping[str, str | int]) -> "list[Row]":
        assert self.sql is not None  # nosec B101  # one of both is there
        return self.sql.table(query, values).dicts()


def study_path(name: str, *words: str) -> str:
    """Address of a study, or of a part of it."""
    return "/".join((STUDIES, quote(name, safe=""), *words))


def study_reads() -> StudyReads:
    """Reads by the way that environment and settings file name. Raises ClientError."""
    from trainhouse.client.quick.quick_reads import GatewayReads, quick_reads

    quick = quick_reads()
    if isinstance(quick, GatewayReads):
        return StudyReads(gateway=quick.gateway)
    if quick is not None:
        return StudyReads(sql=quick.sql)
    from trainhouse.client import TrainhouseClient
    from trainhouse.client.gateway.backend import ByGateway

    way = TrainhouseClient.from_settings().way
    return StudyReads(gateway=way) if isinstance(way, ByGateway) else StudyReads(sql=way.sql)


def _study(project: str, name: str, *words: str) -> Flow[dict[str, Any]]:
    try:
        answer = yield from ask(Request("GET", study_path(name, *words), {"project": project}))
    except NotFoundError as error:
        raise UnknownStudyError(project, name) from error
    found: dict[str, Any] = answer.json()
    return found

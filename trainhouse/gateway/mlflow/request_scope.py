"""Scope of one request: its caller, the projects visible to it, and its writes.

Holds: what belongs to another project is as if it were not there; nothing is written to what is deleted; a read sees all that was written
before it, by any gateway.
"""

import secrets
import time
from typing import Annotated, Any, cast

from fastapi import Depends, Request

from trainhouse.events import Event
from trainhouse.events.model.tracking import DEFAULT_EXPERIMENT, DEFAULT_EXPERIMENT_ID, is_model_id, project_of
from trainhouse.events.wire.topics import TRACKING
from trainhouse.gateway.auth.authentication import Submitter, Viewer
from trainhouse.gateway.auth.roles import Principal
from trainhouse.gateway.context import Gateway, Here
from trainhouse.gateway.mlflow.errors import invalid, missing
from trainhouse.gateway.mlflow.mlflow_ports import EVERYTHING, Ports, ports_of_settings
from trainhouse.gateway.mlflow.search import EXPERIMENT_COLUMNS, MODEL_COLUMNS
from trainhouse.gateway.mlflow.whole_runs import RUN_SQL, run_of
from trainhouse.gateway.queries.freshness import freshness_of

KNOWN_S = 5.0
MAX_KNOWN = 10_000
Row = dict[str, Any]


class RequestScope:
    """Scope of one request, for the routes. Every method but those of rights waits for a server."""

    def __init__(self, principal: Principal, gateway: Gateway, ports: Ports) -> None:
        self.principal = principal
        self.reader = gateway.reader
        self.bus = gateway.bus
        self.settings = gateway.settings
        self.storage = gateway.storage
        self.ports = ports
        self.models = gateway.models

    async def send(self, *events: Event) -> None:
        """Events of tracking, each when the one before is acked. Raises BusUnavailableError."""
        for event in events:
            await self.bus.send(TRACKING, event, secrets.token_hex(16))

    async def fresh(self, *topics: str) -> None:
        """From here on a read sees what was written before."""
        await self.ports.freshness.reached(*(topics or EVERYTHING))

    async def run(self, run_id: str, *topics: str) -> Row:
        """A run as it is now; what is read after it is as fresh in `topics`. Raises MlflowError RESOURCE_DOES_NOT_EXIST."""
        await self.fresh(TRACKING, *topics)
        return self.visible_run(await self._read_run(run_id), run_id)

    def visible_run(self, found: Row | None, run_id: str) -> Row:
        """The run that was read, if there is one and the caller may see it. Raises MlflowError RESOURCE_DOES_NOT_EXIST for both."""
        if found is None or not self.principal.sees(found["project"]) or is_model_id(run_id):
            raise missing(f"run {run_id}")
        return found

    async def keeper(self, run_id: str) -> Row:
        """The run, or logged model, that has files under this id, as it is now: with `job_id`, `project`, `experiment_id`. Raises
        MlflowError."""
        return await (self.logged_model(run_id) if is_model_id(run_id) else self.run(run_id))

    async def active_keeper(self, run_id: str) -> Row:
        """The same to write to, as it was a few seconds ago at worst."""
        return await (self.active_model(run_id) if is_model_id(run_id) else self.active_run(run_id))

    async def logged_model(self, model_id: str, allows_deleted: bool = False) -> Row:
        """A logged model as it is now; what is read after it is as fresh. Raises MlflowError RESOURCE_DOES_NOT_EXIST."""
        await self.fresh(TRACKING)
        return self._visible_model(await self._read_model(model_id), model_id, allows_deleted)

    async def active_model(self, model_id: str) -> Row:
        """A logged model to write to, as it was a few seconds ago at worst. Raises MlflowError."""
        known = self.ports.runs.get(model_id)
        found = cast(Row, known[1]) if known and known[0] > time.monotonic() else await self._read_model(model_id)
        found = self._visible_model(found, model_id) if found is not None else await self.logged_model(model_id)
        self.remember(found)
        return found

    def _visible_model(self, found: Row | None, model_id: str, allows_deleted: bool = False) -> Row:
        if found is None or not self.principal.sees(found["project"]) or (found["deleted"] and not allows_deleted):
            raise missing(f"logged model {model_id}")
        return found

    async def _read_model(self, model_id: str) -> Row | None:
        sql = f"SELECT {MODEL_COLUMNS} FROM logged_models WHERE model_id = {{id:String}} LIMIT 1"
        found = await self.reader.one(sql, {"id": model_id})
        return found | {"job_id": model_id} if found is not None else None

    async def active_run(self, run_id: str) -> Row:
        """A run to write to, as it was a few seconds ago at worst. Raises MlflowError."""
        known = self.ports.runs.get(run_id)
        found = cast(Row, known[1]) if known and known[0] > time.monotonic() else await self._read_run(run_id)
        found = self.visible_run(found, run_id) if found is not None else await self.run(run_id)
        if found.get("is_mixed"):
            raise invalid(f"the id {run_id} is also that of a run of another project, so nothing more is logged to it; begin another run")
        if found["deleted"]:
            raise invalid(f"the run {run_id} is deleted; restore it first")
        self.remember(found)
        return found

    def remember(self, run: Row) -> None:
        """Keeps what is known of a run for a few seconds."""
        if len(self.ports.runs) >= MAX_KNOWN:
            self.ports.runs.clear()
        self.ports.runs[run["job_id"]] = (time.monotonic() + KNOWN_S, run)

    def forget(self, run_id: str) -> None:
        """Reads it anew the next time."""
        self.ports.runs.pop(run_id, None)

    async def experiment(self, experiment_id: str) -> Row:
        """An experiment as it is now; the default one is always there. Raises MlflowError RESOURCE_DOES_NOT_EXIST."""
        sql = f"SELECT {EXPERIMENT_COLUMNS} FROM experiments WHERE experiment_id = {{id:String}} LIMIT 1"
        found = await self.reader.one(sql, {"id": experiment_id})
        if found is None:
            await self.fresh(TRACKING)
            found = await self.reader.one(sql, {"id": experiment_id})
        if found is None and experiment_id == DEFAULT_EXPERIMENT_ID:
            found = _DEFAULT
        if found is None or not self.principal.sees(found["project"]):
            raise missing(f"experiment {experiment_id}")
        return found

    async def _read_run(self, run_id: str) -> Row | None:
        return run_of(await self.reader.rows(RUN_SQL, {"ids": [run_id]}), run_id, self.principal.sees)


_DEFAULT: Row = {
    "experiment_id": DEFAULT_EXPERIMENT_ID,
    "name": DEFAULT_EXPERIMENT,
    "project": project_of(DEFAULT_EXPERIMENT),
    "deleted": 0,
    "created_ms": 0,
    "updated_ms": 0,
}


def ports_of(request: Request) -> Ports:
    """The app's ports, made when they are needed first."""
    state = request.app.state
    if not hasattr(state, "mlflow"):
        state.mlflow = ports_of_settings(freshness_of(request))
    return cast(Ports, state.mlflow)


def _reader(principal: Viewer, here: Here, ports: Annotated[Ports, Depends(ports_of)]) -> RequestScope:
    return RequestScope(principal, here, ports)


def _writer(principal: Submitter, here: Here, ports: Annotated[Ports, Depends(ports_of)]) -> RequestScope:
    return RequestScope(principal.writing(), here, ports)


Reading = Annotated[RequestScope, Depends(_reader)]
Writing = Annotated[RequestScope, Depends(_writer)]

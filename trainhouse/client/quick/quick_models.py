"""Models, their versions and the conditions of their gates, without the models of events: statuses from their topic, the rest by the
gateway, which folds the same history as the whole client.

Holds: what the gateway answers is at least as new as the model's newest status on the topic; else NotQuickError.
"""

from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from trainhouse.client.backend_protocol import Row
from trainhouse.client.errors import ClientError
from trainhouse.client.gateway.exchange import Request, ask
from trainhouse.client.quick.quick_gateway import QuickGateway
from trainhouse.client.quick.quick_topics import NotQuickError, QuickTopics
from trainhouse.events.wire.topics import MODELS

STATUS: Final = "trainhouse.model.status.v1"
# Of a version, in the order of the model of its facts but for the project.
FACTS: Final = (
    "content",
    "job_id",
    "commit",
    "trained_by",
    "schema_sha256",
    "code_sha256",
    "data",
    "splits",
    "framework",
    "size_bytes",
    "missing",
)
ABOUT: Final = ("version", "semver", "stage", "registered_by", "registered_at_ms", "emergency", "approvers", "evidence")


@dataclass(frozen=True)
class VersionRow:
    """One version as JSON for programs, and how many evaluations it has."""

    row: Row
    evaluations: int


@dataclass(frozen=True)
class QuickModels:
    """Models of one stack. Methods block, and raise NotQuickError."""

    topics: QuickTopics
    gateway: QuickGateway | None

    def statuses(self) -> list[Row]:
        """The newest status of each model, by project and name, without the time of its publication."""
        found = {f"{event.project}/{event.name}": event for event in self.topics.newest_of(MODELS, STATUS)}
        return [found[key].model_dump(mode="json", exclude={"updated_at_ms"}) for key in sorted(found)]

    def versions(self, project: str, name: str) -> list[VersionRow] | None:
        """The versions of a model, oldest first; None where it is known that there is none of the name."""
        status = self._status(project, name)
        if status is None:
            return None
        model, listed = self._answers(project, name)
        _check_newer(model, status)
        if len(listed) != model["version_count"]:
            raise NotQuickError("a version came meanwhile")
        return [_version(project, name, each) for each in reversed(listed)]

    def why(self, project: str, name: str, version: str) -> tuple[list[Row], str] | None:
        """The conditions of the gate for a version as JSON, and the hash of its evidence; None as in `versions`."""
        status = self._status(project, name)
        if status is None:
            return None
        gateway = self._known_gateway()
        try:
            _check_newer(gateway.run(ask(Request("GET", _path(name), {"project": project, "limit": 1}))).json(), status)
            path = f"{_path(name)}/versions/{quote(version, safe='')}/why"
            found = gateway.run(ask(Request("GET", path, {"project": project}))).json()
            return found["conditions"], found["evidence"]
        except (ClientError, KeyError, TypeError) as error:
            raise NotQuickError(str(error)) from error

    def _status(self, project: str, name: str) -> Any:
        """The newest status of a model; None where it has none."""
        return next((each for each in self.topics.newest_of(MODELS, STATUS) if (each.project, each.name) == (project, name)), None)

    def _answers(self, project: str, name: str) -> tuple[Row, list[Row]]:
        """A model, and all its versions, newest first."""
        gateway = self._known_gateway()
        try:
            params = {"project": project, "limit": 100}
            model = gateway.run(ask(Request("GET", _path(name), params))).json()
            found = [*model["versions"]]
            while model["next_cursor"] is not None:
                model = gateway.run(ask(Request("GET", _path(name), params | {"cursor": model["next_cursor"]}))).json()
                found += model["versions"]
            return model, found
        except (ClientError, KeyError, TypeError) as error:
            raise NotQuickError(str(error)) from error

    def _known_gateway(self) -> QuickGateway:
        if self.gateway is None:
            raise NotQuickError("no gateway is known")
        return self.gateway


def _path(name: str) -> str:
    return f"/v1/models/{quote(name, safe='')}"


def _check_newer(model: Row, status: Any) -> None:
    """Raises NotQuickError where the gateway has not read as far as the topic."""
    if not isinstance(model.get("number"), int) or model["number"] < status.number:
        raise NotQuickError("the gateway is behind")


def _version(project: str, name: str, listed: Row) -> VersionRow:
    try:
        row = {"project": project, "name": name} | {field: listed[field] for field in ABOUT}
        row |= {field: listed[field] for field in FACTS if field in listed}
        figures = {each["suite"]: {of: figure["value"] for of, figure in each["metrics"].items()} for each in listed["evaluations"]}
        if not all(isinstance(value, int | float) for by_name in figures.values() for value in by_name.values()):
            raise NotQuickError("a figure is no number")
        return VersionRow(row | {"metrics": figures}, len(listed["evaluations"]))
    except (KeyError, TypeError, AttributeError) as error:
        raise NotQuickError(f"the gateway is of another version: {error!r}") from error

"""Models, their versions and the conditions of their gates, without the models of events: statuses from their topic, the rest by the
gateway, which folds the same history as the whole client.

Holds: what is answered is at least as new as the model's newest decision when the command began; else NotQuickError. Decisions without a
status (evidence, approvals, notes) change nothing of it but the model's number.
"""

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from trainhouse.client.backend_protocol import Row
from trainhouse.client.errors import ClientError
from trainhouse.client.gateway.exchange import Request, ask
from trainhouse.client.quick.quick_gateway import QuickGateway
from trainhouse.client.quick.quick_topics import NotQuickError, QuickTopics
from trainhouse.events.model.model_key import model_key
from trainhouse.events.wire.topics import MODEL_HISTORY, MODELS

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
        numbers = self._numbers()  # first: a status comes with its decision
        found = {model_key(event.project, event.name): event for event in self.topics.newest_of(MODELS, STATUS)}
        rows = {key: each.model_dump(mode="json", exclude={"updated_at_ms"}) for key, each in found.items()}
        return [rows[key] | {"number": max(rows[key]["number"], numbers.get(key, 0))} for key in sorted(rows)]

    def versions(self, project: str, name: str) -> list[VersionRow] | None:
        """The versions of a model, oldest first; None where it is known that there is none of the name."""
        number = self._number(project, name)
        if number is None:
            return None
        model, listed = self._answers(project, name, number)
        if len(listed) != model["version_count"]:
            raise NotQuickError("a version came meanwhile")
        return [_version(project, name, each) for each in reversed(listed)]

    def why(self, project: str, name: str, version: str) -> tuple[list[Row], str] | None:
        """The conditions of the gate for a version as JSON, and the hash of its evidence; None as in `versions`."""
        number = self._number(project, name)
        if number is None:
            return None
        gateway = self._known_gateway()
        try:
            _check_newer(gateway.run(ask(Request("GET", _path(name), {"project": project, "limit": 1}))).json(), number)
            path = f"{_path(name)}/versions/{quote(version, safe='')}/why"
            found = gateway.run(ask(Request("GET", path, {"project": project}))).json()
            return found["conditions"], found["evidence"]
        except (ClientError, KeyError, TypeError) as error:
            raise NotQuickError(str(error)) from error

    def _number(self, project: str, name: str) -> int | None:
        """The number of a model's newest decision; None where it has no status."""
        numbers = self._numbers()
        for each in self.topics.newest_of(MODELS, STATUS):
            if (each.project, each.name) == (project, name):
                return max(int(each.number), numbers.get(model_key(project, name), 0))
        return None

    def _numbers(self) -> dict[str, int]:
        """The number of the newest decision about each model, by its key."""
        import orjson

        found: dict[str, int] = {}
        try:
            for message in self.topics.messages(MODEL_HISTORY):
                number = orjson.loads(message.value() or b"")["data"].get("number")  # a refusal has none
                if isinstance(number, int):
                    found[(message.key() or b"").decode()] = number
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise NotQuickError(f"topic {MODEL_HISTORY}: {error!r}") from error
        return found

    def _answers(self, project: str, name: str, number: int) -> tuple[Row, list[Row]]:
        """A model, and all its versions, newest first, no page older than a decision."""
        gateway = self._known_gateway()
        try:
            params, cursor, found = {"project": project, "limit": 100}, dict[str, str](), list[Row]()
            while True:
                model = gateway.run(ask(Request("GET", _path(name), params | cursor))).json()
                _check_newer(model, number)
                found += model["versions"]
                if model["next_cursor"] is None:
                    return model, found
                cursor = {"cursor": model["next_cursor"]}
        except (ClientError, KeyError, TypeError) as error:
            raise NotQuickError(str(error)) from error

    def _known_gateway(self) -> QuickGateway:
        if self.gateway is None:
            raise NotQuickError("no gateway is known")
        return self.gateway


def _path(name: str) -> str:
    return f"/v1/models/{quote(name, safe='')}"


def _check_newer(model: Row, number: int) -> None:
    """Raises NotQuickError where the gateway has not read as far as a decision."""
    if not isinstance(model.get("number"), int) or model["number"] < number:
        raise NotQuickError("the gateway is behind")


def _version(project: str, name: str, listed: Row) -> VersionRow:
    try:
        row = {"project": project, "name": name} | {field: listed[field] for field in ABOUT}
        row |= {field: listed[field] for field in FACTS if field in listed}
        figures = {each["suite"]: {of: figure["value"] for of, figure in each["metrics"].items()} for each in listed["evaluations"]}
        if not all(isinstance(value, int | float) for by_name in figures.values() for value in by_name.values()):
            raise NotQuickError("a figure is no number")
        return VersionRow(row | {"evaluation_jobs": listed["evaluation_jobs"], "metrics": figures}, len(listed["evaluations"]))
    except (KeyError, TypeError, AttributeError) as error:
        raise NotQuickError(f"the gateway is of another version: {error!r}") from error

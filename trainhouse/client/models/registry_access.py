"""Models as the registry has them, and requests to it, over Kafka or over the gateway: what commands on evidence need of either.

Holds: a request returns when the registry has answered it; a refusal is an exception with the registry's own words. Over the gateway the
requester is the token's.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from trainhouse.client.errors import ClientError
from trainhouse.client.gateway.exchange import Flow, NotFoundError, Request, ask
from trainhouse.events import ModelCompared, ModelEvaluated, ModelEvaluationRequested, ModelGate, ModelStage
from trainhouse.events.model.model_key import model_key
from trainhouse.events.model.model_registry import ModelRequest
from trainhouse.scheduler.core.registry.registry_state import EvaluationJob

if TYPE_CHECKING:
    from trainhouse.client.client import TrainhouseClient
    from trainhouse.client.gateway.backend import ByGateway
    from trainhouse.scheduler.core.registry.registry_state import ModelEntry

_PAGE = 100
_ROUTES: dict[type[ModelRequest], str] = {
    ModelEvaluated: "evaluations",
    ModelCompared: "comparisons",
    ModelEvaluationRequested: "evaluate",
}
Evidence = ModelEvaluated | ModelCompared | ModelEvaluationRequested
"""What is asked for: that a result or a comparison is recorded, or that jobs evaluate a version."""


class UnknownModelError(ClientError):
    """The registry has no such model, or version of it; the message says which."""


@dataclass(frozen=True)
class KnownVersion:
    """A version, with the evidence that the registry keeps of it, the newest last."""

    version: int
    semver: str
    stage: ModelStage
    content: str
    evaluations: tuple[ModelEvaluated, ...]
    comparisons: tuple[ModelCompared, ...]
    jobs: tuple[EvaluationJob, ...] = ()


@dataclass(frozen=True)
class KnownModel:
    """A model with its versions, by ordinal."""

    project: str
    name: str
    gate: ModelGate
    versions: tuple[KnownVersion, ...]

    @property
    def key(self) -> str:
        """For people."""
        return model_key(self.project, self.name)

    def find(self, selector: str) -> KnownVersion:
        """A version by ordinal, semver or stage (the newest in staging). Raises UnknownModelError."""
        for each in reversed(self.versions):
            if selector in (str(each.version), each.semver) or (selector in ("champion", "staging") and each.stage.value == selector):
                return each
        what = f"no {selector}" if selector in ("champion", "staging") else f"no version {selector}"
        raise UnknownModelError(f"model {self.key} has {what}; `trainhouse models show {self.key}` lists them")


class RegistryAccess(Protocol):
    """The registry. Both methods block."""

    def model(self, project: str, name: str) -> KnownModel:
        """A model. Raises UnknownModelError, ClientError."""

    def record(self, request: Evidence, timeout_s: float) -> None:
        """Sends evidence, or asks for it, and waits until that counts. Raises ChangeRefusedError, NoReplyError."""


@dataclass(frozen=True)
class KafkaRegistry:
    """Over Kafka, by the registry's history."""

    client: "TrainhouseClient"

    def model(self, project: str, name: str) -> KnownModel:
        from trainhouse.scheduler.core.registry.registry_view import RegistryView

        found = RegistryView.of(self.client.models().history()).find(project, name)
        if found is None:
            raise _unknown(project, name)
        return _of_entry(found)

    def record(self, request: Evidence, timeout_s: float) -> None:
        self.client.models().ask(request, timeout_s)


@dataclass(frozen=True)
class GatewayRegistry:
    """Over the gateway's API."""

    way: "ByGateway"

    def model(self, project: str, name: str) -> KnownModel:
        try:
            return self.way.run(_model(project, name))
        except NotFoundError as error:
            raise _unknown(project, name) from error

    def record(self, request: Evidence, timeout_s: float) -> None:
        fields = request.model_dump(mode="json", exclude={"project", "name", "user", "requested_by"})
        path = f"{_path(request.name)}/{_ROUTES[type(request)]}"
        self.way.run(ask(Request("POST", path, {"project": request.project}, fields)))


def registry_access(client: "TrainhouseClient") -> RegistryAccess:
    """The registry by the way that the client's settings name."""
    from trainhouse.client.gateway.backend import ByGateway

    return GatewayRegistry(client.way) if isinstance(client.way, ByGateway) else KafkaRegistry(client)


def _of_entry(model: "ModelEntry") -> KnownModel:
    versions = (
        KnownVersion(each.version, each.semver, each.stage, each.facts.content, each.evaluations, each.comparisons, each.jobs)
        for each in model.versions
    )
    return KnownModel(model.project, model.name, model.gate, tuple(versions))


def _model(project: str, name: str) -> Flow[KnownModel]:
    found = list[KnownVersion]()
    query: dict[str, Any] = {"project": project, "limit": _PAGE}
    while True:
        page = (yield from ask(Request("GET", _path(name), query))).json()
        found += [_version(each, project, name) for each in page["versions"]]
        if page.get("next_cursor") is None:
            return KnownModel(project, name, ModelGate.model_validate(page["gate"]), tuple(reversed(found)))
        query["cursor"] = page["next_cursor"]


def _version(row: dict[str, Any], project: str, name: str) -> KnownVersion:
    of_model = {"project": project, "name": name}
    return KnownVersion(
        int(row["version"]),
        str(row["semver"]),
        ModelStage(row["stage"]),
        str(row["content"]),
        tuple(ModelEvaluated.model_validate(each | of_model) for each in row["evaluations"]),
        tuple(ModelCompared.model_validate(each | of_model) for each in row.get("comparisons", ())),
        tuple(EvaluationJob(attempt=1, spec_sha256="", **each) for each in row.get("evaluation_jobs", ())),
    )


def _path(name: str) -> str:
    return f"/v1/models/{quote(name, safe='')}"


def _unknown(project: str, name: str) -> UnknownModelError:
    return UnknownModelError(f"project {project} has no model {name}; `trainhouse models list` shows what there is")

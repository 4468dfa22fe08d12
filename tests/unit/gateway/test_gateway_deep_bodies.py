"""Bodies of requests that are nested however deep: the request is refused as its sender's fault, in the form of its API."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi import FastAPI
from pydantic import BaseModel
from starlette.testclient import TestClient
from structlog.testing import capture_logs

from trainhouse.gateway import problems
from trainhouse.gateway.mlflow.bodies import OfRun
from trainhouse.gateway.mlflow.errors import MlflowRoute
from trainhouse.gateway.routes.writes import Review, Submission

DEPTHS = (70, 250, 900, 960, 990, 1020, 5000)
BODIES: tuple[type[BaseModel], ...] = (Submission, Review, OfRun)


def of(model: type[BaseModel]) -> str:
    return f"/{model.__name__.lower()}"


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    """The gateway's answers to errors, with one route for each body in both APIs; and one that is itself at fault."""
    app = FastAPI()
    problems.register(app)
    for model in BODIES:

        async def taken(body: BaseModel) -> dict[str, str]:
            return {}

        taken.__annotations__["body"] = model
        app.post(of(model))(taken)
        app.router.add_api_route(f"/mlflow{of(model)}", taken, methods=["POST"], route_class_override=MlflowRoute)

    async def faulty(body: OfRun) -> dict[str, str]:
        raise RecursionError("a fault of its own")

    app.post("/faulty")(faulty)
    app.router.add_api_route("/mlflow/faulty", faulty, methods=["POST"], route_class_override=MlflowRoute)
    with capture_logs(), TestClient(app, raise_server_exceptions=False) as found:
        yield found


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("model", BODIES)
def test_a_deep_body_is_the_senders_fault(client: TestClient, model: type[BaseModel], depth: int) -> None:
    for field in ["unknown", *model.model_fields]:
        for opens, closes in (("[", "]"), ('{"a":', "}")):
            content = f'{{"{field}":{opens * depth}1{closes * depth}}}'
            for path in (of(model), f"/mlflow{of(model)}"):
                told = client.post(path, content=content, headers={"content-type": "application/json"})
                assert 400 <= told.status_code < 500, (path, field, told.text[:300])
                assert len(told.content) < 2000


@pytest.mark.parametrize("path", ["/faulty", "/mlflow/faulty"])
def test_a_fault_of_the_gateway_is_its_own(client: TestClient, path: str) -> None:
    assert client.post(path, json={"run_id": "r"}).status_code == 500
    assert client.post(path, content=b"no JSON", headers={"content-type": "application/json"}).status_code < 500

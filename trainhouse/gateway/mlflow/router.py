"""MLflow's routes, gathered: `mlflow.set_tracking_uri(gateway)` finds them all.

Holds: every error has MLflow's form; what Trainhouse does not have is answered as such, never as a fault.
"""

from typing import Any

from fastapi import APIRouter

from trainhouse.gateway.auth.authentication import Viewer
from trainhouse.gateway.mlflow import artifact_routes, experiment_routes, log_routes, logged_model_routes, registry_routes, run_routes
from trainhouse.gateway.mlflow.errors import MlflowError, MlflowRoute, unsupported

router = APIRouter(tags=["mlflow"], include_in_schema=False)
for _module in (run_routes, log_routes, experiment_routes, logged_model_routes, registry_routes):
    router.include_router(_module.router)

rest = APIRouter(route_class=MlflowRoute)
_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]


@rest.get("/api/3.0/mlflow/server-info")
@rest.get("/api/3.0/mlflow/server-features")
async def server_info(_: Viewer) -> dict[str, Any]:
    """Server capabilities, which newer clients request first."""
    return {
        "store_type": "trainhouse",
        "workspaces_enabled": False,
        "multipart_uploads_enabled": False,
        "multipart_downloads_enabled": False,
    }


@rest.api_route("/api/2.0/mlflow/runs/log-model", methods=_METHODS)
async def models(_: Viewer) -> None:
    """Models as the clients of before logged models had them."""
    raise unsupported("Trainhouse keeps models as MLflow 3's clients log them (`log_model(name=…)`): update the client")


@rest.api_route("/api/2.0/mlflow/{path:path}", methods=_METHODS)
@rest.api_route("/api/3.0/mlflow/{path:path}", methods=_METHODS)
async def others(_: Viewer, path: str) -> None:
    """Rejects all other routes of MLflow: traces, prompts."""
    raise MlflowError(
        "ENDPOINT_NOT_FOUND",
        f"Trainhouse does not have MLflow's {path[:100]!r}; it has experiments, runs, artifacts, logged models and the model registry",
    )


router.include_router(artifact_routes.router)
router.include_router(rest)

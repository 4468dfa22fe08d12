"""Attempts with leave to a real store, and requests that none of them has a right to."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import urllib3

from trainhouse.checkpointing.lease.signed_store import LeasedObjectStore
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.checkpointing.stores.s3 import S3ObjectStore
from trainhouse.events import GangAllocated
from trainhouse.workers.agent.launch.lease_socket import StoreLeases
from trainhouse.workers.launcher import AttemptPaths

if TYPE_CHECKING:
    from trainhouse.deploy.local.servers.seaweedfs import StoreServer

SAMPLE = Path(__file__).parents[2] / "events" / "contract" / "samples" / "trainhouse.gang.allocated.v1.json"


def settings_of(server: StoreServer, **changes: Any) -> StoreSettings:
    """The store with the agent's key."""
    given: dict[str, Any] = {"endpoint": server.endpoint, "bucket": server.bucket, "deadline_s": 20.0}
    return StoreSettings(**(given | {"access_key": server.access_key, "secret_key": server.secret_key} | changes))


def allocation(
    job_id: str,
    epoch: int = 1,
    project: str = "lm",
    resume_from: str | None = None,
    dataset: str | None = None,
    owner: str | None = None,
    purpose: str | None = None,
) -> GangAllocated:
    """An allocation of one attempt; `dataset`: the version that its spec names, for a purpose, of another project where `owner` says so."""
    told = json.loads(SAMPLE.read_text())
    told = told.get("data", told)
    told |= {"job_id": job_id, "epoch": epoch}
    told["spec"] |= {"project": project, "resume_from": resume_from}
    if dataset is not None:
        told["spec"]["data"] = {"dataset": dataset, "owner": owner, "purpose": purpose}
    return GangAllocated.model_validate(told)


def fresh(name: str) -> str:
    """A job's id that no other test has."""
    return f"{name}-{uuid.uuid4().hex[:10]}"


@dataclass
class Attempt:
    """One attempt as its ranks and its agent see it."""

    server: StoreServer
    leases: StoreLeases
    told: GangAllocated
    paths: AttemptPaths

    @classmethod
    def begun(cls, server: StoreServer, leases: StoreLeases, folder: Path, told: GangAllocated) -> Attempt:
        paths = AttemptPaths.of(folder, str(told.job_id), int(told.epoch))
        paths.code.mkdir(parents=True, exist_ok=True)
        leases.begin(told, paths)
        return cls(server, leases, told, paths)

    def store(self, **changes: Any) -> LeasedObjectStore:
        """What its ranks see of the store."""
        given: dict[str, Any] = {"endpoint": self.server.endpoint, "bucket": self.server.bucket, "deadline_s": 20.0}
        return LeasedObjectStore(StoreSettings(**(given | {"lease": self.paths.store_socket} | changes)))


def plain(server: StoreServer) -> S3ObjectStore:
    """The store as who has its key sees it."""
    return S3ObjectStore(settings_of(server))


def asked(method: str, url: str, headers: dict[str, str] | None = None, body: bytes | None = None) -> tuple[int, bytes]:
    """Status and body of one request, sent as it is."""
    with urllib3.PoolManager(retries=False, timeout=30.0) as pool:
        answer = pool.request(method, url, headers=headers or {}, body=body)
        return answer.status, answer.data

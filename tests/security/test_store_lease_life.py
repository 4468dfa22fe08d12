"""Leave to the store while things go wrong: the agent dies and comes back, a newer attempt starts, clocks are off, keys end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from tests.security.store_lease_support import Attempt, allocation, fresh, plain, settings_of
from tests.support.stack.sts_store import STS_ROLE
from tests.support.waiting import until
from trainhouse.checkpointing.chain.chunks import SHARED_PREFIX, chunk_key, chunks_prefix
from trainhouse.checkpointing.chain.commits import commit_key, read_entry
from trainhouse.checkpointing.chain.manifest import Manifest, encode
from trainhouse.checkpointing.checkpointer import Checkpointer, CheckpointerSettings
from trainhouse.checkpointing.errors import ObjectStoreRefusedError, ObjectStoreUnavailableError, StaleEpochError
from trainhouse.checkpointing.lease.lease_facts import owner_key, say_owner
from trainhouse.checkpointing.stores.object_store import ObjectStore
from trainhouse.workers.agent.launch import lease_grants
from trainhouse.workers.agent.launch.attempt_dirs import key_of
from trainhouse.workers.agent.launch.environment import NodeSide, RankFolders, rank_environment
from trainhouse.workers.agent.launch.lease_socket import StoreLeases
from trainhouse.workers.agent.main import store_environment

if TYPE_CHECKING:
    from trainhouse.deploy.local.servers.seaweedfs import StoreServer

pytestmark = pytest.mark.stack


@pytest.fixture
def leases(object_store_endpoint: StoreServer) -> Iterator[StoreLeases]:
    made = StoreLeases(settings_of(object_store_endpoint))
    yield made
    made.close()


def saved(objects: ObjectStore, job: str, epoch: int, value: float, step: int = 1) -> Checkpointer:
    at = Checkpointer(CheckpointerSettings(job, epoch, 0, "spec"), objects)
    at.save({"w": torch.full((100_000,), value)}, {}, step, 1.0)
    return at


def restored(objects: ObjectStore, job: str, epoch: int, resume_from: str | None = None) -> float | None:
    state = {"w": torch.zeros(100_000)}
    report = Checkpointer(CheckpointerSettings(job, epoch, 0, "spec"), objects).restore(state, lambda own: None, resume_from)
    return None if report.restored is None else float(state["w"][0])


def test_no_key_of_the_store_is_in_a_ranks_environment(object_store_endpoint: StoreServer) -> None:
    told = allocation(fresh("env"))
    settings = settings_of(object_store_endpoint)
    node = NodeSide({}, store_environment(settings))
    env = rank_environment(told, told.placements[0], told.placements[0].first_rank, RankFolders("/a", "/a/rank-0"), node)
    assert settings.secret_key is not None
    assert not any(settings.secret_key.get_secret_value() in value or str(settings.access_key) in value for value in env.values())
    assert not any(name.startswith("AWS_") or name.endswith(("ACCESS_KEY", "SECRET_KEY")) for name in env)
    assert env["TRAINHOUSE_S3_LEASE"] == "/a/store.sock" and env["TRAINHOUSE_S3_ENDPOINT"] == settings.endpoint


def test_a_save_goes_on_when_the_agent_comes_back(object_store_endpoint: StoreServer, leases: StoreLeases, tmp_path: Path) -> None:
    told = allocation(fresh("back"))
    attempt = Attempt.begun(object_store_endpoint, leases, tmp_path, told)
    at = Checkpointer(CheckpointerSettings(str(told.job_id), 1, 0, "spec"), attempt.store(deadline_s=60.0))
    at.claim()
    leases.close()
    done = threading.Thread(target=lambda: at.save({"w": torch.full((100_000,), 7.0)}, {}, 1, 1.0))
    done.start()
    time.sleep(0.5)
    assert done.is_alive(), "without an agent nothing is signed"
    again = StoreLeases(settings_of(object_store_endpoint))
    Attempt.begun(object_store_endpoint, again, tmp_path, told)  # as an adopting agent does
    done.join(60)
    assert not done.is_alive() and restored(plain(object_store_endpoint), str(told.job_id), 2) == 7.0
    again.close()


def test_an_agent_that_stays_away_is_named(object_store_endpoint: StoreServer, leases: StoreLeases, tmp_path: Path) -> None:
    attempt = Attempt.begun(object_store_endpoint, leases, tmp_path, allocation(fresh("away")))
    leases.close()
    until(lambda: not leases._open)
    with pytest.raises(ObjectStoreUnavailableError, match=r"within 1 s .*node's agent, which gives leave to the store, does not answer"):
        attempt.store(deadline_s=1.0).get(commit_key(str(attempt.told.job_id), 0))


def test_a_replaced_attempt_is_told_so_and_one_that_is_over_gets_nothing(
    object_store_endpoint: StoreServer, leases: StoreLeases, tmp_path: Path
) -> None:
    job = fresh("stale")
    old = Attempt.begun(object_store_endpoint, leases, tmp_path, allocation(job, 1))
    store = old.store(deadline_s=2.0)
    assert store.stat(commit_key(job, 0)) is None
    new = Attempt.begun(object_store_endpoint, leases, tmp_path, allocation(job, 2))
    with pytest.raises(StaleEpochError, match=r"epoch 2 of job .* this attempt, of epoch 1, must end"):
        store.put_if_absent(commit_key(job, 0), b"late")
    assert new.store().put_if_absent(commit_key(job, 0), b"mine")
    leases.end(key_of(old.told))
    with pytest.raises(ObjectStoreUnavailableError):
        old.store(deadline_s=1.0).get(commit_key(job, 0))


def test_who_has_another_uid_is_not_let_in(object_store_endpoint: StoreServer, leases: StoreLeases, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs to change its uid")
    attempt = Attempt.begun(object_store_endpoint, leases, tmp_path, allocation(fresh("uid")))
    attempt.paths.store_socket.chmod(0o666)  # as if its folder and mode did not keep others out
    for folder in (attempt.paths.folder, *attempt.paths.folder.parents):
        if folder.is_relative_to("/tmp") and folder != Path("/tmp"):
            folder.chmod(0o755)
    # By its name alone: the whole path may be longer than a socket's address.
    ask = "import os, socket, sys; os.chdir(os.path.dirname(sys.argv[1])); s = socket.socket(socket.AF_UNIX); "
    ask += "s.connect(os.path.basename(sys.argv[1])); s.sendall(b'{\"asks\":[]}\\n'); print(s.recv(100))"
    for uid, found in ((65534, "b''"), (0, "b'{\"answers\":[]}\\n'")):
        run = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", sys.executable, "-I", "-S", "-c", ask]
        done = subprocess.run([*run, str(attempt.paths.store_socket)], capture_output=True, text=True, timeout=60, check=False, cwd="/")
        if "Permission" in done.stderr and uid:
            continue  # this python is not for others, which keeps them out as well
        assert done.stdout.strip() in (found, "") and (uid or done.stdout.strip() == found), done.stderr


def test_a_clock_that_is_off_costs_a_warning_not_the_save(
    object_store_endpoint: StoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for off_s in (-600, 600):
        real = time.time
        monkeypatch.setattr(lease_grants.time, "time", lambda real=real, off_s=off_s: real() + off_s)
        leases = StoreLeases(settings_of(object_store_endpoint))
        told = allocation(fresh("clock"))
        attempt = Attempt.begun(object_store_endpoint, leases, tmp_path, told)
        saved(attempt.store(), str(told.job_id), 1, 3.0)
        assert restored(attempt.store(), str(told.job_id), 2) == 3.0
        monkeypatch.undo()
        assert "this machine's clock is not the store's" in "".join(capsys.readouterr())
        leases.close()


def test_a_checkpoint_of_the_first_format_is_restored_by_leave_and_no_other_shared_chunk_is_read(
    object_store_endpoint: StoreServer, leases: StoreLeases, tmp_path: Path
) -> None:
    job, key = fresh("old"), plain(object_store_endpoint)
    saved(key, job, 1, 5.0)
    manifest = read_entry(key, job, 1)
    assert isinstance(manifest, Manifest)
    for chunk in manifest.chunks:
        key.put(chunk_key(chunk.sha256, SHARED_PREFIX), key.get(chunk_key(chunk.sha256, chunks_prefix(job))))
        key.delete(chunk_key(chunk.sha256, chunks_prefix(job)))
    key.put(commit_key(job, 1), encode(manifest.model_copy(update={"kind": "checkpoint"})))
    heir = fresh("heir")
    heirs = Attempt.begun(object_store_endpoint, leases, tmp_path, allocation(heir, 1, resume_from=job))
    with pytest.raises(ObjectStoreRefusedError, match=f"trainhouse store own {job} --project lm"):
        restored(heirs.store(), heir, 1, job)
    say_owner(key, job, "lm")
    heirs = Attempt.begun(object_store_endpoint, leases, tmp_path, allocation(heir, 2, resume_from=job))
    assert restored(heirs.store(), heir, 2, job) == 5.0
    own = Attempt.begun(object_store_endpoint, leases, tmp_path, allocation(job, 2))
    assert restored(own.store(), job, 2) == 5.0
    # A manifest that a rank makes up now, of the old format and an old epoch: it opens nothing that is not there for this job.
    liar = fresh("liar")
    lies = Attempt.begun(object_store_endpoint, leases, tmp_path, allocation(liar, 1))
    made_up = manifest.model_copy(update={"kind": "checkpoint", "job_id": liar, "commit": 0, "epoch": 0})
    assert lies.store().put_if_absent(commit_key(liar, 0), encode(made_up))
    with pytest.raises(ObjectStoreRefusedError, match="not among the rights"):
        lies.store().get(chunk_key(manifest.chunks[0].sha256, SHARED_PREFIX))


def test_a_jobs_name_that_another_project_has_in_the_store_gets_nothing(
    object_store_endpoint: StoreServer, leases: StoreLeases, tmp_path: Path
) -> None:
    job = fresh("taken")
    Attempt.begun(object_store_endpoint, leases, tmp_path / "a", allocation(job, 1, "vision")).store().stat(commit_key(job, 0))
    thief = Attempt.begun(object_store_endpoint, leases, tmp_path / "b", allocation(job, 2, "lm"))
    with pytest.raises(ObjectStoreRefusedError, match="a job of this name is of another one"):
        thief.store().get(commit_key(job, 0))
    assert b"vision" in plain(object_store_endpoint).get(owner_key(job))


def test_keys_that_end_are_cut_down_to_the_job(object_store_with_sts: StoreServer, tmp_path: Path) -> None:
    leases = StoreLeases(settings_of(object_store_with_sts, sts_role_arn=STS_ROLE))
    job, other = fresh("sts"), fresh("other")
    plain(object_store_with_sts).put(commit_key(other, 0), b"secret")
    attempt = Attempt.begun(object_store_with_sts, leases, tmp_path, allocation(job))
    saved(attempt.store(), job, 1, 9.0)
    assert restored(attempt.store(), job, 2) == 9.0
    s3, bucket = attempt.store()._client(), object_store_with_sts.bucket
    tried = 0
    for attack in (
        lambda: s3.get_object(Bucket=bucket, Key=commit_key(other, 0)),
        lambda: s3.put_object(Bucket=bucket, Key=commit_key(other, 1), Body=b""),
        lambda: s3.delete_object(Bucket=bucket, Key=commit_key(other, 0)),
        lambda: s3.list_objects_v2(Bucket=bucket, Prefix=f"jobs/{other}/"),
        lambda: s3.list_objects_v2(Bucket=bucket),
        lambda: s3.copy_object(Bucket=bucket, Key=commit_key(job, 9), CopySource=f"{bucket}/{commit_key(other, 0)}"),
        lambda: s3.put_object(Bucket=bucket, Key=owner_key(job), Body=b""),
        lambda: s3.delete_object(Bucket=bucket, Key=commit_key(job, 0)),
    ):
        try:
            answer = attack()
        except Exception as refused:
            assert re.search(r"AccessDenied|403|rights", str(refused)), refused
        else:
            pytest.fail(f"probe {tried} got through: {answer}")
        tried += 1
    assert s3.list_buckets()["Buckets"] == []
    print(f"{tried} probes with keys that end, 0 succeeded")
    leases.close()


def test_a_store_without_sts_has_each_request_signed(object_store_endpoint: StoreServer, tmp_path: Path) -> None:
    leases = StoreLeases(settings_of(object_store_endpoint, sts_role_arn=STS_ROLE))
    job = fresh("nosts")
    attempt = Attempt.begun(object_store_endpoint, leases, tmp_path, allocation(job))
    saved(attempt.store(), job, 1, 2.0)
    assert restored(attempt.store(), job, 2) == 2.0
    leases.close()

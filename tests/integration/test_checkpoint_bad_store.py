"""A real store that is slow, lies, refuses or fails every third call: it costs saves and a sentence, and nothing false is restored."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch

from tests.support.faulty_store import Faults, door_to
from trainhouse.checkpointing.chain.retention import RetentionPolicy
from trainhouse.checkpointing.checkpointer import Checkpointer, CheckpointerSettings
from trainhouse.checkpointing.errors import InvalidStateError, KeysEndedError, ObjectStoreRefusedError, ObjectStoreUnavailableError
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.checkpointing.stores.object_store import Body
from trainhouse.checkpointing.stores.s3 import S3ObjectStore
from trainhouse.checkpointing.uploading.upload_helper import UploadHelper
from trainhouse.deploy.local.servers.seaweedfs import StoreServer
from trainhouse.workers.session.saving.checkpoint_saver import CommitSaver
from trainhouse.workers.session.saving.tracked_state import Tracked

pytestmark = pytest.mark.stack
JOBS = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreServer]:
    torch.set_num_threads(1)
    with StoreServer(tmp_path_factory.mktemp("store")) as running:
        yield running


@dataclass
class Training:
    """A rank alone as a session has it, behind a door to the store: saves by an upload process of its own."""

    settings: StoreSettings
    faults: Faults
    job_id: str

    def attempt(self, epoch: int, helper: UploadHelper | None = None) -> tuple[CommitSaver, Tracked]:
        """The saver of an attempt, and a model that is not trained yet."""
        store = S3ObjectStore(self.settings)
        checkpointer = Checkpointer(CheckpointerSettings(self.job_id, epoch, epoch - 1, "spec"), store, helper=helper)
        model = torch.nn.Linear(64, 64)
        with torch.no_grad():
            model.weight.zero_()
        return CommitSaver(checkpointer, RetentionPolicy(10, 0, "loss", "min"), None), Tracked(model)


@pytest.fixture(scope="module")
def behind_a_door(server: StoreServer) -> Iterator[tuple[StoreSettings, Faults, UploadHelper]]:
    """The process that uploads is all tests' own: to start one takes seconds."""
    with door_to(int(server.endpoint.rpartition(":")[2])) as (address, faults):
        keys = {"access_key": server.access_key, "secret_key": server.secret_key, "bucket": server.bucket}
        settings = StoreSettings.model_validate(keys | {"endpoint": address, "deadline_s": 3.0, "read_timeout_s": 2.0})
        found = UploadHelper(settings)
        yield settings, faults, found
        found.close()


@pytest.fixture
def training(behind_a_door: tuple[StoreSettings, Faults, UploadHelper]) -> Training:
    settings, faults, _ = behind_a_door
    faults.reset()
    return Training(settings, faults, f"bad-store-{next(JOBS)}")


@pytest.fixture
def helper(behind_a_door: tuple[StoreSettings, Faults, UploadHelper]) -> UploadHelper:
    return behind_a_door[2]


def step(tracked: Tracked, saver: CommitSaver, number: int) -> bool:
    """Trains a step and saves it; returns whether there is a checkpoint of it. Never raises what a store may do."""
    assert isinstance(tracked.model, torch.nn.Linear)
    with torch.no_grad():
        tracked.model.weight += 1
    return saver.save(tracked, number, {}) and saver.settle() is not None


def weight(tracked: Tracked) -> float:
    assert isinstance(tracked.model, torch.nn.Linear)
    assert torch.equal(tracked.model.weight, torch.full((64, 64), float(tracked.model.weight.detach()[0, 0])))
    return float(tracked.model.weight.detach()[0, 0])


def of_chunks(method: str, path: str) -> bool:
    return method in ("GET", "PUT") and "/chunks/" in path


def test_a_store_that_refuses_costs_saves_until_it_does_not(
    training: Training, helper: UploadHelper, capfd: pytest.CaptureFixture[str]
) -> None:
    saver, tracked = training.attempt(1, helper)
    assert saver.restore(tracked) == 0 and step(tracked, saver, 1)
    training.faults.refuses = lambda method, path: method == "PUT"
    assert not step(tracked, saver, 2)
    said = capfd.readouterr().err
    assert "the checkpoint of step 2 was not saved, training goes on" in said and training.settings.address in said
    assert "refused" in said and "(AccessDenied)" in said and "check the bucket and the keys" in said
    training.faults.refuses = lambda method, path: False
    assert step(tracked, saver, 3)
    saver, fresh = training.attempt(2)
    training.faults.refuses = lambda method, path: method == "GET"
    with pytest.raises(ObjectStoreRefusedError, match="check the bucket and the keys"):
        saver.restore(fresh)
    training.faults.refuses = lambda method, path: False
    saver, fresh = training.attempt(3)
    assert saver.restore(fresh) == 3 and weight(fresh) == 3.0, "a refusal does not make an older one the choice"


def test_a_save_that_was_refused_says_so_until_the_next_one(training: Training, helper: UploadHelper) -> None:
    saver, tracked = training.attempt(1, helper)
    assert saver.restore(tracked) == 0 and step(tracked, saver, 1) and saver.refusal is None
    training.faults.refuses = lambda method, path: method == "PUT"
    assert not step(tracked, saver, 2) and "check the bucket and the keys" in str(saver.refusal)
    training.faults.refuses = lambda method, path: False
    assert step(tracked, saver, 3) and saver.refusal is None


def test_keys_that_ended_end_the_attempt(training: Training) -> None:
    """As the agent's answer does where it gives none any more: the next attempt asks it for each request."""

    class Ended(S3ObjectStore):
        def put(self, key: str, body: Body) -> None:
            raise KeysEndedError("this node's agent gives no keys")

    checkpointer = Checkpointer(CheckpointerSettings(training.job_id, 1, 0, "spec"), Ended(training.settings))
    saver, tracked = CommitSaver(checkpointer, RetentionPolicy(10, 0, "loss", "min"), None), Tracked(torch.nn.Linear(64, 64))
    assert saver.restore(tracked) == 0
    with pytest.raises(KeysEndedError, match="gives no keys"):
        step(tracked, saver, 1)


def test_a_store_that_is_too_slow_costs_saves_and_says_for_how_long_it_was_tried(
    training: Training, helper: UploadHelper, capfd: pytest.CaptureFixture[str]
) -> None:
    saver, tracked = training.attempt(1, helper)
    assert saver.restore(tracked) == 0 and step(tracked, saver, 1)
    training.faults.late_s = 0.2
    assert step(tracked, saver, 2), "slow is not away"
    training.faults.late_s = 30.0
    assert not step(tracked, saver, 3)
    said = capfd.readouterr().err
    assert "the checkpoint of step 3 was not saved, training goes on" in said
    assert "did not succeed within 3 s" in said and "TRAINHOUSE_S3_DEADLINE_S" in said
    saver, fresh = training.attempt(2)
    with pytest.raises(ObjectStoreUnavailableError, match="did not succeed within 3 s"):
        saver.restore(fresh)
    training.faults.late_s = 0.0
    saver, fresh = training.attempt(3)
    assert saver.restore(fresh) == 2 and weight(fresh) == 2.0


def test_a_store_that_fails_every_third_call_costs_nothing(training: Training, helper: UploadHelper) -> None:
    training.faults.fails_every = 3
    saver, tracked = training.attempt(1, helper)
    assert saver.restore(tracked) == 0
    assert [step(tracked, saver, number) for number in range(1, 6)] == [True] * 5
    saver, fresh = training.attempt(2)
    assert saver.restore(fresh) == 5 and weight(fresh) == 5.0 and training.faults.hits > 5


def test_a_store_that_lies_once_is_asked_again_and_one_that_goes_on_makes_an_older_checkpoint_the_choice(
    training: Training, helper: UploadHelper
) -> None:
    saver, tracked = training.attempt(1, helper)
    assert saver.restore(tracked) == 0 and step(tracked, saver, 1)
    before = {stat.key for stat in S3ObjectStore(training.settings).list(f"jobs/{training.job_id}/chunks/")}
    assert step(tracked, saver, 2)
    lies = iter([True])
    training.faults.lies = lambda method, path: method == "GET" and "/chunks/" in path and next(lies, False)
    saver, fresh = training.attempt(2)
    assert saver.restore(fresh) == 2 and weight(fresh) == 2.0 and training.faults.hits == 1
    training.faults.lies = lambda method, path: method == "GET" and "/chunks/" in path and not any(path.endswith(key) for key in before)
    saver, fresh = training.attempt(3)
    assert saver.restore(fresh) == 1 and weight(fresh) == 1.0, "what hashes to something else never gets into the model"


def test_a_store_that_lies_about_what_it_has_taken_makes_no_false_restore(training: Training, helper: UploadHelper) -> None:
    """All that is read of chunks is other bytes: no checkpoint is sound, and the model stays as it was."""
    saver, tracked = training.attempt(1, helper)
    assert saver.restore(tracked) == 0 and step(tracked, saver, 1)
    training.faults.lies = lambda method, path: method == "GET" and "/chunks/" in path
    events: list[tuple[str, str]] = []
    store = S3ObjectStore(training.settings)
    at = Checkpointer(
        CheckpointerSettings(training.job_id, 2, 1, "spec"), store, on_event=lambda n, f: events.append((n, str(f.get("reason", ""))))
    )
    model = torch.nn.Linear(64, 64)
    untouched = model.weight.clone()
    report = at.restore(Tracked(model).shared(), lambda own: None)
    assert report.restored is None and torch.equal(model.weight, untouched)
    (said,) = [reason for name, reason in events if name == "CheckpointFailed"]
    assert "no checkpoint is healthy, training begins anew" in said and "is damaged" in said and "checksum" in said


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (torch.nn.Linear(64, 32), r"weight is \(64, 64\) there and \(32, 64\) here"),
        (torch.nn.Sequential(torch.nn.Linear(64, 64)), "it holds no 0.bias, 0.weight"),
        (torch.nn.Linear(64, 64, bias=False), "it holds model.bias, which no rank of this gang has"),
    ],
    ids=["other shape", "other model", "missing parameter"],
)
def test_a_state_that_does_not_fit_says_what_and_the_way_out(
    training: Training, helper: UploadHelper, other: torch.nn.Module, says: str
) -> None:
    saver, tracked = training.attempt(1, helper)
    assert saver.restore(tracked) == 0 and step(tracked, saver, 1)
    saver, _ = training.attempt(2)
    before = [parameter.clone() for parameter in other.parameters()]
    with pytest.raises(InvalidStateError, match=f"step 1 of {training.job_id} does not fit: {says}.*build the model .* as they were saved"):
        saver.restore(Tracked(other))
    assert all(map(torch.equal, before, other.parameters())), "nothing was put back"

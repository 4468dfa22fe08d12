"""Quick reads are those that the settings name, and their JSON is that of the models."""

import pytest

from trainhouse.client.errors import InvalidSettingsError
from trainhouse.client.gateway.transport import parts_of
from trainhouse.client.quick.quick_gateway import gateway_of
from trainhouse.client.rows import (
    ACTIVE,
    EXPLANATION,
    FINAL,
    FLOATS,
    REFUSAL,
    STATUS,
    WAITING,
    explanation_json,
    status_json,
    status_of_row,
)
from trainhouse.events import JobState, JobStatus
from trainhouse.events.model.explanation import JobExplained, Obstacle, Refusal

URL = {"TRAINHOUSE_GATEWAY_URL": "http://gate:1/base", "TRAINHOUSE_GATEWAY_TOKEN": "t0k"}  # pragma: allowlist secret
ROW = {
    "job_id": "j-1",
    "name": "",
    "state": "RUNNING",
    "status_seq": -1,
    "elapsed_s": 2,
    "loss": 0.5,
    "step": 3,
    "last_checkpoint_step": 2,
    "last_checkpoint_commit": 1,
    "last_checkpoint_uri": "s3://b/k",
    "updated_at_ms": 7,
    "purpose": "research",
}


def test_states_are_those_of_the_model() -> None:
    assert {state for state in JobState if state.final} == set(FINAL)
    assert {state for state in JobState if not state.final} == set(ACTIVE)
    assert set(WAITING) <= set(JobState)


@pytest.mark.parametrize("left_out", [(), ("purpose",), ("last_checkpoint_step",), ("loss", "elapsed_s", "step")])
def test_a_status_is_that_of_its_model(left_out: tuple[str, ...]) -> None:
    row = {name: value for name, value in ROW.items() if name not in left_out}
    whole = status_of_row(row).model_dump(mode="json")
    assert status_json(row) == whole
    assert list(status_json(row)) == list(whole), "in the same order"


def test_a_new_field_of_a_status_is_not_forgotten() -> None:
    absent = {"purpose", "registers", "live_room"}  # left out of JSON where they are absent
    assert set(STATUS) | absent == set(JobStatus.model_fields)
    assert set(FLOATS) <= set(STATUS)


def test_an_explanation_is_that_of_its_model() -> None:
    fields = {"job_id": "j-1", "pool": "default", "team": "t", "at_ms": 2, "waiting_since_ms": 1, "place": 1, "waiting": 1, "needs": "n"}
    whole = JobExplained(
        **fields, obstacle=Obstacle.NO_ROOM, text="x", refusals=(Refusal(obstacle=Obstacle.QUOTA, text="q"),), unblock=("u",)
    )
    written = whole.model_dump(mode="json", exclude_defaults=True) | {"of_a_newer_writer": 1}
    assert explanation_json(written) == whole.model_dump(mode="json")
    assert list(explanation_json(written)) == list(whole.model_dump(mode="json"))
    assert list(EXPLANATION) == list(JobExplained.model_fields) and list(REFUSAL) == list(Refusal.model_fields)


def test_the_gateway_is_the_one_of_the_settings() -> None:
    found = gateway_of({}, URL)
    assert found is not None and (found.url, found.token, found.ca) == ("http://gate:1/base", "t0k", "")
    file = {"gateway": {"url": "http://file:2", "token": "other"}}  # pragma: allowlist secret
    found = gateway_of(file, {"TRAINHOUSE_GATEWAY_URL": "http://gate:1"})
    assert found is not None and (found.url, found.token) == ("http://gate:1", "other")


@pytest.mark.parametrize(
    "change",
    [
        {"TRAINHOUSE_GATEWAY_URL": ""},
        {"TRAINHOUSE_GATEWAY_URL": "http://ann@gate:1"},
        {"TRAINHOUSE_GATEWAY_URL": "gate:1"},
        {"TRAINHOUSE_GATEWAY_URL": "http://gate:x"},
        {"TRAINHOUSE_GATEWAY_TOKEN": ""},
        {"TRAINHOUSE_GATEWAY_TOKEN": "a b"},
        {"TRAINHOUSE_GATEWAY_CA": "/no/such/file"},
        {"TRAINHOUSE_KAFKA_BOOTSTRAP": "kafka:9092"},
        {"HTTP_PROXY": "http://proxy:3128"},
        {"TRAINHOUSE_GATEWAY_URL": "https://gate:1", "SSL_CERT_FILE": "/etc/ca.pem"},
    ],
)
def test_it_is_none_where_the_whole_client_has_to_decide(change: dict[str, str]) -> None:
    assert gateway_of({}, URL | change) is None


def test_a_host_without_a_proxy_is_asked_directly() -> None:
    assert gateway_of({}, URL | {"HTTP_PROXY": "http://proxy:3128", "NO_PROXY": "localhost, gate"}) is not None


def test_an_account_in_the_address_of_the_gateway_is_refused_without_its_password() -> None:
    with pytest.raises(InvalidSettingsError, match="user name before gate") as refused:
        parts_of("https://ann:s3cret@gate:1")  # pragma: allowlist secret
    assert "s3cret" not in str(refused.value) and "TRAINHOUSE_GATEWAY_TOKEN" in str(refused.value)

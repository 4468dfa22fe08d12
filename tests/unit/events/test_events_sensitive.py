"""What of an environment looks like a secret, what does not, and what tables show of it."""

import base64
import random
import string
import uuid

import orjson
import pytest

from trainhouse.events import JobSpec, JobSubmitted
from trainhouse.events.security.sensitive import looks_secret, masked_head, masked_json, refusal, without_values

SECRETS = {
    "HF_TOKEN": "anything",
    "DB_PASSWORD": "hunter2",  # pragma: allowlist secret
    "VNC_PASSWORD": "847184",
    "WANDB_API_KEY": "x1",  # pragma: allowlist secret
    "AWS_SECRET_ACCESS_KEY": "abc",
    "awsSecretKey": "abc",
    "MLFLOW_TRACKING_TOKEN": "eyJ",
    "CLIENT_SECRET": "s",
    "SSH_PRIVATE_KEY": "k",
    "X": "AKIAIOSFODNN7EXAMPLE",  # pragma: allowlist secret
    "Y": "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8",  # pragma: allowlist secret
    "Z": "-----BEGIN RSA PRIVATE KEY-----\nMIIE",  # pragma: allowlist secret
    "DATABASE": "postgresql://ada:lovelace@db:5432/x",  # pragma: allowlist secret
    "HEADER": "Authorization: Bearer abcdefghijklmnop0123",
    "BLOB": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",  # pragma: allowlist secret
    "SEEMS": "7f3a9c1e5b8d2046af13c97e0b6d5824",  # pragma: allowlist secret
    "CONFIG": '{"auth": "Zx9Qk2Lm8Rt5Vw1Yp4Bn7"}',
}
ORDINARY = {
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "MAX_TOKENS": "4096",
    "NUM_TOKEN": "100",
    "USE_AUTH_TOKEN": "true",
    "HF_TOKEN_PATH": "/run/token",
    "TOKEN_FILE": "secrets/hub",
    "DB_PASSWORD": "",
    "GIT_COMMIT": "7f3a9c1e5b8d2046af13c97e0b6d58247f3a9c1e",  # pragma: allowlist secret
    "RUN_UUID": str(uuid.UUID(int=2**127 - 12345678901234567)),
    "NAMED": "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
    "NCCL_SOCKET_IFNAME": "eth0,eth1",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True,max_split_size_mb:512",
    "DATA": "s3://bucket/projects/vision/imagenet-1k/train-00000-of-01024.tar",
    "MODEL": "meta-llama/Llama-3.1-405B-Instruct-FP8",
    "WANDB_NAME": "resnet50-batchNormalization2-lr0.001-wd0.0001-seed42-a100x8",
    "HOSTS": "a100-80gb-sxm4-node07-rack12,a100-80gb-sxm4-node08-rack12",
    "SORT_KEY": "name",
    "MONKEY": "banana",
    "COMPASS": "north",
    "ENOUGH": "/tmp/pytest-of-root/pytest-0/test_a0/enough-job-1k7x3m9qp2f8d",
    "LD_LIBRARY_PATH": "/usr/local/cuda-12.4/lib64:/usr/lib/x86_64-linux-gnu",
    "LETTERS": "abcdefghijklmnopqrstuvwxyz0123456789",
}


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_seen(name: str) -> None:
    assert looks_secret(name, SECRETS[name])


@pytest.mark.parametrize("name", ORDINARY)
def test_an_ordinary_variable_is_not(name: str) -> None:
    assert looks_secret(name, ORDINARY[name]) == ""


def test_of_random_keys_hardly_one_is_missed() -> None:
    drawn = random.Random(7)
    keys = ["".join(drawn.choices(string.ascii_letters + string.digits, k=drawn.randint(24, 64))) for _ in range(500)]
    keys += [base64.b64encode(drawn.randbytes(drawn.randint(18, 48))).decode() for _ in range(500)]
    keys += [drawn.randbytes(drawn.randint(16, 32)).hex() for _ in range(500)]
    assert sum(not looks_secret("VALUE", key) for key in keys) <= 15


def spec(**fields: object) -> JobSpec:
    return JobSpec.model_validate({"runtime": {"command": ["python"]}, **fields})


def test_the_refusal_names_variable_reason_and_way_out_but_not_the_value() -> None:
    told = refusal(spec(project="demo", env={"HF_TOKEN": "v4lue", "A": "1"}))
    assert "HF_TOKEN" in told and "its name says so" in told and "trainhouse secrets set demo/HF_TOKEN" in told
    assert "env_allow: [HF_TOKEN]" in told and "v4lue" not in told
    assert refusal(spec(env={"HF_TOKEN": "v4lue"}, env_allow=["HF_TOKEN"])) == "" == refusal(spec(env={"A": "1"}))


def test_a_spec_that_allows_nothing_has_the_hash_of_before() -> None:
    assert b"env_allow" not in spec(env={"A": "1"}).canonical_json()
    assert b"env_allow" in spec(env_allow=["A"]).canonical_json()


def test_masked_json_is_the_event_without_values() -> None:
    labels = {"env": '{"env":{"A":"kept"}}', "q": 'a"b'}
    env = {"A": 'with "quotes" \\ and }', "B": "", "C": "line\nbreak ünï"}
    event = JobSubmitted.model_validate({"job_id": "j", "spec": spec(env=env, labels=labels).model_dump()})
    masked = event.model_copy(update={"spec": without_values(event.spec)})
    assert masked_json(event.model_dump_json()) == masked.model_dump_json()
    pretty = orjson.dumps(event.model_dump(mode="json"), option=orjson.OPT_INDENT_2).decode()
    assert orjson.loads(masked_json(pretty)) == masked.model_dump(mode="json")


def test_the_head_of_a_cut_record_shows_no_value() -> None:
    whole = '{"data":{"spec":{"env": {"A": "first-value", "B": "second-value"}, "name": "x"}}}'
    for length in range(len(whole)):
        shown = masked_head(whole[:length])
        assert "first-v" not in shown and "second-v" not in shown
    assert masked_head(whole).endswith('"name": "x"}}}')


@pytest.mark.timeout(120)  # where the rest of the text was copied for each `env`, this took hours
def test_a_long_record_is_masked_in_one_pass() -> None:
    text = '{"env":{}}' * 400_000
    assert masked_head(text) == text

"""New passwords and keys while a job trains: the job succeeds, the old ones end, and what another user may read stays nothing.

Takes a whole stack through two restarts of all its parts, longer than a test may: `pytest tests/security/rotation_long.py` runs it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from botocore.exceptions import ClientError
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.security.stranger import as_stranger, needs_root
from tests.support.stack.live_stack import LiveStack, running_stack
from tests.support.waiting import until
from trainhouse.deploy.local import client_config
from trainhouse.deploy.local.layout import StackFolder, StackPorts, read_toml
from trainhouse.deploy.local.stack_state import ps
from trainhouse.deploy.local.supervision import stack_parts
from trainhouse.events.settings import KafkaSettings

pytestmark = [pytest.mark.stack, pytest.mark.timeout(900)]
PROGRAM = """
import os, time, torch
from trainhouse.workers import Session

print("names", sorted(os.environ))
session = Session.start()
model = torch.nn.Linear(4, 1)
session.track(model=model)
for step in session.steps(1_000_000, save_every_steps=20):
    session.log(loss=1.0)
    time.sleep(0.02)
    if os.path.exists({enough!r}):
        break
"""


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that jobs see; they have a uid of their own."""
    folder = tmp_path_factory.mktemp("shown")
    folder.chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def stack(shown: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveStack]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TRAINHOUSE_AGENT_JOB_PATHS", str(shown))
        with running_stack(tmp_path_factory.mktemp("rotating") / "data", 2) as started:
            yield started


def kafka_of(config: Path) -> KafkaSettings:
    return KafkaSettings.model_validate(read_toml(config)["kafka"])


def let_in(settings: KafkaSettings) -> bool:
    try:
        return bool(AdminClient(settings.client_config(log_level=0)).list_topics(timeout=5).brokers)
    except KafkaException:
        return False


def test_a_job_that_trains_over_a_rotation_succeeds(stack: LiveStack, shown: Path, tmp_path: Path) -> None:
    folder, enough = StackFolder(stack.data_dir), shown / "enough"
    (tmp_path / "train.py").write_text(PROGRAM.format(enough=str(enough)))
    job = stack.ok("submit", "--", "python", "train.py", cwd=tmp_path).split()[0]
    until(lambda: saved(stack, job) >= 1, lambda: stack.log("agent"), timeout_s=240)
    configs = [folder.client_config, *(client_config.part_config(folder, name) for name in ("intake", "scheduler", "agent"))]
    before = [kafka_of(config) for config in configs]
    old_key, running = client_config.keys_of(folder), pids(stack)

    told = stack.ok("credentials", "rotate", timeout_s=600)
    assert "done" in told

    assert not any(let_in(settings) for settings in before)
    assert all(let_in(kafka_of(config)) for config in configs)
    kept = pids(stack) & running
    assert {name for name, _ in kept} == {"store"}  # it reads its keys again; whoever reads them at its start was started again
    commits = saved(stack, job)
    until(lambda: saved(stack, job) > commits + 1, lambda: stack.log("agent"), timeout_s=240)
    enough.touch()
    until(lambda: "SUCCEEDED" in stack.run("status", job).out, lambda: stack.run("status", job).out, timeout_s=240)
    (row,) = stack.rows(f"SELECT attempt, restarts FROM jobs WHERE job_id = '{job}'")
    assert (row["attempt"], row["restarts"]) == (0, 0)
    names = stack.ok("logs", job, "--rank", "0")
    assert "KAFKA" not in names and "TRAINHOUSE_CONFIG" not in names and "SASL" not in names

    # The old key is for ranks that ran over it, until it is retired.
    ports = StackPorts(read_toml(folder.choices_file)["ports"])
    with_old = stack_parts.store_server(folder, ports, old_key)
    with_old.client().head_bucket(Bucket=with_old.bucket)
    stack.ok("credentials", "retire")
    with pytest.raises(ClientError):
        with_old.client().head_bucket(Bucket=with_old.bucket)
    assert stack.ok("submit", "--wait", "--no-code", "--", "python", "-c", "print(1)", cwd=tmp_path)


def saved(stack: LiveStack, job: str) -> int:
    (row,) = stack.rows(f"SELECT count() AS n FROM checkpoints WHERE job_id = '{job}'")
    return int(row["n"])


def pids(stack: LiveStack) -> set[tuple[str, int]]:
    return {(row.name, row.pid) for row in ps(stack.data_dir)}


def test_names_and_ages_are_listed_and_no_secret(stack: LiveStack) -> None:
    rows = [json.loads(line) for line in stack.ok("credentials", "list", "--json").splitlines()]
    assert {(row["server"], row["name"]) for row in rows} >= {
        ("kafka", "operator"),
        ("kafka", "agent"),
        ("store", "key"),
        ("gateway", "signing key"),
    }
    text = json.dumps(rows)
    folder = StackFolder(stack.data_dir)
    hidden = [*client_config.passwords(folder).values(), client_config.keys_of(folder).secret_key]
    assert not any(each in text for each in hidden)


def test_no_password_is_in_the_arguments_or_environment_of_a_part(stack: LiveStack) -> None:
    folder = StackFolder(stack.data_dir)
    hidden = [*client_config.passwords(folder).values(), client_config.keys_of(folder).secret_key]
    for name, pid in pids(stack):
        shown = Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
        assert not any(each.encode() in shown for each in hidden), name


@needs_root
def test_another_user_reads_nothing_of_the_folder(stack: LiveStack) -> None:
    ends = (".toml", ".conf", ".json", ".properties", ".key")
    files = [Path(at) / name for at, _, names in os.walk(stack.data_dir) for name in names if name.endswith(ends)]
    assert len(files) > 10

    def readable() -> list[str]:
        return [str(path) for path in files if os.access(path, os.R_OK)]

    assert as_stranger(readable) == []

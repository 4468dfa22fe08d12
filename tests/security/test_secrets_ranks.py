"""Ranks with secrets, started for real: they read the newest value, their output shows none, and nothing stays behind, not even a crash.

With and without confinement; the second rank of the attack belongs to another job.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.integration.launcher_support import Attempt
from tests.security.test_secrets_projects import NAME, gang
from tests.support.waiting import until
from trainhouse.workers.agent.launch.secretfiles import SecretFiles
from trainhouse.workers.confinement.layers import examine
from trainhouse.workers.confinement.plan import Confinement, Kind, Place
from trainhouse.workers.launcher import Launcher, RankLaunch, attempt_alive
from trainhouse.workers.secretstore.records import SecretRecord
from trainhouse.workers.secretstore.references import parse_reference
from trainhouse.workers.secretstore.store import SecretStore

FIRST, SECOND = "first-value-8471", "second-value-9362"
COLD = {"PYTHONNOUSERSITE": "1"}
SCRIPT = """
import base64, json, os, resource, signal, sys, time
folder = os.environ["TRAINHOUSE_SECRETS_DIR"]
def newest():
    return open(folder + "/HUB_TOKEN").read()
first = newest()
print("plain", first, "base64", base64.b64encode(b"x" + first.encode()).decode(), "hex", first.encode().hex(), flush=True)
facts = {"core": resource.getrlimit(resource.RLIMIT_CORE), "filter": open("/proc/self/coredump_filter").read().strip()}
facts["same"] = os.environ["HUB_TOKEN"] == first
facts["argv"] = first in open("/proc/self/cmdline").read()
other = os.environ["OTHER"]
try:
    facts["other"] = os.listdir(other)
except OSError as error:
    facts["other"] = error.strerror
print("facts", json.dumps(facts), flush=True)
while newest() == first:
    time.sleep(0.01)
print("rotated", newest(), newest()[::-1], flush=True)
os.kill(os.getpid(), signal.SIGABRT)
"""


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    made = Launcher(warm_wait_s=120)
    yield made
    made.close()


def confinement(attempt: Attempt, secrets: Path) -> Confinement:
    from tests.integration.confined_support import confinement_of

    if not examine(sys.executable).complete:
        pytest.skip("this machine does not confine jobs")
    found = confinement_of(attempt)
    from dataclasses import replace

    return replace(found, places=(*found.places, Place(str(secrets), Kind.READ_ONLY)))


@pytest.mark.parametrize("confined", [False, True])
def test_a_rank_and_its_secrets(tmp_path: Path, launcher: Launcher, confined: bool) -> None:
    source = tmp_path / "hub"
    source.write_text(FIRST)
    source.chmod(0o600)
    store = SecretStore(tmp_path / "secrets", tmp_path / "secrets.key")
    store.put(SecretRecord(NAME, reference=parse_reference(f"file:{source}")))
    files = SecretFiles(store, tmp_path / "agent")
    other = files.hand_out(gang("vision", "HUB_TOKEN", epoch=7)).folder
    allocation = gang("vision", "HUB_TOKEN")
    given = files.hand_out(allocation)
    assert given.folder is not None and other is not None
    attempt = Attempt(tmp_path / "attempt" / "j" / "0", SCRIPT)
    try:
        env = {"TRAINHOUSE_SECRETS_DIR": str(given.folder), "OTHER": str(other), **COLD}
        (launch,) = attempt.launches(env=env, secrets=given.values)
        launch = RankLaunch(**{**vars(launch), "secrets_dir": given.folder})
        sandbox = confinement(attempt, given.folder) if confined else None
        launcher.start(attempt.paths, [launch], None, sandbox)
        facts = json.loads(until(lambda: [line[6:] for line in attempt.stdout().splitlines() if line.startswith("facts ")])[0])
        assert facts["core"] == [0, 0] and int(facts["filter"], 16) == 0 and facts["same"] and not facts["argv"]
        assert not [p.pid for p in psutil.process_iter(["cmdline"]) if FIRST in " ".join(p.info["cmdline"] or [])]
        if confined:
            assert facts["other"] in ("No such file or directory", "Permission denied")
        source.write_text(SECOND)
        assert files.refresh([allocation]) == 1
        assert attempt.exit_of().signal == 6
        until(lambda: not attempt_alive(attempt.paths))
        assert "rotated *** ***" in attempt.stdout() and "plain *** base64 " in attempt.stdout()
        written = b"".join(p.read_bytes() for p in (tmp_path / "attempt").rglob("*") if p.is_file())
        for value in (FIRST, SECOND):
            for form in (value, value[::-1], value.encode().hex()):
                assert form.encode() not in written
        assert not list((tmp_path / "attempt").rglob("core*")) and not given.folder.exists() and other.exists()
    finally:
        attempt.close()
        files.sweep(())
        os.rmdir(files.root())

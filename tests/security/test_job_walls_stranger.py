"""The walls of jobs where the agent is not root: the same attacks, by jobs of an agent that is uid 65534 and owns its own folders alone.

Such jobs keep the agent's uid, within a user namespace. The whole of `test_job_walls` runs as that user; what needs root skips there.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.security.stranger import NOBODY, needs_root
from trainhouse.workers.confinement import system
from trainhouse.workers.confinement.interpreters import shown_for

pytestmark = [needs_root, pytest.mark.timeout(900)]
TRIED = (
    "test_no_attack_from_a_rank_or_a_command_beside_it_succeeds",
    "test_without_namespaces_the_other_layers_still_keep_files_and_the_kernel",
)


def closed_ancestors(interpreter: str) -> list[Path]:
    """Folders on the way to an interpreter that another user may not pass, the shallow ones first."""
    paths = {Path(os.path.realpath(p)) for p in shown_for(interpreter, trusted=True)}
    above = {folder for path in paths for folder in path.parents}
    return sorted((f for f in above if not f.stat().st_mode & 0o001), key=lambda f: len(f.parts))


def become_stranger(interpreter: str, scratch: Path) -> None:
    """Becomes another user, who sees the interpreter wherever it lies: of a folder in its way, nothing but the interpreter is left."""
    system.unshare(system.NEWNS)
    system.mount("none", "/", None, system.MS_REC | system.MS_SLAVE)
    for number, closed in enumerate(closed_ancestors(interpreter)):
        inner = sorted(
            {Path(os.path.realpath(p)) for p in shown_for(interpreter, trusted=True) if Path(os.path.realpath(p)).is_relative_to(closed)}
        )
        for at, path in enumerate(inner):
            kept = scratch / f"{number}-{at}"
            kept.mkdir()
            system.mount(str(path), str(kept), None, system.MS_BIND | system.MS_REC)
        system.mount("tmpfs", str(closed), "tmpfs", system.MS_NOSUID, "mode=0755")
        for at, path in enumerate(inner):
            path.mkdir(parents=True, exist_ok=True)
            system.mount(str(scratch / f"{number}-{at}"), str(path), None, system.MS_BIND | system.MS_REC)
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder of that user's, where it can be reached."""
    with TemporaryDirectory(prefix="trainhouse-stranger-") as made:
        os.chown(made, NOBODY, NOBODY)
        yield Path(made)


def test_the_same_attacks_fail_where_the_agent_is_not_root(home: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", f"--basetemp={home / 'temp'}"]
    done = subprocess.run(
        [*command, "tests/security/test_job_walls.py", "-k", " or ".join(TRIED)],
        preexec_fn=lambda: become_stranger(sys.executable, tmp_path),
        env={"PATH": os.environ["PATH"], "HOME": str(home), "HYPOTHESIS_STORAGE_DIRECTORY": str(home / "hypothesis")},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout[-6000:] + done.stderr[-2000:]
    if "this machine does not confine jobs" in done.stdout:
        pytest.skip(said)
    assert done.returncode == 0 and "skipped" not in done.stdout.splitlines()[-1], said

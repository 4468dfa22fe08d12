"""Landlock: files and ports that were not named are gone, for the process and what it starts."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from trainhouse import landlock

needs_landlock = pytest.mark.skipif(landlock.abi() == 0, reason="this kernel has no Landlock")
needs_scopes = pytest.mark.skipif(landlock.abi() < landlock.SCOPES_SINCE_ABI, reason="Landlock of this kernel knows no scopes")
needs_ports = pytest.mark.skipif(landlock.abi() < landlock.PORTS_SINCE_ABI, reason="Landlock of this kernel knows no ports")

PROGRAM = """
import socket, sys
from pathlib import Path
from trainhouse import landlock
folder, port, open_port = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
assert landlock.restrict(landlock.existing([Path("/usr"), Path("/lib"), folder / "read"]), [folder / "write"],
                         [open_port] if port else None, [] if port else None)
def tried(what):
    try:
        what()
        return "done"
    except PermissionError:
        return "refused"
def connect(to):
    with socket.socket() as s:
        try:
            s.connect(("127.0.0.1", to))
        except ConnectionRefusedError:
            pass
def bind():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
print(tried(lambda: (folder / "read/file").read_text()), tried(lambda: (folder / "read/file").write_text("x")),
      tried(lambda: (folder / "write/new").write_text("x")), tried(lambda: (folder / "canary").read_text()),
      tried(lambda: (folder / "canary").unlink()),
      *([tried(lambda: connect(port)), tried(lambda: connect(open_port)), tried(bind)] if port else []))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("read", "write"):
        (tmp_path / name).mkdir()
    (tmp_path / "read/file").write_text("fine")
    (tmp_path / "canary").write_text("secret")
    return tmp_path


def confined(folder: Path, port: int, open_port: int) -> list[str]:
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(folder), str(port), str(open_port)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@needs_landlock
def test_files_that_were_not_named_are_gone(folder: Path) -> None:
    assert confined(folder, 0, 0) == ["done", "refused", "done", "refused", "refused"]
    assert (folder / "canary").exists()


@needs_ports
def test_ports_that_were_not_named_are_gone(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed, socket.create_server(("127.0.0.1", 0)) as named:
        answers = confined(folder, closed.getsockname()[1], named.getsockname()[1])
    assert answers[5:] == ["refused", "done", "refused"]


@needs_landlock
def test_a_path_that_does_not_exist_is_an_error_and_restricts_nothing(tmp_path: Path) -> None:
    with pytest.raises(landlock.LandlockError, match="missing"):
        landlock.restrict([tmp_path / "missing"], [])
    (tmp_path / "file").write_text("still free")


def test_a_kernel_without_landlock_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "abi", lambda: 0)
    assert landlock.restrict([Path("/usr")], []) is False


def test_an_old_landlock_refuses_rules_that_it_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "abi", lambda: 3)
    with pytest.raises(landlock.LandlockError, match="knows no ports"):
        landlock.restrict([Path("/usr")], [], [9092])
    with pytest.raises(landlock.LandlockError, match="knows no scopes"):
        landlock.restrict([Path("/usr")], [], scoped=True)
    with pytest.raises(landlock.LandlockError, match="knows no scopes"):
        landlock.scope()


def ran(program: str, *arguments: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


LEFT_OUT = """
import sys
from trainhouse import landlock
folder = sys.argv[1]
assert landlock.restrict(["/usr", "/lib", folder + "/missing", folder + "/read"], [folder + "/gone"], missing_ok=True)
for name in ("/read/file", "/canary"):
    try:
        print(open(folder + name).read())
    except PermissionError:
        print("refused")
"""


@needs_landlock
def test_a_path_that_is_not_there_can_be_left_out(folder: Path) -> None:
    assert ran(LEFT_OUT, str(folder)) == ["fine", "refused"]


SCOPED = """
import os, subprocess, sys
from trainhouse import landlock
quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
child = subprocess.Popen(["sleep", "60"], **quiet)
landlock.scope()
own = subprocess.Popen(["sleep", "60"], **quiet)
for each in (child, own):
    try:
        os.kill(each.pid, 0)
        print("done")
    except PermissionError:
        print("refused")
open(sys.argv[1] + "/canary").close()
print(open("/proc/self/status").read().split("NoNewPrivs:")[1].split()[0])
own.kill()
own.wait()
print(child.pid)
"""


@needs_scopes
def test_a_scope_takes_signals_to_processes_outside_and_no_files(folder: Path) -> None:
    *answers, pid = ran(SCOPED, str(folder))
    os.kill(int(pid), signal.SIGKILL)
    assert answers == ["refused", "done", "1"]


RENAMED = """
import os, sys
from trainhouse import landlock
folder = sys.argv[1]
for name in ("/named/from/file", "/read/to"):
    os.makedirs(os.path.dirname(folder + name), exist_ok=True)
    open(folder + name, "w").close()
os.makedirs(folder + "/named/to")
landlock.scope()
landlock.restrict(["/usr", folder + "/read"], [folder + "/named"])
os.rename(folder + "/named/from/file", folder + "/named/to/file")
os.link(folder + "/named/to/file", folder + "/named/from/again")
try:
    os.rename(folder + "/named/to/file", folder + "/read/to")
except OSError as error:
    print(type(error).__name__)
"""


@needs_scopes
def test_under_a_scope_and_rules_files_move_between_folders_that_may_be_written(folder: Path) -> None:
    assert ran(RENAMED, str(folder)) == ["PermissionError"]
    assert sorted(path.name for path in (folder / "named").rglob("*") if path.is_file()) == ["again", "file"]


def test_it_waits_for_nothing_else_of_ours() -> None:
    assert ran("import sys; from trainhouse import landlock; print(*(n for n in sys.modules if n.startswith('trainhouse')))") == [
        "trainhouse",
        "trainhouse.landlock",
    ]

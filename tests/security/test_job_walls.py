"""A job that attacks its node: files, processes, the kernel, memory. Started warm and cold, and as a command beside its ranks.

Each attack is tried for real inside of the job and tells whether it succeeded; outside of it, what it was aimed at is looked at again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.confined_support import confinement_of
from tests.integration.launcher_support import TRAIN, Attempt
from tests.support.waiting import until
from trainhouse.workers.agent.debug.stacks import dump_stack
from trainhouse.workers.agent.launch.rank_watch import reason
from trainhouse.workers.confinement.cgroups import Limits
from trainhouse.workers.confinement.layers import examine
from trainhouse.workers.launcher import Launcher, attempt_alive
from trainhouse.workers.launcher.processes import read_process

COLD = {"PYTHONNOUSERSITE": "1"}
WAYS = ("warm", "cold")

# What each attack is told: a folder of the platform's with secrets, another job's, the pid of the agent.
ATTACKS = """
import ctypes, json, os, resource, signal, socket, sys
root, other, agent = sys.argv[1], sys.argv[2], int(sys.argv[3])
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
done = {}
def attack(name):
    def run(do):
        try:
            done[name] = bool(do())
        except (OSError, ValueError, RuntimeError):
            done[name] = False
    return run
def reads(path):
    return lambda: open(path, "rb").read(1) is not None
def called(number, *arguments):
    return lambda: libc.syscall(number, *arguments) >= 0
for name in ("gateway/key", "trainhouse.toml", "credentials.toml", "secrets/token", "agent/state.json", "agent/agent.lock"):
    attack("reads " + name)(reads(os.path.join(root, name)))
attack("lists the platform's folder")(lambda: [n for n in os.listdir(root) if n != "agent"])
attack("lists attempts")(lambda: [n for n in os.listdir(os.path.dirname(other)) if n == os.path.basename(other)])
attack("reads another job's file")(reads(other + "/code/private"))
attack("writes to another job's folder")(lambda: open(other + "/code/planted", "w"))
attack("changes its keeper's record")(lambda: open(os.environ["ATTEMPT"] + "/rank-0/pid.json", "w"))
attack("plants an exit")(lambda: open(os.environ["ATTEMPT"] + "/rank-0/exit.json", "w"))
attack("renames its rank's folder")(lambda: os.rename(os.environ["ATTEMPT"] + "/rank-0/own", os.environ["ATTEMPT"] + "/rank-0/o") or True)
attack("reads the agent's environment")(reads(f"/proc/{agent}/environ"))
attack("sees the agent's process")(lambda: "pytest" in open(f"/proc/{agent}/cmdline").read())
attack("sees other processes")(lambda: len([n for n in os.listdir("/proc") if n.isdigit()]) > 12)
attack("signals the agent")(lambda: os.kill(agent, 0) is None and os.path.exists(f"/proc/{agent}"))
attack("traces the agent")(lambda: libc.ptrace(16, agent, 0, 0) == 0)
attack("reads shadow")(reads("/etc/shadow"))
attack("writes /etc")(lambda: open("/etc/planted", "w"))
attack("writes /usr")(lambda: open("/usr/planted", "w"))
attack("changes the interpreter")(lambda: open(os.path.join(sys.prefix, "planted"), "w"))
attack("changes what runs next")(lambda: open(os.environ["SITE"] + "/planted.pth", "w"))
attack("reads a home")(lambda: [n for n in os.listdir("/root") if n not in (".pyenv", ".local")])
attack("reads the disk")(reads("/dev/vda"))
attack("reads kernel memory")(reads("/dev/kmsg"))
attack("makes a device")(lambda: os.mknod("/tmp/disk", 0o60600, os.makedev(254, 0)) is None)
attack("becomes root")(lambda: os.setuid(0) is None and os.geteuid() == 0 and open("/etc/shadow"))
attack("sees a GPU's node")(lambda: [n for n in os.listdir("/dev") if n.startswith("nvidia")])
attack("mounts")(lambda: libc.mount(b"none", b"/tmp", b"tmpfs", 0, None) == 0)
attack("unmounts")(lambda: libc.umount2(b"/tmp", 2) == 0)
attack("makes a user namespace")(lambda: libc.unshare(0x10000000) == 0)
attack("clones into a namespace")(called(56, 0x10000000 | 17, 0, 0, 0, 0))
attack("enters a namespace")(lambda: libc.setns(os.open("/proc/self/ns/mnt", 0), 0) == 0)
attack("loads bpf")(called(321, 0, 0, 0))
attack("keys")(called(250, 0, -3, 1))
attack("userfaultfd")(called(323, 0))
attack("io_uring")(called(425, 1, ctypes.create_string_buffer(256)))
attack("perf")(called(298, ctypes.create_string_buffer(128), 0, -1, -1, 0))
attack("opens by handle")(called(304, -100, ctypes.create_string_buffer(64), 0))
attack("kexec")(lambda: libc.syscall(246, 0, 0, 0, 0) >= 0)
attack("chroots")(lambda: os.chroot("/tmp") is None)
attack("a new kernel's call")(called(468, 0))
attack("an abstract socket of the agent's")(lambda: socket.socket(socket.AF_UNIX).connect("\\0" + os.environ["ABSTRACT"]) is None)
attack("leaves no_new_privs")(lambda: "NoNewPrivs:\\t0" in open("/proc/self/status").read())
def capabilities(*names):
    return lambda: any(int(l.split()[1], 16) for l in open("/proc/self/status") if l[:6] in names)
attack("has capabilities")(capabilities("CapEff", "CapPrm", "CapInh", "CapAmb"))
attack("could be given capabilities")(capabilities("CapBnd"))
attack("is root")(lambda: os.getuid() == 0)
attack("raises a limit")(lambda: open("/sys/fs/cgroup/memory/memory.limit_in_bytes", "w"))
attack("signals the first process")(lambda: os.getpid() > 1 and os.kill(1, 0) is None)
os.makedirs("from", exist_ok=True); os.makedirs("to", exist_ok=True); open("from/moved", "w").close(); os.rename("from/moved", "to/moved")
open("/tmp/mark", "w").write("x"); open("/dev/shm/mark", "w").write("x"); open("out", "w").write("x")
open(os.environ["RANK"] + "/spool.jsonl", "a").close()
dumps = [*resource.getrlimit(resource.RLIMIT_CORE), int(open("/proc/self/coredump_filter").read(), 16)]
facts = {"tried": len(done), "uid": os.getuid(), "dumps": dumps}
print(json.dumps({"succeeded": sorted(n for n, ok in done.items() if ok), **facts}), flush=True)
if len(sys.argv) > 4:
    import time
    print("up", flush=True)
    while not os.path.exists("stop"): time.sleep(0.01)
"""


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    launcher = Launcher(warm_wait_s=120)
    launcher.prepare()
    until(launcher.warm_ready)
    yield launcher
    launcher.close()


@pytest.fixture(scope="module", autouse=True)
def _able() -> None:
    found = examine(sys.executable)
    if not found.complete:
        pytest.skip(f"this machine does not confine jobs: {found.lacking}")


@pytest.fixture
def platform(tmp_path: Path) -> Path:
    """A stack's data folder, with the files that matter."""
    for name in ("gateway/key", "trainhouse.toml", "credentials.toml", "secrets/token", "agent/state.json", "agent/agent.lock"):
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("secret")
    (tmp_path / "data" / "agent").chmod(0o700)
    return tmp_path / "data"


@pytest.fixture
def attempts(platform: Path) -> Iterator[tuple[Attempt, Attempt]]:
    """The attacker's, and another job's."""
    mine, other = (Attempt(platform / "agent" / "attempts" / job / "1") for job in ("mine", "other"))
    (other.paths.code / "private").write_text("weights")
    yield mine, other
    for attempt in (mine, other):
        attempt.close()
        until(lambda attempt=attempt: not attempt_alive(attempt.paths))


def start(
    launcher: Launcher, attempt: Attempt, script: str, way: str, *arguments: str, env: dict[str, str] | None = None, **changes: object
) -> None:
    (attempt.paths.code / "train.py").write_text(script)
    confinement = confinement_of(attempt, **changes)
    own = {
        "ATTEMPT": str(attempt.paths.folder),
        "RANK_DIR": str(attempt.paths.rank(0).own),
        "SITE": str(next(Path(sys.prefix).glob("lib/python3*/site-packages"))),
    }
    launches = attempt.launches(("python", "train.py", *arguments), env=own | dict(env or {}) | (COLD if way == "cold" else {}))
    started = launcher.start(attempt.paths, launches, attempt.store, confinement)
    assert started.warm is (way == "warm"), started.why_cold


@pytest.mark.parametrize("way", WAYS)
def test_no_attack_from_a_rank_or_a_command_beside_it_succeeds(
    launcher: Launcher, platform: Path, attempts: tuple[Attempt, Attempt], way: str
) -> None:
    import socket

    mine, other = attempts
    with socket.socket(socket.AF_UNIX) as listener:
        name = f"trainhouse-test-{os.getpid()}"
        listener.bind(f"\0{name}")
        listener.listen()
        arguments = (str(platform), str(other.paths.folder), str(os.getpid()))
        script = ATTACKS.replace('os.environ["RANK"]', 'os.environ["RANK_DIR"]')
        start(launcher, mine, script, way, *arguments, "wait", env={"ABSTRACT": name})
        until(lambda: "up" in mine.stdout() or mine.paths.rank(0).exit.exists(), timeout_s=150)
        found = json.loads(mine.stdout().splitlines()[0]) if mine.stdout() else pytest.fail(mine.stderr())
        assert found["succeeded"] == [] and found["tried"] > 35
        assert (mine.paths.rank(0).own / "spool.jsonl").exists() and (mine.paths.code / "out").read_text() == "x"
        assert not (other.paths.code / "planted").exists()
        assert not Path("/tmp/mark").exists() and not Path("/dev/shm/mark").exists()

        env = {"ABSTRACT": name, "ATTEMPT": str(mine.paths.folder), "RANK_DIR": str(mine.paths.rank(0).own), "SITE": "/"}
        order = {"argv": [sys.executable, "train.py", *arguments], "env": env, "cwd": str(mine.paths.code)}
        command = [sys.executable, "-I", "-m", "trainhouse.workers.confinement.run", str(mine.paths.folder)]
        beside = subprocess.run(command, input=json.dumps(order), capture_output=True, text=True, check=False)
        assert beside.returncode == 0, beside.stderr
        said = json.loads(beside.stdout.splitlines()[0])
        assert said["succeeded"] == [] and said["uid"] == found["uid"] and said["dumps"] == [0, 0, 0]

        process = read_process(mine.paths.rank(0).pid)
        assert process is not None and "train.py" in dump_stack(process.pid)  # the agent still sees the rank
        (mine.paths.code / "stop").touch()
        assert mine.exit_of().exit_code == 0, mine.stderr()


@pytest.mark.parametrize("way", WAYS)
def test_two_attempts_have_other_uids_and_no_way_to_each_other(
    launcher: Launcher, platform: Path, attempts: tuple[Attempt, Attempt], way: str
) -> None:
    if os.geteuid():
        pytest.skip("the runner cannot change uid")
    script = "import os, time\nprint(os.getuid(), flush=True)\nopen('/tmp/x', 'x')\nwhile not os.path.exists('stop'): time.sleep(0.01)"
    for attempt in attempts:
        start(launcher, attempt, script, way)
    uids = {until(lambda a=a: a.stdout(), timeout_s=150) for a in attempts}
    assert len(uids) == 2 and "0\n" not in uids
    for attempt in attempts:
        (attempt.paths.code / "stop").touch()
        assert attempt.exit_of().exit_code == 0, attempt.stderr()


@pytest.mark.parametrize("way", WAYS)
def test_the_first_process_is_out_of_reach_without_landlock_too(
    launcher: Launcher, platform: Path, attempts: tuple[Attempt, Attempt], way: str
) -> None:
    if os.geteuid():
        pytest.skip("the runner cannot change uid")
    script = (
        "import ctypes, os\n"
        "print('traced', ctypes.CDLL(None).ptrace(16, 1, 0, 0) == 0)\n"
        "for name in ('environ', 'mem', 'maps'):\n"
        "    try: print(name, open(f'/proc/1/{name}', 'rb').read(1))\n"
        "    except OSError: print(name, 'refused')\n"
    )
    mine, _ = attempts
    start(launcher, mine, script, way, landlock=False)
    assert mine.exit_of().exit_code == 0, mine.stderr()
    assert mine.stdout().splitlines() == ["traced False", "environ refused", "mem refused", "maps refused"]


@pytest.mark.parametrize("way", WAYS)
def test_what_a_command_beside_left_behind_ends_with_the_attempt(
    launcher: Launcher, platform: Path, attempts: tuple[Attempt, Attempt], way: str
) -> None:
    mine, _ = attempts
    script = "import os, time\nprint('up', flush=True)\nwhile not os.path.exists('stop'): time.sleep(0.01)"
    start(launcher, mine, script, way)
    until(lambda: "up" in mine.stdout(), timeout_s=150)
    order = {"argv": ["/bin/sh", "-c", "setsid sleep 1000 & echo left"], "env": {"PATH": os.defpath}, "cwd": str(mine.paths.code)}
    command = [sys.executable, "-I", "-m", "trainhouse.workers.confinement.run", str(mine.paths.folder)]
    beside = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert beside.stdin is not None and beside.stdout is not None
    beside.stdin.write(json.dumps(order))
    beside.stdin.close()
    assert beside.stdout.readline() == "left\n"
    beside.stdout.close()
    assert beside.wait() == 0
    (mine.paths.code / "stop").touch()
    assert mine.exit_of().exit_code == 0, mine.stderr()
    until(lambda: not attempt_alive(mine.paths))  # by its keeper alone: here is no agent


@pytest.mark.parametrize("way", WAYS)
def test_a_gang_trains_and_its_ranks_share_memory(launcher: Launcher, platform: Path, attempts: tuple[Attempt, Attempt], way: str) -> None:
    mine, _ = attempts
    mine.ranks = 2
    script = TRAIN.replace(
        'dist.init_process_group("gloo")\n',
        'dist.init_process_group("gloo")\nopen(f"/dev/shm/of-{dist.get_rank()}", "w").close(); dist.barrier()\n'
        'assert len(os.listdir("/dev/shm")) >= 2, os.listdir("/dev/shm")\n',
    )
    start(launcher, mine, script, way)
    assert [mine.exit_of(r).exit_code for r in (0, 1)] == [0, 0], mine.stderr(0) + mine.stderr(1)
    until(lambda: not attempt_alive(mine.paths))


@pytest.mark.parametrize("way", WAYS)
def test_too_much_memory_ends_the_rank_with_its_reason(
    launcher: Launcher, platform: Path, attempts: tuple[Attempt, Attempt], way: str
) -> None:
    if not examine(sys.executable).on("limits"):
        pytest.skip("no control groups here")
    mine, other = attempts
    limits = Limits(memory_bytes=300 * 2**20)
    start(launcher, other, "import os, time\nwhile not os.path.exists('stop'): time.sleep(0.01)", way)
    start(launcher, mine, "held = []\nwhile True: held.append(bytearray(b'x') * 2**24)", way, limits=limits)
    ended = mine.exit_of()
    assert ended.signal == 9 and "Memory cgroup out of memory" in ended.note
    assert "0.29 GiB" in reason(0, ended, mine.paths.rank(0))
    assert attempt_alive(other.paths)  # nobody else was chosen
    (other.paths.code / "stop").touch()
    assert other.exit_of().exit_code == 0


def test_a_fork_bomb_stays_in_its_attempt(launcher: Launcher, platform: Path, attempts: tuple[Attempt, Attempt]) -> None:
    if not examine(sys.executable).on("limits"):
        pytest.skip("no control groups here")
    script = (
        "import os, time\nmade = 0\ntry:\n    while made < 500:\n        if os.fork() == 0: time.sleep(60); os._exit(0)\n"
        "        made += 1\n"
        "except BlockingIOError: pass\nprint(made, flush=True)\n"
    )
    mine, _ = attempts
    start(launcher, mine, script, "cold", limits=Limits(pids=40))
    assert mine.exit_of().exit_code == 0, mine.stderr()
    assert 0 < int(mine.stdout()) < 40
    until(lambda: not attempt_alive(mine.paths))  # with all that it left behind


def test_without_namespaces_the_other_layers_still_keep_files_and_the_kernel(
    launcher: Launcher, platform: Path, attempts: tuple[Attempt, Attempt]
) -> None:
    mine, other = attempts
    kept = (
        "reads gateway/key",
        "reads another job's file",
        "mounts",
        "traces the agent",
        "has capabilities",
        "reads the agent's environment",
    )
    script = ATTACKS.replace('os.environ["RANK"]', 'os.environ["RANK_DIR"]').replace('open("/tmp/mark", "w").write("x");', "0;")
    script = script.replace('open("/dev/shm/mark", "w").write("x");', "0;")
    found = confinement_of(mine)
    places = tuple(p for p in found.places if p.kind != "scratch")
    arguments = (str(platform), str(other.paths.folder), str(os.getpid()))
    start(
        launcher,
        mine,
        script,
        "cold",
        *arguments,
        env={"ABSTRACT": "none"},
        **vars(replace(found, namespaces=False, uids=None, places=places)),
    )
    assert mine.exit_of().exit_code == 0, mine.stderr()
    assert not set(json.loads(mine.stdout().splitlines()[0])["succeeded"]) & set(kept)

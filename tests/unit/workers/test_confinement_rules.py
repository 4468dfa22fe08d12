"""What a confined job may see and use: rules alone, without a kernel."""

import os
import struct
from pathlib import Path

import pytest

from trainhouse.workers.agent.launch.confining import Confiner, Hidden
from trainhouse.workers.agent.node.devices import CpuSlots
from trainhouse.workers.confinement import interpreters, layers, seccomp, uids
from trainhouse.workers.confinement.cgroups import Hierarchy, Limits, hierarchies, parents_of, settings_of
from trainhouse.workers.confinement.layers import Layer, Layers
from trainhouse.workers.confinement.plan import Confinement, Kind, Place, in_order
from trainhouse.workers.confinement.system import ConfinementError
from trainhouse.workers.launcher.interpreters import identify
from trainhouse.workers.launcher.launcher import starters_environment
from trainhouse.workers.untrusted import open_plain, read_bounded, read_plain, text_or_empty

MOUNTS = """\
31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw
32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
38 31 0:35 /box /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
"""


def test_of_two_places_the_deeper_one_counts_and_the_root_is_never_shown() -> None:
    places = in_order([Place("/data/agent/1", Kind.READ_ONLY), Place("/data", Kind.READ_ONLY), Place("/", Kind.READ_ONLY)])
    assert [p.path for p in places] == ["/data", "/data/agent/1"]
    assert in_order([Place("/data", Kind.READ_ONLY), Place("/data", Kind.HIDDEN)]) == (Place("/data", Kind.HIDDEN),)
    assert in_order([Place("data", Kind.READ_ONLY)]) == ()


def test_a_confinement_survives_its_way_through_json() -> None:
    import json

    places = (Place("/usr", Kind.READ_ONLY), Place("/w", Kind.WRITABLE))
    one = Confinement(True, (5, 9), True, True, False, places, ("/dev/x",), Limits(1, 2, 0.5), ("1:cpu:/sys",))
    assert Confinement.from_json(json.loads(json.dumps(one.as_json()))) == one
    assert one.writable == ("/w",) and one.readable == ("/usr",)


def test_control_groups_are_found_relative_to_what_is_mounted() -> None:
    own = "8:memory:/box/inner\n3:cpu:/\n0::/user\n1:name=systemd:/\n"
    assert hierarchies(MOUNTS, own) == [
        Hierarchy("/sys/fs/cgroup/unified/user", 2, ("memory", "pids", "cpu")),
        Hierarchy("/sys/fs/cgroup/cpu", 1, ("cpu",)),
        Hierarchy("/sys/fs/cgroup/memory/inner", 1, ("memory",)),
    ]
    assert hierarchies(MOUNTS, "8:memory:/elsewhere\n") == []  # above what is mounted here


def test_limits_become_the_files_of_each_version() -> None:
    limits = Limits(memory_bytes=1 << 30, pids=10, cpus=1.5)
    everything = ("memory", "pids", "cpu")
    assert dict(settings_of(limits, 2, everything)) == {
        "memory.max": str(1 << 30),
        "memory.swap.max": "0",
        "pids.max": "10",
        "cpu.max": "150000 100000",
    }
    assert dict(settings_of(limits, 1, everything)) == {
        "memory.limit_in_bytes": str(1 << 30),
        "pids.max": "10",
        "cpu.cfs_quota_us": "150000",
    }
    assert settings_of(limits, 1, ()) == settings_of(Limits(), 2, everything) == []
    both = {"cpu": Hierarchy("/a", 1, ("cpu",)), "memory": Hierarchy("/a", 1, ("memory",))}
    assert parents_of(both) == ("1:cpu,memory:/a",)


def run(program: bytes, architecture: int, number: int, argument: int = 0) -> int:
    """What a filter answers: classic BPF, as far as ours uses it."""
    data = struct.pack("=iIQ6Q", number, architecture, 0, argument, *[0] * 5)
    steps = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    at = accumulator = 0
    while True:
        code, when, otherwise, k = steps[at]
        at += 1
        if code == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, k)
        elif code == 0x06:
            return int(k)
        else:
            holds = {0x15: accumulator == k, 0x25: accumulator > k, 0x45: bool(accumulator & k)}[code]
            at += when if holds else otherwise


@pytest.mark.parametrize(("machine", "audit", "clone", "read"), [("x86_64", 0xC000003E, 56, 0), ("aarch64", 0xC00000B7, 220, 63)])
def test_the_filter_refuses_what_it_names_and_what_it_does_not_know(machine: str, audit: int, clone: int, read: int) -> None:
    filtered = seccomp.program(machine, tracing=True)
    column = 0 if machine == "x86_64" else 1
    for name, numbers in seccomp.DENIED.items():
        number = numbers[column]
        if number is not None:
            assert run(filtered, audit, number) == 0x50001, name
    assert run(filtered, audit, read) == 0x7FFF0000
    assert run(filtered, audit, seccomp.NEWEST + 1) == run(filtered, audit, 435) == 0x50026  # ENOSYS
    assert run(filtered, audit, clone, 17) == 0x7FFF0000
    assert run(filtered, audit, clone, 0x10000000 | 17) == 0x50001
    assert run(filtered, 0x40000003, read) == 0x80000000  # another architecture's
    tracing = seccomp.TRACING["ptrace"][column]
    assert tracing is not None
    assert run(filtered, audit, tracing) == 0x7FFF0000
    assert run(seccomp.program(machine, tracing=False), audit, tracing) == 0x50001


def test_an_installation_is_shown_and_what_a_jobs_own_refers_to_is_not(tmp_path: Path) -> None:
    venv, secret = tmp_path / "venv", tmp_path / "secret"
    packages = venv / "lib/python3.11/site-packages"
    packages.mkdir(parents=True)
    secret.mkdir()
    (venv / "bin").mkdir()
    (venv / "bin/python").touch()
    (venv / "pyvenv.cfg").write_text(f"home = {secret}/bin\n")
    (packages / "x.pth").write_text(f"{secret}\n")
    assert interpreters.shown_for(str(venv / "bin/python"), trusted=False) == (str(venv),)
    assert str(secret) in interpreters.shown_for(str(venv / "bin/python"), trusted=True)
    assert interpreters.shown_for(str(secret / "bin/python"), trusted=True) == ()


def test_a_link_a_pipe_or_a_folder_is_no_plain_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    assert read_plain(tmp_path / "file", 2) == b"ab"
    for name in ("link", "pipe", "folder", "none"):
        with pytest.raises(OSError):
            open_plain(tmp_path / name)


@pytest.mark.timeout(120)
def test_a_pipe_a_device_or_a_flood_in_an_installation_holds_nothing_up(tmp_path: Path) -> None:
    site = tmp_path / "lib/python3.11/site-packages"
    (site / "torch").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").touch()
    (tmp_path / "lib/python3.11/os.py").touch()
    os.mkfifo(tmp_path / "pipe")
    with open(tmp_path / "flood", "wb") as flood:
        flood.truncate(1 << 40)
    for name in ("pipe", "flood", "/dev/zero", "/dev/tty"):
        for place in (tmp_path / "pyvenv.cfg", site / "x.pth", site / "__editable___x_finder.py", site / "torch/version.py"):
            place.unlink(missing_ok=True)
            place.symlink_to(tmp_path / name)
        assert identify(str(tmp_path / "bin/python")).torch_version == ""
        for trusted in (False, True):
            assert set(interpreters.shown_for(str(tmp_path / "bin/python"), trusted=trusted)) <= {str(tmp_path)}
    assert len(read_bounded(tmp_path / "flood")) == 65_536 and text_or_empty(tmp_path / "pipe") == text_or_empty(tmp_path / "none") == ""


def installation(folder: Path) -> str:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/python").touch()
    (folder / "pyvenv.cfg").touch()
    return str(folder / "bin/python")


def test_no_installation_of_the_agents_own_or_that_jobs_may_write_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agents, shared, good = (tmp_path / name for name in ("agents", "shared", "good"))
    for folder in (agents / "n1", tmp_path / "secrets"):
        folder.mkdir(parents=True)
    (tmp_path / "link").symlink_to(agents)
    hidden = Hidden(tmp_path / "link" / "n1", tmp_path / "secrets")
    confiner = Confiner("none", "python", hidden, CpuSlots("n", 1), 0, (f"{shared}:rw", f"{good}"))
    refused = [installation(agents / "n1/a"), installation(shared / "venv"), str(tmp_path / "link/n1/a/bin/python")]
    (tmp_path / "other").symlink_to(shared)
    refused.append(str(tmp_path / "other/venv/bin/python"))
    python = installation(good / "venv")
    assert {str(agents), str(agents / "n1"), str(tmp_path / "link")} <= {p.path for p in hidden.places()}
    assert confiner._of_job(python) == [str(good / "venv")]
    monkeypatch.setattr(interpreters, "shown_for", lambda *_, **__: pytest.fail("it was looked at"))
    assert [confiner._of_job(path) for path in refused] == [[]] * 4 and confiner._of_job(None) == []


@pytest.mark.parametrize(("uids", "path", "kept"), [(False, "/scratch:rw", True), (False, "/scratch", False), (True, "/scratch:rw", False)])
def test_a_confined_job_keeps_a_cache_of_shards_that_it_can_write(uids: bool, path: str, kept: bool) -> None:
    found = Layers((Layer("namespaces", True), Layer("uid", uids)))
    hidden = Hidden(Path("/agents/n1"), Path("/secrets"))
    confiner = Confiner("preferred", "python", hidden, CpuSlots("n", 1), 0, (path,), lambda _: found)
    given = {"TRAINHOUSE_DATA_CACHE_DIR": "/scratch/shards", "TRAINHOUSE_DATA_CACHE_GIB": "9"}
    left = confiner.environ(given)
    assert ("TRAINHOUSE_DATA_CACHE_DIR" in left) == kept and left["TRAINHOUSE_DATA_CACHE_GIB"] == "9"


def test_what_lacks_is_said() -> None:
    found = Layers((Layer("uid", True), Layer("namespaces", False, "not permitted"), Layer("seccomp", True)))
    assert not found.complete and found.lacking == "namespaces: not permitted"
    most = (Layer("uid", True), Layer("namespaces", True), Layer("seccomp", True))
    assert not Layers(most).complete and Layers((*most, Layer("landlock", True))).complete


def test_root_without_uids_for_jobs_gives_no_namespaces_either(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Layer, ...]] = []
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(layers, "_tried", lambda interpreter, base, more: asked.append(more) or "no uid is free")
    uid, namespaces = layers._of_namespaces("python", Layers(()))
    assert not uid.on and not namespaces.on and uid.why == namespaces.why == "no uid is free" and len(asked) == 1


def test_a_uid_is_claimed_once_and_freed_with_its_descriptor(tmp_path: Path) -> None:
    folder = str(tmp_path / "uids")
    first, held = uids.claimed((500, 2), "seed", folder)
    second, also_held = uids.claimed((500, 2), "seed", folder)
    assert {first, second} == {500, 501} and os.stat(folder).st_mode & 0o777 == 0o700
    with pytest.raises(ConfinementError, match="free"):
        uids.claimed((500, 2), "seed", folder)
    os.close(held)
    again, held = uids.claimed((500, 2), "seed", folder)
    assert again == first
    os.close(held)
    os.close(also_held)


def test_uids_are_claimed_in_no_folder_and_by_no_file_of_others(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "own").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "own")
    (tmp_path / "own" / "500").symlink_to(tmp_path / "target")
    for name in ("open", "link", "own"):
        with pytest.raises(ConfinementError):
            uids.claimed((500, 1), "seed", str(tmp_path / name))
    assert not (tmp_path / "target").exists()


def test_a_cold_starter_gets_what_it_needs_of_the_agents_environment_and_nothing_else() -> None:
    needed = {"PATH": "/bin", "LD_LIBRARY_PATH": "/x", "HTTPS_PROXY": "http://p", "SSL_CERT_FILE": "/ca"}
    others = {"TRAINHOUSE_KEY": "k", "AWS_SECRET_ACCESS_KEY": "k", "HUB_TOKEN": "k", "DATABASE_URL": "k"}  # pragma: allowlist secret
    assert starters_environment(needed | others) == needed

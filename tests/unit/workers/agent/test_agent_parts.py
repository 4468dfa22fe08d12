"""Parts of the agent's shell on their own: environment, code, folders, cleanup, ranks' ends."""

import hashlib
import io
import os
import tarfile
import threading
from pathlib import Path

import orjson
import pytest

from trainhouse.events import CodeArchive, GangAllocated, JobSpec, NodePlacement, Order
from trainhouse.workers.agent import main
from trainhouse.workers.agent.components import Inbox
from trainhouse.workers.agent.core import AgentState, AttemptKey, Identity
from trainhouse.workers.agent.errors import CorruptStateError, FolderBusyError, InvalidSettingError, NotLaunchableError
from trainhouse.workers.agent.follower import Deaf
from trainhouse.workers.agent.launch.attempt_dirs import FolderLock, StateFile, found_attempts, mark_finished, record_allocation
from trainhouse.workers.agent.launch.cleanup import Cleaner
from trainhouse.workers.agent.launch.code_fetch import CodeCache
from trainhouse.workers.agent.launch.environment import (
    NodeSide,
    RankFolders,
    command_of,
    filled_command,
    node_environment,
    rank_environment,
)
from trainhouse.workers.agent.launch.rank_watch import UNRECORDED_MS, RankWatch
from trainhouse.workers.agent.launch.rendezvous import RendezvousPorts
from trainhouse.workers.agent.settings import AgentSettings
from trainhouse.workers.launcher import AttemptPaths
from trainhouse.workers.launcher.processes import write_json, write_process


def gang(**spec: object) -> GangAllocated:
    places = (
        NodePlacement(node_id="n0", boot_id="b", address="10.0.0.1", first_rank=0, devices=("GPU-a",)),
        NodePlacement(node_id="n1", boot_id="b", address="10.0.0.2", first_rank=1, devices=("GPU-b", "GPU-c")),
    )
    made = JobSpec.model_validate({"runtime": {"command": ["python", "t.py"]}, **spec})
    return GangAllocated(
        job_id="j",
        attempt=2,
        epoch=3,
        pool="default",
        spec=made,
        spec_sha256=made.sha256(),
        placements=places,
        master_address="10.0.0.1",
        master_port=1234,
    )


def environment(allocation: GangAllocated, rank: int, **node: object) -> dict[str, str]:
    side = NodeSide(**{"environ": {"PATH": "/bin", "OMP_NUM_THREADS": "9"}, **node})  # type: ignore[arg-type]
    placement = allocation.on_node("n0" if rank == 0 else "n1")
    assert placement is not None
    return rank_environment(allocation, placement, rank, RankFolders("/a", f"/a/rank-{rank}"), side)


def test_torchruns_contract() -> None:
    env = environment(gang(), 2)
    expected = {"RANK": "2", "LOCAL_RANK": "1", "WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "1", "GROUP_WORLD_SIZE": "2"}
    expected |= {"ROLE_RANK": "2", "ROLE_WORLD_SIZE": "3", "ROLE_NAME": "default", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "1234"}
    expected |= {"TORCHELASTIC_RESTART_COUNT": "2", "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RUN_ID": "j"}
    expected |= {"TRAINHOUSE_JOB_ID": "j", "TRAINHOUSE_ATTEMPT": "2", "TRAINHOUSE_EPOCH": "3", "TRAINHOUSE_RANK_DIR": "/a/rank-2"}
    assert expected.items() <= env.items()
    assert env["TRAINHOUSE_BACKEND"] == "gloo" and "CUDA_VISIBLE_DEVICES" not in env and env["OMP_NUM_THREADS"] == "1"


def test_a_job_that_brings_a_token_is_its_own_run_for_mlflow() -> None:
    url = {"gateway_url": "http://gateway:8080"}
    told = {"MLFLOW_TRACKING_URI": "http://gateway:8080", "MLFLOW_RUN_ID": "j"}
    assert told.items() <= environment(gang(secrets=["MLFLOW_TRACKING_TOKEN"]), 0, **url).items()
    assert told.items() <= environment(gang(env={"MLFLOW_TRACKING_TOKEN": "t"}), 0, **url).items()
    elsewhere = {"MLFLOW_TRACKING_TOKEN": "t", "MLFLOW_TRACKING_URI": "http://other"}
    for spec, node in ((gang(), url), (gang(env=elsewhere), url), (gang(env={"MLFLOW_TRACKING_TOKEN": "t"}), {})):
        assert "MLFLOW_RUN_ID" not in environment(spec, 0, **node)


def test_ranks_of_roles_know_their_role_and_run_its_command() -> None:
    learner = {"name": "learner", "ranks": 1}
    actor = {"name": "actor", "ranks": 2, "command": ["python", "act.py", "{lr}"], "resources": {"cpus_per_device": 3}}
    allocation = gang(gang={"ranks": 3, "roles": [learner, actor]}, hyperparameters={"lr": 0.1})
    told = [tuple(environment(allocation, r)[f"ROLE_{n}"] for n in ("NAME", "RANK", "WORLD_SIZE")) for r in (0, 1, 2)]
    assert told == [("learner", "0", "1"), ("actor", "0", "2"), ("actor", "1", "2")]
    assert [environment(allocation, r)["OMP_NUM_THREADS"] for r in (0, 1)] == ["1", "3"]
    assert [command_of(allocation.spec, r) for r in (0, 2)] == [("python", "t.py"), ("python", "act.py", "0.1")]
    assert environment(allocation, 2)["WORLD_SIZE"] == "3"


def test_ranks_get_the_layout_at_the_size_that_the_gang_has() -> None:
    layout = {"dp": 3, "pp": 1, "tp": 1, "fsdp": 1}
    told = environment(gang(gang={"ranks": 3, "min_ranks": 1}, parallelism=layout), 0)["TRAINHOUSE_PARALLELISM"]
    assert orjson.loads(told) == layout
    assert "TRAINHOUSE_PARALLELISM" not in environment(gang(gang=3), 0)


def test_accelerators_are_in_the_order_of_local_ranks() -> None:
    env = environment(gang(), 2, accelerators=True, store={"TRAINHOUSE_S3_BUCKET": "b"})
    assert env["CUDA_VISIBLE_DEVICES"] == "GPU-b,GPU-c" and env["TRAINHOUSE_BACKEND"] == "nccl" and env["TRAINHOUSE_S3_BUCKET"] == "b"


def test_the_spec_wins_over_the_node_and_the_launcher_over_the_spec() -> None:
    allocation = gang(env={"PATH": "/mine", "OMP_NUM_THREADS": "4"}, hyperparameters={"lr": 0.1}, seed=5)
    env = environment(allocation, 0)
    assert env["PATH"] == "/mine" and env["OMP_NUM_THREADS"] == "4" and env["TRAINHOUSE_SEED"] == "5"
    assert orjson.loads(env["TRAINHOUSE_HYPERPARAMETERS"]) == {"lr": 0.1}
    assert orjson.loads(env["TRAINHOUSE_CHECKPOINT"])["keep_last"] == 3


def test_what_a_rank_gets_of_the_agents_environment() -> None:
    mine = {"PATH": "/bin", "LC_ALL": "C", "NCCL_DEBUG": "INFO", "TRAINHOUSE_KAFKA_SASL_PASSWORD": "x", "AWS_SECRET_ACCESS_KEY": "x"}
    assert node_environment(mine, {"LD_PRELOAD": "y"}) == {"PATH": "/bin", "LC_ALL": "C", "NCCL_DEBUG": "INFO", "LD_PRELOAD": "y"}


def test_a_rank_gets_the_nodes_cache_of_shards() -> None:
    cache = {"TRAINHOUSE_DATA_CACHE_DIR": "/scratch/shards", "TRAINHOUSE_DATA_CACHE_GIB": "100", "TRAINHOUSE_DATA_READS": "4"}
    assert node_environment({**cache, "TRAINHOUSE_AGENT_DIR": "/a"}, {}) == cache


def test_placeholders_are_hyperparameters_and_nothing_else() -> None:
    command = ("python", "t.py", "--lr={lr}", "{deep}", '{"json": 1}', "{unknown}", "{none}")
    filled = filled_command(command, {"lr": 0.1, "deep": True, "none": None})
    assert filled == ("python", "t.py", "--lr=0.1", "true", '{"json": 1}', "{unknown}", "none")


def packed(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as tar:
        for info, content in members:
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return raw.getvalue()


def link(name: str, target: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.SYMTYPE, target
    return info


def archive_of(content: bytes) -> CodeArchive:
    return CodeArchive(uri="s3://b/code", sha256=hashlib.sha256(content).hexdigest())


def test_code_is_fetched_once_and_verified(tmp_path: Path) -> None:
    content = packed((tarfile.TarInfo("pkg/train.py"), b"print(1)"))
    fetched: list[str] = []
    cache = CodeCache(tmp_path / "cache", lambda uri: fetched.append(uri) or [content], keep_bytes=10**9)  # type: ignore[func-returns-value]
    for name in ("a", "b"):
        cache.unpack(archive_of(content), tmp_path / name)
        assert (tmp_path / name / "pkg" / "train.py").read_bytes() == b"print(1)"
    assert fetched == ["s3://b/code"]
    (next((tmp_path / "cache").glob("*.gz"))).write_bytes(b"rotten")
    cache.unpack(archive_of(content), tmp_path / "c")
    assert len(fetched) == 2
    with pytest.raises(NotLaunchableError, match="has another hash"):
        cache.unpack(CodeArchive(uri="s3://b/code", sha256="0" * 64), tmp_path / "d")
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize(
    "members",
    [
        [(tarfile.TarInfo("../out.py"), b"x")],
        [(tarfile.TarInfo("/abs/../../out.py"), b"x")],
        [(link("out", "../.."), b""), (tarfile.TarInfo("out/out.py"), b"x")],
        [(link("etc", "/etc"), b"")],
    ],
)
def test_an_archive_never_reaches_outside(tmp_path: Path, members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    content = packed(*members)
    cache = CodeCache(tmp_path / "cache", lambda _: [content], keep_bytes=10**9)
    with pytest.raises(NotLaunchableError, match="cannot be unpacked"):
        cache.unpack(archive_of(content), tmp_path / "in" / "code")
    assert not list(tmp_path.rglob("out.py"))


def test_what_is_no_archive_is_said(tmp_path: Path) -> None:
    cache = CodeCache(tmp_path / "cache", lambda _: [b"junk"], keep_bytes=10**9)
    with pytest.raises(NotLaunchableError, match="cannot be unpacked"):
        cache.unpack(archive_of(b"junk"), tmp_path / "code")


def test_the_code_cache_is_bounded(tmp_path: Path) -> None:
    contents = [packed((tarfile.TarInfo(f"{n}.bin"), os.urandom(10_000))) for n in range(5)]
    by_uri = {f"s3://b/{n}": [c] for n, c in enumerate(contents)}
    cache = CodeCache(tmp_path / "cache", by_uri.__getitem__, keep_bytes=25_000)
    for n, content in enumerate(contents):
        cache.unpack(archive_of(content).model_copy(update={"uri": f"s3://b/{n}"}), tmp_path / str(n))
    assert sum(p.stat().st_size for p in (tmp_path / "cache").iterdir()) <= 25_000


def test_one_agent_per_folder(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path)
    with pytest.raises(FolderBusyError, match=f"pid {os.getpid()}.*TRAINHOUSE_AGENT_DIR"):
        FolderLock(tmp_path)
    lock.release()
    FolderLock(tmp_path).release()


def test_fences_and_order_survive_and_broken_ones_are_refused(tmp_path: Path) -> None:
    me = Identity("n", "b", "i", "p")
    state = AgentState(me, order={3: Order(3, 7, 1)}).with_fence("j", seen=4, ended=2)
    StateFile(tmp_path).save(state)
    assert StateFile(tmp_path).load(me) == state
    (tmp_path / "state.json").write_bytes(b"{")
    with pytest.raises(CorruptStateError, match="move it away only if"):
        StateFile(tmp_path).load(me)


def test_old_attempts_go_but_never_unshipped_ones(tmp_path: Path) -> None:
    for number in range(6):
        allocation = gang().model_copy(update={"job_id": f"j{number}"})
        paths = AttemptPaths.of(tmp_path, f"j{number}", 3)
        record_allocation(paths, allocation, "b")
        (paths.folder / "big").write_bytes(b"x" * 10_000)
        mark_finished(paths, shipped=number != 0)
        os.utime(paths.folder / "finished.json", (number, number))
    assert Cleaner(tmp_path, keep=3, keep_bytes=10**9).clean() == 2
    assert [f.allocation.job_id for f in found_attempts(tmp_path)] == ["j0", "j3", "j4", "j5"]
    assert Cleaner(tmp_path, keep=100, keep_bytes=30_000).clean() == 2
    assert [f.allocation.job_id for f in found_attempts(tmp_path)] == ["j0", "j5"]


def test_an_end_that_nobody_recorded_is_told_as_unknown(tmp_path: Path) -> None:
    paths, key, watch = AttemptPaths(tmp_path), AttemptKey("j", 0), RankWatch()
    rank = paths.rank(0)
    rank.folder.mkdir()
    write_process(rank.pid, os.getpid())
    assert watch.gone(key, paths, 0, 0) is None
    write_json(rank.pid, {"pid": os.getpid(), "create_time": 1.0})  # the pid is somebody else's by now
    assert watch.gone(key, paths, 0, 10_000) is None
    gone = watch.gone(key, paths, 0, 10_000 + UNRECORDED_MS)
    assert gone is not None and (gone.exit_code, gone.signal) == (None, None) and "not recorded" in gone.reason


def test_a_rendezvous_port_is_held_and_comes_back(tmp_path: Path) -> None:
    ports = RendezvousPorts("127.0.0.1", 2)
    assert len(set(ports.ports)) == 2
    other = RendezvousPorts("127.0.0.1", 0)
    with pytest.raises(NotLaunchableError, match="not free any more"):
        other.socket_of(ports.ports[0])
    port = ports.ports[0]
    ports.close()
    assert other.socket_of(port).getsockname()[1] == port
    other.close()
    with pytest.raises(InvalidSettingError, match="TRAINHOUSE_AGENT_ADDRESS"):
        RendezvousPorts("203.0.113.7", 1)


def test_who_empties_the_inbox_never_waits_for_room_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood of refused requests: the loop's own answers go in behind them, or it would wait for itself for ever."""
    monkeypatch.setattr(main, "MAX_INBOX", 2)
    inbox = Inbox()
    loop, full = threading.get_ident(), threading.Event()
    put = main.bounded(inbox, lambda: threading.get_ident() == loop)

    def flood() -> None:
        for reason in "abc":
            full.set() if reason == "c" else None
            put(Deaf(reason))

    flooding = threading.Thread(target=flood, daemon=True)
    flooding.start()
    assert full.wait(60)
    put(Deaf("answer"))
    assert [inbox.get(timeout=60) for _ in range(4)] == [Deaf("a"), Deaf("b"), Deaf("answer"), Deaf("c")]
    flooding.join(60)


def test_settings_name_a_node_by_its_host() -> None:
    found = AgentSettings(dir=Path("x")).resolved()
    assert found.node_id and found.dir.is_absolute() and found.secrets_dir == found.dir.parent / "secrets"

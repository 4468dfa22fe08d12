"""The layout of a session: from the spec or the environment, at the number of ranks that there are; a mesh of one rank."""

from pathlib import Path
from typing import Any

import orjson
import pytest
import torch
import torch.distributed as dist

from tests.support.core_world import spec
from tests.support.gloo_gang import Groups, run_gang
from trainhouse.events.model.parallelism import DIMENSIONS, Parallelism
from trainhouse.workers.launcher import ports
from trainhouse.workers.session import InvalidUseError
from trainhouse.workers.session.context import Context
from trainhouse.workers.session.process_groups import Gang


def in_trainhouse(folder: Path, ranks: int, world_size: int, **layout: int) -> Context:
    """The context of a rank whose attempt has so many ranks now."""
    job = spec(gang={"ranks": ranks, "min_ranks": world_size}, parallelism=layout)
    (folder / "spec.json").write_bytes(job.canonical_json())
    told = {ports.JOB_ID: "j", ports.ATTEMPT: "1", ports.EPOCH: "1", ports.SPEC_SHA256: "x", ports.RANK_DIR: str(folder)}
    return Context.from_env(told | {ports.ATTEMPT_DIR: str(folder), "RANK": "2", "WORLD_SIZE": str(world_size)})


def test_an_elastic_gang_has_its_layout_with_another_dp(tmp_path: Path) -> None:
    assert in_trainhouse(tmp_path, 8, 8, dp=4, tp=2).layout == Parallelism(dp=4, tp=2)
    small = in_trainhouse(tmp_path, 8, 4, dp=4, tp=2).layout
    assert small == Parallelism(dp=2, tp=2) and small.data_size == 2 and [small.data_rank(r) for r in range(4)] == [0, 0, 1, 1]


def test_without_one_each_rank_is_a_replica() -> None:
    assert Context.from_env({"WORLD_SIZE": "3"}).layout == Parallelism(dp=3)


def test_outside_of_trainhouse_a_variable_gives_it() -> None:
    text = orjson.dumps({"tp": 2, "pp": 2}).decode()
    assert Context.from_env({"WORLD_SIZE": "4", ports.PARALLELISM: text}).layout == Parallelism(tp=2, pp=2)
    with pytest.raises(InvalidUseError, match=r"3 ranks are no multiple of fsdp × tp × pp = 4.*start as many ranks as the layout has"):
        _ = Context.from_env({"WORLD_SIZE": "3", ports.PARALLELISM: text}).layout
    with pytest.raises(InvalidUseError, match=r"TRAINHOUSE_PARALLELISM=.*expert parallelism is not supported"):
        Context.from_env({ports.PARALLELISM: '{"ep": 2}'})


def test_a_single_rank_has_a_mesh_and_takes_its_group_down() -> None:
    gang = Gang(Context(backend="gloo"))
    assert not dist.is_initialized()
    mesh = gang.mesh(Parallelism())
    assert mesh.mesh_dim_names == ("pp", "dp", "fsdp", "tp") and mesh.shape == (1, 1, 1, 1) and gang.mesh(Parallelism()) is mesh
    gang.leave()
    assert not dist.is_initialized()


def _timeouts(store: Any, groups: Groups) -> dict[Any, Any]:
    """Seconds of the timeout of each dimension's group."""
    context = Context(rank=dist.get_rank(), world_size=2, backend="gloo")
    mesh = Gang(context, timeout_s=41.0).mesh(Parallelism(tp=2))
    return {name: _timeout_s(mesh.get_group(name)) for name in DIMENSIONS} | {"whole": _timeout_s(dist.group.WORLD)}


def _timeout_s(group: Any) -> float:
    return float(group._get_backend(torch.device("cpu")).options._timeout.total_seconds())


def test_groups_of_a_mesh_have_the_sessions_timeout(tmp_path: Path) -> None:
    for found in run_gang(_timeouts, tmp_path, __name__, world=2):
        whole = found.pop("whole")
        assert whole == 120.0, "the program's own group is used as it is"
        assert found.pop("tp") in (41.0, whole) and set(found.values()) == {41.0}


def test_shares_of_the_data_by_rank() -> None:
    assert Parallelism(dp=2, fsdp=2).data_shares == ()
    assert Parallelism(dp=2, tp=2).data_shares == (0, 0, 1, 1)
    assert Parallelism(dp=2, pp=2).data_shares == (0, 1, 0, 1)
    assert Parallelism(tp=2).data_shares == (0, 0)

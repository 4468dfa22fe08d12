"""Dumps of the flight recorder: read without trust, and told as one line a rank.

`tests/data/recorder` holds what torch 2.15 dumped of two gloo ranks, of which the second never came to the third collective.
"""

import json
import math
import pickle
from pathlib import Path

import pytest

from trainhouse.events import GangAllocated
from trainhouse.events.wire.collectives import AtCollective, spans
from trainhouse.scheduler.core.blame.flight_recorder import recorder_finding
from trainhouse.workers.agent.debug.recorder_dumps import MAX_BYTES, InvalidDumpError, parse, standing, words_of
from trainhouse.workers.agent.launch.environment import NodeSide, RankFolders, rank_environment
from trainhouse.workers.agent.launch.rank_watch import reason
from trainhouse.workers.launcher import ExitRecord, RankPaths

DUMPS = Path(__file__).parents[3] / "data" / "recorder"
SAMPLES = Path(__file__).parents[4] / "events" / "contract" / "samples"


def _lines(rank: int) -> list[str]:
    return [at.line() for at in standing(rank, parse((DUMPS / f"gloo_rank_{rank}.pickle").read_bytes()))]


def test_dumps_of_torch_say_who_never_came() -> None:
    found = recorder_finding([*_lines(0), *_lines(1)])
    assert found is not None and found.absent == (1,) and not found.disagree
    assert "rank 0 waits for rank 1" in found.sentence and "all_reduce" in found.sentence and "collective 3" in found.sentence


def test_a_line_is_read_back() -> None:
    at = AtCollective(3, "default_pg", 17, "nccl:all_reduce [4] Float", 19, 16, (0, 1, 2, 3, 7))
    assert AtCollective.found_in(f"rank 3 was ended by SIGABRT\n{at.line()}\nmore") == (at,)
    assert spans((7, 0, 1, 2, 3)) == "0-3,7"


def test_a_group_that_is_spread_over_many_ranks_is_read_back_as_far_as_a_line_goes() -> None:
    at = AtCollective(3, "mesh_dp", 17, "nccl:all_reduce", 19, 16, tuple(range(0, 4096, 8)))
    (back,) = AtCollective.found_in(at.line())
    assert back.rank == 3 and len(back.members) > 100 and set(back.members) < set(at.members)


def test_a_line_that_anybody_wrote_costs_no_more_than_a_large_gang() -> None:
    at = AtCollective(3, "g", 1, "x", 1, 0, (0,)).line()
    many = ",".join(f"{n}-{n + 9_999_999}" for n in range(20))
    (back,) = AtCollective.found_in(at.replace("(ranks 0)", f"(ranks {many})"))
    assert len(back.members) == 100_000
    found = recorder_finding([at.replace("(ranks 0)", "(ranks 0-99999)")])
    assert found is not None and "ranks 0-2,4-99999" in found.sentence


def _nccl(rank: int, *, begun: int, done: int, what: str = "nccl:all_reduce") -> dict[str, object]:
    """As a watchdog of NCCL dumps it: status by group, an entry for each collective, those that are done completed."""
    entries = [
        {
            "pg_id": 0,
            "process_group": ("0", "default_pg"),
            "collective_seq_id": seq,
            "profiling_name": what,
            "input_sizes": [[512]],
            "input_dtypes": ["Float"],
            "state": "completed" if seq <= done else "started",
            "is_p2p": False,
        }
        for seq in range(1, begun + 1)
    ]
    status = {"0": {"last_enqueued_collective": begun, "last_started_collective": done + 1, "last_completed_collective": done}}
    return {"entries": entries, "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}}, "pg_status": status}


def _of(*dumps: tuple[int, dict[str, object]]) -> list[str]:
    return [at.line() for rank, dump in dumps for at in standing(rank, parse(pickle.dumps(dump)))]


def test_ranks_that_run_ahead_are_not_what_others_wait_for() -> None:
    found = recorder_finding(_of((0, _nccl(0, begun=11, done=7)), (1, _nccl(1, begun=9, done=7)), (2, _nccl(2, begun=7, done=7))))
    assert found is not None and found.absent == (2,) and "collective 8" in found.sentence


def test_all_that_came_wait_for_each_other() -> None:
    found = recorder_finding(_of(*((r, _nccl(r, begun=9, done=7)) for r in range(3))))
    assert found is not None and not found.absent and "every rank came" in found.sentence


def test_a_rank_without_a_dump_is_named() -> None:
    found = recorder_finding(_of((0, _nccl(0, begun=9, done=7)), (1, _nccl(1, begun=9, done=7))))
    assert found is not None and found.absent == (2,) and "left no dump" in found.sentence


def test_different_collectives_are_told() -> None:
    found = recorder_finding(_of((0, _nccl(0, begun=9, done=7)), (1, _nccl(1, begun=9, done=7, what="nccl:all_gather"))))
    assert found is not None and found.disagree and "nccl:all_gather" in found.sentence


def _at(rank: int, group: str, members: tuple[int, ...], begun: int, done: int, what: str = "nccl:all_reduce [512] Float") -> str:
    return AtCollective(rank, group, min(done + 1, begun), what, begun, done, members).line()


def test_groups_of_one_description_are_apart() -> None:
    """torch describes each group of a dimension alike; here fsdp=2, pp=2, and rank 3 stopped without a dump."""
    first = [_at(rank, "mesh_fsdp", (0, 1), 30, 30, "nccl:all_gather [7] Float") for rank in (0, 1)]
    for lines in ([*first, _at(2, "mesh_fsdp", (2, 3), 41, 40)], [_at(2, "mesh_fsdp", (2, 3), 30, 29), *first]):
        found = recorder_finding(lines)
        assert found is not None and found.absent == (3,) and not found.disagree, found
        assert "rank 2 waits for rank 3, which left no dump" in found.sentence


def test_a_rank_that_waits_in_another_group_is_not_what_its_group_waits_for() -> None:
    lines = [_at(0, "mesh_tp", (0, 1), 9, 8), _at(1, "mesh_tp", (0, 1), 8, 8), _at(1, "mesh_zz", (1, 3), 5, 4)]
    found = recorder_finding(lines)
    assert found is not None and found.absent == (3,), found


def test_json_is_read_too() -> None:
    assert standing(0, parse(json.dumps(_nccl(0, begun=3, done=2)).encode()))[0].at == 3


class _Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (print, ("ran",))


@pytest.mark.parametrize(
    "raw", [pickle.dumps({"entries": [_Evil()]}), b"", b"\x80\x04garbage", b"[1]", pickle.dumps([1]), b"\0" * (MAX_BYTES + 1)]
)
def test_untrusted_bytes_make_no_line_and_run_nothing(raw: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InvalidDumpError):
        parse(raw)
    (tmp_path / "flight_recorder_0").write_bytes(raw)
    assert words_of(tmp_path / "flight_recorder_0", 0) == ""
    assert "ran" not in capsys.readouterr().out


def _odd(**fields: object) -> bytes:
    return pickle.dumps({"entries": [{"collective_seq_id": 1, "state": "started", "input_sizes": [[4]], **fields}]})


def _again_and_again() -> list[object]:
    """A few hundred bytes whose words would fill the memory."""
    found: list[object] = [0]
    for _ in range(40):
        found = [found, found]
    return found


@pytest.mark.parametrize(
    "raw",
    [
        b'{"entries":[{"collective_seq_id":1,"input_sizes":[' + b"[" * 1_000 + b"]" * 1_000 + b"]}]}",
        b"\x80\x04}\x8c\x07entries](}(\x8c\x11collective_seq_idK\x01\x8c\x0eprofiling_name" + b"]" * 50_000 + b"a" * 49_999 + b"ues.",
        _odd(input_sizes=[_again_and_again()]),
        _odd(profiling_name=_again_and_again(), pg_id=_again_and_again(), process_group=[_again_and_again()] * 2),
        _odd(input_sizes=7, collective_seq_id=10**5_000),
        pickle.dumps({"entries": [{"collective_seq_id": 1}], "pg_status": {"0": {"last_enqueued_collective": math.inf}}}),
    ],
)
def test_odd_values_cost_the_agent_nothing(raw: bytes, tmp_path: Path) -> None:
    parse(raw)
    (tmp_path / "flight_recorder_0").write_bytes(raw)
    assert len(words_of(tmp_path / "flight_recorder_0", 0)) < 1_000


def test_the_reason_of_an_end_carries_the_line(tmp_path: Path) -> None:
    paths = RankPaths(tmp_path)
    paths.stderr.write_text("Watchdog caught collective operation timeout\n")
    (tmp_path / "flight_recorder_1").write_bytes((DUMPS / "gloo_rank_1.pickle").read_bytes())
    text = reason(1, ExitRecord(None, 6, 5), paths)
    assert "ends:\nWatchdog caught collective operation timeout\nflight recorder:" in text
    assert AtCollective.found_in(text[-300:])[0].at == 2


def test_only_gangs_with_accelerators_record_and_their_spec_wins() -> None:
    sample = json.loads((SAMPLES / "trainhouse.gang.allocated.v1.json").read_text())
    gang = GangAllocated.model_validate(sample.get("data", sample))
    part = gang.placements[0]
    folders = RankFolders("/a", "/a/rank-0")
    with_gpus = rank_environment(gang, part, part.first_rank, folders, NodeSide({}, accelerators=True))
    assert with_gpus["TORCH_FR_DUMP_TEMP_FILE"] == "/a/rank-0/flight_recorder_"
    assert "TORCH_FR_DUMP_TEMP_FILE" not in rank_environment(gang, part, part.first_rank, folders, NodeSide({}))
    own = gang.model_copy(update={"spec": gang.spec.model_copy(update={"env": {"TORCH_FR_BUFFER_SIZE": "0"}})})
    assert rank_environment(own, part, part.first_rank, folders, NodeSide({}, accelerators=True))["TORCH_FR_BUFFER_SIZE"] == "0"

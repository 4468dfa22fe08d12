"""Checkpoints of gangs that come back with another number of ranks, by gloo processes on one store."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from tests.support.gloo_gang import Groups, run_gang
from trainhouse.checkpointing.checkpointer import Checkpointer, CheckpointerSettings
from trainhouse.checkpointing.errors import InvalidStateError
from trainhouse.checkpointing.state import rng
from trainhouse.checkpointing.state.reshard import carried, check
from trainhouse.workers.examples.text import Windows
from trainhouse.workers.session.saving.tracked_state import Tracked

SEED = 11
RESIZES = ((2, 1), (1, 2), (2, 4), (4, 3), (2, 2))
STEPS_BEFORE, STEPS_AFTER = 3, 2
TP, PP = (0, 0, 1, 1), (0, 1, 0, 1)  # shares of the data by rank of dp=2, tp=2 and of dp=2, pp=2
Shares = tuple[tuple[int, ...], tuple[int, ...]]
# 7 of them do not divide by any gang's rows, so shards are uneven.
ROWS = 7


class Training:
    """A training of `ranks` processes: a model alike on all, a sharded tensor, and of each rank's own generators and a loader."""

    def __init__(self, store: Any, job: str, epoch: int, group: dist.ProcessGroup, seed: int) -> None:
        self.group, self.rank, self.ranks = group, dist.get_rank(group), dist.get_world_size(group)
        torch.manual_seed(seed)
        random.seed(f"{seed}/{self.rank}")
        np.random.seed(seed + self.rank)
        self.model = torch.nn.Sequential(torch.nn.Linear(9, 300), torch.nn.Dropout(0.3), torch.nn.Linear(300, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 2, 0.7)
        self.loader = Windows(torch.arange(2001).remainder(256).to(torch.uint8), 8, 3, SEED, self.rank, self.ranks)
        self.tracked = Tracked(self.model, self.optimizer, schedule, self.loader)
        mesh = DeviceMesh.from_group(group, "cpu")
        self.whole = torch.arange(ROWS * 5, dtype=torch.float32).reshape(ROWS, 5)
        self.sharded = distribute_tensor(self.whole if epoch == 1 else torch.zeros(ROWS, 5), mesh, [Shard(0)])
        self.seen: list[list[int]] = []
        self.at = Checkpointer(CheckpointerSettings(job, epoch, epoch - 1, "spec", seed=SEED), store, group)

    def state(self) -> dict[str, Any]:
        return self.tracked.shared() | {"sharded": self.sharded}

    def train(self, steps: int) -> None:
        for _ in range(steps):
            windows = next(self.loader)
            self.seen.append(windows[:, 0].tolist())
            noise = random.random() + float(np.random.rand())
            loss = (self.model(windows.float() / 256) - noise).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            for grad in (p.grad for p in self.model.parameters() if p.grad is not None):
                dist.all_reduce(grad, group=self.group)
            self.optimizer.step()
            if self.tracked.schedule is not None:
                self.tracked.schedule.step()  # type: ignore[attr-defined]

    def weights(self) -> bytes:
        moments = [v for s in self.optimizer.state_dict()["state"].values() for v in s.values()]
        return b"".join(t.numpy().tobytes() for t in [*self.model.state_dict().values(), *moments])


def draws() -> tuple[Any, ...]:
    """What this process's generators give next."""
    return random.random(), float(np.random.rand()), torch.rand(2).tolist()


def resized(store: Any, old: dist.ProcessGroup | None, new: dist.ProcessGroup | None, job: str) -> dict[str, Any]:
    """Trains and saves as the old gang, restores and trains on as the new one; what this process saw."""
    said: dict[str, Any] = {}
    if old is not None:
        first = Training(store, job, 1, old, SEED)
        first.train(STEPS_BEFORE)
        first.at.save(first.state(), first.tracked.of_this_rank(), STEPS_BEFORE, 1.0)
        said |= {"saved": first.weights(), "old_seen": first.seen, "old_draws": draws(), "lr": first.optimizer.param_groups[0]["lr"]}
    dist.barrier()
    if new is not None:
        second = Training(store, job, 2, new, 999)
        report = second.at.restore(second.state(), second.tracked.put_back_own)
        said |= {"step": report.step, "from_ranks": report.world_size, "restored": second.weights(), "new_draws": draws()}
        said |= {"new_lr": second.optimizer.param_groups[0]["lr"], "sharded": _same_shards(second)}
        again = Training(store, job, 3, new, 5)
        again.at.restore(again.state(), again.tracked.put_back_own)
        said["again_draws"] = draws()
        again.train(STEPS_AFTER)
        said |= {"new_seen": again.seen, "trained": again.weights()}
    dist.barrier()
    return said


def _same_shards(training: Training) -> bool:
    """Whether this rank holds exactly its rows, as the present gang shards them."""
    expected = distribute_tensor(training.whole, training.sharded.device_mesh, [Shard(0)])
    assert isinstance(training.sharded, DTensor)
    return torch.equal(training.sharded.to_local(), expected.to_local()) and torch.equal(training.sharded.full_tensor(), training.whole)


Gangs = tuple[dist.ProcessGroup | None, dist.ProcessGroup | None]


def refused(store: Any, gangs: Gangs, job: str, own: dict[str, Any], shares: Shares = ((), ())) -> dict[str, Any]:
    """What the new gang is told about own states that do not carry over; its own state stays as it was."""
    old, new = gangs
    if old is not None:
        at = Checkpointer(CheckpointerSettings(job, 1, 0, "spec", data_shares=shares[0]), store, old)
        at.save({"w": torch.ones(3)}, own, 7, 1.0)
    dist.barrier()
    said: dict[str, Any] = {}
    if new is not None:
        state = {"w": torch.zeros(3)}
        try:
            Checkpointer(CheckpointerSettings(job, 2, 1, "spec", data_shares=shares[1]), store, new).restore(state, lambda own: None)
        except InvalidStateError as error:
            said = {"error": str(error), "untouched": bool((state["w"] == 0).all())}
    dist.barrier()
    return said


def drawn(store: Any, gangs: Gangs, job: str, shares: Shares) -> dict[str, Any]:
    """What this rank's generators would have drawn next when it saved, and what they draw after a restore with other shares."""
    (old, new), said = gangs, dict[str, Any]()
    if old is not None:
        rank = dist.get_rank(old)
        torch.manual_seed(shares[0][rank] if shares[0] else rank)
        random.seed(torch.initial_seed())
        np.random.seed(torch.initial_seed())
        own = {"randomness": rng.capture()}
        Checkpointer(CheckpointerSettings(job, 1, 0, "spec", SEED, data_shares=shares[0]), store, old).save(
            {"w": torch.ones(3)}, own, 7, 1.0
        )
        said["before"] = draws()
    dist.barrier()
    if new is not None:
        settings = CheckpointerSettings(job, 2, 1, "spec", SEED, data_shares=shares[1])
        Checkpointer(settings, store, new).restore({"w": torch.zeros(3)}, lambda own: rng.restore(own["randomness"]))
        said["after"] = draws()
    dist.barrier()
    return said


def in_each_process(store: Any, mine: Groups) -> dict[Any, Any]:
    """Everything that the tests ask for, in one of the four processes."""
    rank = dist.get_rank()
    said: dict[Any, Any] = {(a, b): resized(store, mine[a], mine[b], f"j{a}-{b}") for a, b in RESIZES}
    said["plain loader"] = refused(store, (mine[2], mine[4]), "plain", {"randomness": rng.capture(), "loader": {"position": rank}})
    said["other places"] = refused(store, (mine[4], mine[2]), "other", {"loader": {"scope": "gang", "taken": 0 if rank < 3 else 9}})
    said["other shares"] = refused(store, (mine[4], mine[4]), "shares", {"loader": {"position": rank}}, ((), TP))
    said["other order"] = refused(store, (mine[4], mine[4]), "order", {"loader": {"position": rank}}, (PP, TP))
    said["same shares"] = refused(store, (mine[4], mine[4]), "same", {"loader": {"position": rank}}, (TP, TP))
    for name, ranks, old in (("grown", 2, (0, 0)), ("laid out anew", 4, ())):
        said[name] = drawn(store, (mine[ranks], mine[4]), name.replace(" ", "-"), (old, TP))
    return said


@pytest.fixture(scope="module")
def gangs(tmp_path_factory: pytest.TempPathFactory) -> list[dict[Any, Any]]:
    """What each of the four processes saw."""
    return run_gang(in_each_process, tmp_path_factory.mktemp("gangs"), __name__)


@pytest.mark.parametrize(("old", "new"), RESIZES)
def test_what_all_share_is_laid_out_anew(gangs: list[dict[Any, Any]], old: int, new: int) -> None:
    ranks = [said[old, new] for said in gangs]
    for rank in ranks[:new]:
        assert (rank["step"], rank["from_ranks"]) == (STEPS_BEFORE, old)
        assert rank["restored"] == ranks[0]["saved"] and rank["new_lr"] == ranks[0]["lr"]
        assert rank["sharded"], "every rank holds its rows of the present sharding"
        assert rank["trained"] == ranks[0]["trained"] != rank["restored"], "training goes on, alike on all ranks"


@pytest.mark.parametrize(("old", "new"), RESIZES)
def test_generators_go_with_their_rank_and_new_ones_are_derived(gangs: list[dict[Any, Any]], old: int, new: int) -> None:
    ranks = [said[old, new] for said in gangs]
    for number, rank in enumerate(ranks[:new]):
        assert rank["new_draws"] == rank["again_draws"], "the same on every try"
        if number < old:
            assert rank["new_draws"] == rank["old_draws"]
    added = [r["new_draws"] for r in ranks[old:new]]
    kept = [r["old_draws"] for r in ranks[:old]]
    firsts = [[draw[part] for draw in added] + [draw[part] for draw in kept] for part in range(3)]
    assert all(a != b for part in firsts for i, a in enumerate(part[: len(added)]) for b in part[i + 1 :]), "no new rank repeats another"


@pytest.mark.parametrize(("old", "new"), RESIZES)
def test_the_loader_goes_on_at_the_gangs_place(gangs: list[dict[Any, Any]], old: int, new: int) -> None:
    ranks = [said[old, new] for said in gangs]
    taken = [w for step in range(STEPS_BEFORE) for r in ranks[:old] for w in r["old_seen"][step]]
    taken += [w for step in range(STEPS_AFTER) for r in ranks[:new] for w in r["new_seen"][step]]
    alone = Windows(torch.arange(2001).remainder(256).to(torch.uint8), 8, 3, SEED, 0, 1)
    expected = [w for _ in range(len(taken) // 3) for w in next(alone)[:, 0].tolist()]
    assert taken == expected, "as one rank alone would take them: none twice, none left out"


def test_what_does_not_carry_over_is_refused_by_name(gangs: list[dict[Any, Any]]) -> None:
    for said in gangs:
        told = said["plain loader"]
        assert told["untouched"]
        assert "step 7 of plain was saved by 2 ranks, this gang has 4: the state of 'loader' is each rank's own" in told["error"]
        assert '"scope": "gang"' in told["error"] and "ask for a gang of 2" in told["error"]
    for said in gangs[:2]:
        assert "'loader' says that it speaks of the whole gang, but rank 3 and rank 0 saved different ones" in said["other places"]["error"]


def test_as_many_ranks_with_other_shares_of_the_data_do_not_take_each_others_loader(gangs: list[dict[Any, Any]]) -> None:
    for said in gangs:
        other, order = said["other shares"], said["other order"]
        assert other["untouched"] and order["untouched"] and not said["same shares"]
        assert "as many ranks in another layout, where rank 1 read share 1 of the data, now 0: the state of 'loader'" in other["error"]
        assert "rank 1 read share 1 of the data, now 0" in order["error"] and "keep the layout" in order["error"]


def test_generators_of_one_share_stay_alike(gangs: list[dict[Any, Any]]) -> None:
    grown, anew = [said["grown"] for said in gangs], [said["laid out anew"] for said in gangs]
    assert grown[0]["after"] == grown[1]["after"] == grown[0]["before"]
    assert grown[2]["after"] == grown[3]["after"] != grown[0]["after"], "those of a new share are derived"
    assert [r["after"] for r in anew] == [anew[share]["before"] for share in TP]


def test_ranks_with_different_parts_are_refused() -> None:
    state = rng.capture()
    with pytest.raises(InvalidStateError, match=r"rank 2 saved \['randomness'\] of its own and rank 0 \['loader', 'randomness'\]"):
        check({"randomness": state}, {"randomness": state, "loader": {"scope": "gang"}}, 2)


def test_a_state_that_rank_0_alone_has_goes_to_the_new_rank_0() -> None:
    first, other = {"data_reads": {"scope": "first", "cuts": [3]}}, {"data_reads": {"scope": "first"}}
    check(other, first, 2)
    for mine in (first, other, None):
        assert carried(first, mine, 1, 0, 3) == first


def test_equal_places_may_hold_arrays_and_tensors() -> None:
    def place(last: int) -> dict[str, Any]:
        return {"loader": {"scope": "gang", "order": torch.arange(3), "more": [np.eye(2), (1, last)]}}

    check(place(5), place(5), 1)
    with pytest.raises(InvalidStateError, match="different ones"):
        check(place(5), place(6), 1)


def test_derived_generators_follow_from_seed_rank_and_step_alone() -> None:
    def first_draws(*about: int) -> tuple[Any, ...]:
        rng.restore(carried({"randomness": rng.capture()}, None, *about)["randomness"])
        return draws()

    assert first_draws(1, 2, 3) == first_draws(1, 2, 3)
    assert len({repr(first_draws(*about)) for about in [(1, 2, 3), (2, 2, 3), (1, 3, 3), (1, 2, 4)]}) == 4

"""How ranks ended, as it is kept in the scheduler's machine, and whom it blames for it."""

from __future__ import annotations

from tests.support.core_world import Driver, exited, going, gone, hung, lost, nodes_of, registered, running, saved
from trainhouse.events import FailureBlamed, FailureCategory, GangAllocated, RankExited
from trainhouse.events.wire.collectives import AtCollective

CLOSED = "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:38032"
ECC = "  what():  [Rank 1] Process group watchdog thread terminated with exception: CUDA error: uncorrectable ECC error encountered"
FRAMES = "\n".join(f"frame #{n}: c10d::ProcessGroupNCCL::watchdogHandler() + 0x1da (0x7fa14b231b5a in libtorch_cuda.so)" for n in range(60))


def _fleet() -> Driver:
    driver = Driver()
    driver.feed(*(registered(name, 1) for name in ("a", "b", "c")))
    return driver


def _killed(gang: GangAllocated, rank: int, reason: str = "") -> RankExited:
    """Long after the gang was told to end."""
    return exited(gang, rank, None, 9, reason).model_copy(update={"exited_at_ms": 2**40})


def _at(rank: int, at: int, begun: int, done: int) -> str:
    line = AtCollective(rank, "default_pg", at, "gloo:all_reduce [512] Float", begun, done, (0, 1)).line()
    return f"rank {rank} was ended by SIGKILL and wrote nothing to standard error\n{line}"


def test_of_a_gang_that_hung_the_recorders_name_the_rank_that_never_came() -> None:
    driver = _fleet()
    gang = running(driver, "j", ranks=2)
    driver.feed(hung(gang, ranks=[]))
    driver.feed(_killed(gang, 0, _at(0, 8, 8, 7)), _killed(gang, 1, _at(1, 7, 7, 7)), *gone(gang))
    found = driver.last(FailureBlamed)
    assert (found.rule, found.category, found.rank, found.node_id) == ("recorder", FailureCategory.NODE, 1, nodes_of(gang)[1])
    assert "rank 0 waits for rank 1" in found.summary


def test_ends_that_the_release_of_a_hung_gang_brought_say_nothing_by_themselves() -> None:
    driver = _fleet()
    gang = running(driver, "j", ranks=2)
    driver.feed(hung(gang, ranks=[1]))
    driver.feed(_killed(gang, 0), _killed(gang, 1), *gone(gang))
    found = driver.last(FailureBlamed)
    assert (found.rule, found.rank) == ("hung", 1)


def test_the_cause_is_kept_however_much_was_written_after_it() -> None:
    driver = _fleet()
    gang = running(driver, "j", ranks=2)
    driver.feed(exited(gang, 0, 1, None, CLOSED), exited(gang, 1, None, 6, f"{ECC}\n{FRAMES}"), *gone(gang))
    found = driver.last(FailureBlamed)
    assert (found.category, found.rank, found.rule) == (FailureCategory.DEVICE, 1, "ecc-uncorrectable")
    assert found.device_id == gang.placements[1].devices[0] and not found.mine


def _nodes_lost(saves: bool) -> list[FailureBlamed]:
    """Job j loses one node after another, three in all; it may get on in between."""
    driver = Driver()
    names = ("a", "b", "c", "d")
    driver.feed(*(registered(name, 1) for name in names))
    gang = running(driver, "j", ranks=1)
    for commit in (1, 2, 3):
        if saves:
            driver.tick(1_000)
            driver.feed(saved(gang, commit))
        driver.feed(lost(registered(nodes_of(gang)[0], 1)))
        driver.tick(60_000)
        if driver.state.jobs["j"].allotment is not None:
            gang = going(driver, "j")
    return driver.all(FailureBlamed)


def test_a_job_that_gets_on_between_losses_of_nodes_is_not_blamed_for_them() -> None:
    assert [f.mine for f in _nodes_lost(saves=True)] == [False, False, False]
    assert [f.mine for f in _nodes_lost(saves=False)] == [False, False, True]
